"""Which ways to run a network become programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device, single_cluster
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.codegen import compiler
from eqfuse.lowering.dsa.codegen.compiler import (
    Candidate,
    Choices,
    SlowerError,
    accelerator_network,
    cluster_program,
    for_splitting,
    promising_plans,
)
from eqfuse.lowering.dsa.codegen.estimates import Estimate, estimate, least_loading
from eqfuse.lowering.dsa.codegen.generated import Generated
from eqfuse.lowering.dsa.codegen.generator import Plan, plan_program, write_program
from eqfuse.lowering.dsa.codegen.running import step_count
from eqfuse.lowering.dsa.program.instructions import DDR, Level, Role, Transfer, TransferKind
from eqfuse.lowering.dsa.schedule.scheduler import Schedule
from eqfuse.lowering.dsa.schedule.variants import ALTERNATIVES, FULL, TVM, Variant
from eqfuse.lowering.dsa.simulate.timing import simulate_time

from ...small_models import model
from ..scheduled import schedule
from ..small_networks import cnn, scheduled_parts

DEVICE = single_cluster(load_dsa_device("stcp920-1mb"))
TIGHT = replace(DEVICE, local_buffer=3072, weight_buffer=2048, global_buffer=65536)
ABREAST = replace(FULL, abreast=True)


def candidate(variant: Variant, device: DsaDevice = DEVICE, samples: int = 4) -> Candidate:
    graph, layers, _ = scheduled_parts(cnn())
    found = schedule(graph, layers, for_splitting(device, variant), batch=samples, instances=variant.instances)
    return Candidate(variant, len(found.graph), lambda: replace(found, device=device))


def test_instances_may_be_left_some_room() -> None:
    assert for_splitting(DEVICE, FULL) == DEVICE
    assert for_splitting(DEVICE, replace(FULL, room=0.5)).activation_buffer == DEVICE.activation_buffer // 2


def test_instances_for_the_gb_are_larger_where_it_holds_more() -> None:
    small = replace(DEVICE, local_buffer=65536, weight_buffer=16384)
    assert for_splitting(small, replace(FULL, split_for=Level.GB)).local_buffer > small.local_buffer


@pytest.mark.conformance
def test_ways_that_come_to_the_same_are_planned_once() -> None:
    found = promising_plans([candidate(FULL), candidate(ABREAST), candidate(replace(FULL, room=0.9))], DEVICE)
    assert [each.variant for each in found] == [FULL]


def test_ways_that_cut_alike_are_planned_once_though_one_of_them_could_cut_otherwise() -> None:
    made = candidate(FULL).schedule
    groups = tuple(replace(group, options=(group.split,)) for group in made.graph.groups)
    assert groups != made.graph.groups
    other = replace(made, graph=replace(made.graph, groups=groups))
    ways = [Candidate(FULL, 1, lambda: made), Candidate(replace(FULL, room=0.9), 1, lambda: other)]
    assert len(promising_plans(ways, DEVICE)) == 1


@pytest.mark.conformance
def test_a_way_with_many_times_the_steps_is_not_planned() -> None:
    small, few = replace(TIGHT, local_buffer=2432), replace(FULL, split_for=Level.GB)
    ways = [candidate(variant, small, 16) for variant in (FULL, few)]
    assert len(ways[0].order) > 8 * len(ways[1].order)
    assert [each.variant for each in promising_plans(ways, small)] == [few]


def test_a_way_that_cannot_be_scheduled_leaves_the_others() -> None:
    def refuse() -> Schedule:
        raise DsaError("too many instances")

    ways = [Candidate(ABREAST, 1, refuse), candidate(FULL)]
    assert [each.variant for each in promising_plans(ways, DEVICE)] == [FULL]
    with pytest.raises(DsaError, match="too many instances"):
        promising_plans(ways[:1], DEVICE)


def test_no_schedule_is_made_for_many_times_the_instances_of_another_way() -> None:
    few = candidate(FULL)
    many = Candidate(ABREAST, 8 * len(few.order) + 1, lambda: pytest.fail("made a schedule"))
    assert [each.variant for each in promising_plans([many, few], DEVICE)] == [FULL]


def test_steps_are_counted_without_their_order() -> None:
    for variant in (FULL, ABREAST, TVM):
        way = candidate(variant, TIGHT)
        assert step_count(way.schedule) == len(way.order)


def test_instances_that_fill_the_gb_send_the_results_of_others_to_ddr() -> None:
    small = replace(DEVICE, local_buffer=2560, weight_buffer=2048, global_buffer=8192)
    roomy = next(each for each in ALTERNATIVES if each.split_for is Level.GB and each.room < 1 and not each.abreast)
    ways = [candidate(replace(roomy, room=room), small, 16) for room in (1.0, roomy.room)]
    far = [list(plan_program(way.schedule, way.variant).residence.homes.values()).count(Level.DDR) for way in ways]
    assert far[0] > far[1] == 1  # the output of the network
    assert [plan.variant for plan in promising_plans(ways, small)] == [roomy]


def test_the_first_promises_most() -> None:
    found = promising_plans([candidate(TVM), candidate(FULL)], DEVICE)
    assert found[0].variant == FULL


def test_no_way_becomes_a_program_beside_a_much_faster_one() -> None:
    cycles = estimate(plan_program(candidate(FULL).schedule, FULL), DEVICE).cycles
    assert promising_plans([candidate(FULL)], DEVICE, cycles)
    with pytest.raises(SlowerError, match=f"estimated at {cycles:.0f} cycles"):
        promising_plans([candidate(FULL)], DEVICE, cycles / 2)


def test_no_addresses_are_sought_for_steps_that_take_too_long() -> None:
    way = candidate(FULL)
    plan = plan_program(way.schedule, FULL)
    cycles = sum(each.cycles for each in plan.residence.tiles)
    assert cycles <= estimate(plan, DEVICE).cycles
    assert plan_program(way.schedule, FULL, cycles).memory == plan.memory
    with pytest.raises(DsaError, match=f"take {cycles:.0f} cycles"):
        plan_program(way.schedule, FULL, 0.99 * cycles)


def test_what_ddr_moves_for_longer_than_another_program_runs_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, layers, _ = scheduled_parts(cnn())
    written: list[Variant] = []

    def write(plan: Plan, batch: int, name: str) -> Generated:
        written.append(plan.variant)
        return write_program(plan, batch, name)

    def moving(plan: Plan, device: DsaDevice) -> Estimate:
        """As if plans moved much."""
        return replace(estimate(plan, device), moving=1e9)

    monkeypatch.setattr(compiler, "write_program", write)
    monkeypatch.setattr(compiler, "_CLOSE", 2.0)
    network = accelerator_network(graph, layers, TIGHT, 2)
    cluster_program(network, TIGHT, 4, 1, Choices())
    assert len(written) > 1
    written.clear()
    monkeypatch.setattr(compiler, "estimate", moving)
    cluster_program(network, TIGHT, 4, 1, Choices())
    assert len(written) == 1


def test_a_way_that_loads_weights_for_too_long_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(schedule: Schedule, variant: Variant, most: float) -> Plan:
        planned.append(variant)
        return plan_program(schedule, variant, most)

    planned: list[Variant] = []
    monkeypatch.setattr(compiler, "plan_program", plan)
    few = replace(FULL, split_for=Level.GB)
    for loading, expected in ((0.0, 2), (1e9, 1)):
        monkeypatch.setattr(compiler, "least_loading", lambda *_, loading=loading: loading)
        planned.clear()
        promising_plans([candidate(variant, TIGHT) for variant in (FULL, few)], TIGHT)
        assert len(planned) == expected


@pytest.mark.parametrize(("room", "share", "expected"), [(1.0, 0.0, 1), (1.0, 1.0, 2), (0.5, 0.0, 2)])
def test_taking_turns_is_planned_to_load_less_or_to_leave_room(
    room: float, share: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(schedule: Schedule, variant: Variant, most: float) -> Plan:
        planned.append(variant)
        return plan_program(schedule, variant, most)

    def estimated(plan: Plan, device: DsaDevice) -> Estimate:
        """As if loading weights took a share of the time."""
        found = estimate(plan, device)
        return replace(found, loading=share * found.cycles)

    planned: list[Variant] = []
    monkeypatch.setattr(compiler, "plan_program", plan)
    monkeypatch.setattr(compiler, "estimate", estimated)
    small = replace(DEVICE, local_buffer=2560, weight_buffer=2048, global_buffer=8192)
    promising_plans([candidate(variant, small) for variant in (FULL, replace(ABREAST, room=room))], small)
    assert len(planned) == expected


def test_weights_are_loaded_again_if_others_need_the_room() -> None:
    """Layers that run twice load theirs once if all of these fit."""
    way = candidate(TVM)
    twice, small = 2 * way.order, replace(DEVICE, global_buffer=64, weight_buffer=8)
    once = least_loading(way.schedule, way.order, DEVICE)
    assert least_loading(way.schedule, twice, DEVICE) == once
    assert once < least_loading(way.schedule, twice, small) <= 2 * once


def test_nothing_that_fits_is_an_error() -> None:
    small = replace(DEVICE, local_buffer=128, weight_buffer=64, global_buffer=4096)
    with pytest.raises(DsaError, match="split fully"):
        promising_plans([candidate(FULL, small)], small)


@pytest.mark.conformance
@pytest.mark.parametrize("device", [DEVICE, TIGHT], ids=["roomy", "tight"])
def test_an_estimate_counts_the_weights_that_the_program_loads(device: DsaDevice) -> None:
    made = plan_program(candidate(FULL, device).schedule, FULL)
    program = write_program(made, 4).program
    stored = {buffer.name for buffer in program.buffers if buffer.role is Role.CONSTANT}
    loads = [t for t in program.instructions if isinstance(t, Transfer) and t.targets[0].memory.level is Level.GB]
    loaded = sum(t.source.size for t in loads if t.source.memory.level is Level.DDR and t.source.buffer in stored)
    found = estimate(made, device)
    assert 0 < least_loading(made.schedule, candidate(FULL, device).order, device) <= found.loading
    assert found.loading == pytest.approx(loaded * device.clock / device.ddr_bandwidth)
    assert found.loading <= found.moving <= simulate_time(program, device).cycles


def test_weights_that_are_needed_one_after_another_come_in_one_transfer() -> None:
    made = plan_program(candidate(FULL).schedule, FULL)
    moved = [each for each in write_program(made, 4).program.instructions if isinstance(each, Transfer)]
    loads = [each for each in moved if each.source.memory == DDR and each.targets[0].memory.level is Level.GB]
    hoists = [each for each in moved if each.kind is TransferKind.HOIST]
    assert len(loads) == 1 < len(hoists)


@pytest.mark.parametrize("weight", ["shared", "own"])
def test_weights_of_one_core_wait_for_no_other(weight: str) -> None:
    rows, columns = (64, 8) if weight == "shared" else (1, 512)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    source = model(nodes, {"x": (rows, 16)}, {"y": (rows, columns)}, w=np.ones((16, columns), np.float32))
    graph, layers, _ = scheduled_parts(source)
    made = plan_program(schedule(graph, layers, DEVICE, batch=None), FULL)
    moved = [each for each in write_program(made, 1).program.instructions if isinstance(each, Transfer)]
    channels = [each.engine for each in moved if each.kind is TransferKind.HOIST]
    assert len(set(channels)) == (1 if weight == "shared" else DEVICE.cores)
    assert all((channel.core is None) == (weight == "shared") for channel in channels)


def test_an_estimate_is_of_the_order_of_the_simulated_cycles() -> None:
    made = plan_program(candidate(FULL).schedule, FULL)
    simulated = simulate_time(write_program(made, 4).program, DEVICE).cycles
    assert simulated / 20 < estimate(made, DEVICE).cycles < 2 * simulated


@pytest.mark.parametrize(("latency", "expected"), [(0.0, "small"), (1e-5, "large")])
def test_what_many_tiles_read_stays_in_the_gb_if_ddr_is_slow_to_begin(latency: float, expected: str) -> None:
    """The small tensor moves fewer bytes, but a deep product reads it in many tiles, each of which would wait."""
    nodes = [
        helper.make_node("Softmax", ["x1"], ["small"]),
        helper.make_node("Concat", ["small", "x2"], ["large"], axis=2),
        helper.make_node("Softmax", ["large"], ["y2"], axis=1),
        helper.make_node("ReduceMax", ["y2"], ["most"], axes=[2]),
        helper.make_node("MatMul", ["small", "w"], ["product"]),
        helper.make_node("Add", ["product", "most"], ["y1"]),
    ]
    w = np.random.default_rng(0).standard_normal((128, 128)).astype(np.float32)
    inputs, outputs = {"x1": (1, 16, 128), "x2": (1, 16, 128)}, {"y1": (1, 16, 128), "y2": (1, 16, 256)}
    graph, layers, _ = scheduled_parts(model(nodes, inputs, outputs, w=w))
    device = replace(TIGHT, local_buffer=8192, weight_buffer=4096, global_buffer=12288, dma_latency=latency)
    found = replace(schedule(graph, layers, device, instances=False), device=device)
    homes = plan_program(found, replace(FULL, instances=False, fastest=Level.GB)).residence.homes
    far = {graph.values[part.value].name for part, home in homes.items() if home is Level.DDR}
    assert far == {expected, "y1", "y2"}
