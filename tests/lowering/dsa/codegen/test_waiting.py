"""Feature maps in the GB: where they are, and when they wait in DDR."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from eqfuse.costmodels.dsa_device import load_dsa_device, single_cluster
from eqfuse.lowering.dsa.codegen.addresses import Lifetime, NoRoomError, Request, assign_addresses, long_term_addresses
from eqfuse.lowering.dsa.codegen.generator import Plan, plan_program, write_program
from eqfuse.lowering.dsa.codegen.waiting import Span, Timetable, stays_between
from eqfuse.lowering.dsa.program.instructions import DDR, Role, Transfer
from eqfuse.lowering.dsa.program.validate import validate
from eqfuse.lowering.dsa.schedule.variants import FULL, Variant

from ...small_models import model
from ..scheduled import schedule
from ..small_networks import scheduled_parts

DEVICE = single_cluster(load_dsa_device("stcp920"))


def request(key: int, size: int, start: int, end: int) -> Request[int]:
    return Request(key, size, Lifetime(start, end))


@st.composite
def many_requests(draw: st.DrawFn) -> list[Request[int]]:
    lives = [(draw(st.integers(0, 10)), draw(st.integers(0, 5))) for _ in range(draw(st.integers(0, 12)))]
    return [request(key, draw(st.integers(1, 50)), start, start + more) for key, (start, more) in enumerate(lives)]


@given(many_requests(), st.integers(0, 3))
def test_what_is_there_at_once_does_not_overlap(requests: list[Request[int]], fixed: int) -> None:
    places = long_term_addresses(requests[:fixed], requests[fixed:], 1000, 8)
    for one in requests:
        assert places[one.key] % 8 == 0
        for other in requests:
            if one.key != other.key and one.life.start <= other.life.end and other.life.start <= one.life.end:
                first, second = sorted((one, other), key=lambda r: places[r.key])
                assert places[first.key] + first.size <= places[second.key]


def test_what_starts_early_leaves_no_gaps_that_nothing_fits() -> None:
    requests = [request(0, 16, 0, 1), request(1, 8, 1, 3), request(2, 32, 2, 3)]
    with pytest.raises(NoRoomError):
        assign_addresses(requests, 40, 8)
    assert long_term_addresses([], requests, 40, 8) == {2: 0, 0: 0, 1: 32}


def test_those_that_are_fixed_find_room_before_larger_ones() -> None:
    with pytest.raises(NoRoomError) as caught:
        long_term_addresses([request(0, 8, 0, 1)], [request(1, 64, 0, 1)], 64, 8)
    assert [each.key for each in caught.value.requests] == [1]


def test_nothing_waits_while_it_is_used_or_moved() -> None:
    steps = Timetable([10.0] * 10)
    assert steps.gap(0, 9, 0.0) == Span(1, 8)
    assert steps.gap(0, 9, 15.0) == Span(3, 6)
    assert steps.gap(0, 2, 10.0) is None


def test_stays_are_what_is_left_between_gaps() -> None:
    assert list(stays_between(Span(0, 9), [Span(2, 3), Span(5, 6)])) == [Span(0, 1), Span(4, 4), Span(7, 9)]
    assert list(stays_between(Span(0, 9), [])) == [Span(0, 9)]


def planned(variant: Variant) -> Plan:
    """Of a network whose first result is needed again after many layers, for which the GB has no room besides."""
    nodes = [helper.make_node("Softmax", ["x"], ["kept"]), helper.make_node("Softmax", ["kept"], ["m0"])]
    nodes += [helper.make_node("Softmax", [f"m{n}"], [f"m{n + 1}"], axis=1 + n % 2) for n in range(12)]
    nodes += [helper.make_node("Add", ["kept", "m12"], ["y"])]
    shape = (1, 1500, 1024)
    graph, layers, _ = scheduled_parts(model(nodes, {"x": shape}, {"y": shape}))
    made = schedule(graph, layers, DEVICE, element_size=2, instances=False)
    return plan_program(made, variant)


def test_a_map_that_nobody_needs_for_long_waits_in_ddr() -> None:
    plan = planned(replace(FULL, instances=False))
    values = plan.schedule.network.graph.values
    assert [values[part.value].name for part in plan.residence.waiting] == ["kept"]
    program = write_program(plan, 1).program
    validate(program, DEVICE)
    moved = [each for each in program.instructions if isinstance(each, Transfer) and each.engine.core is None]
    stored = {each.name for each in program.buffers if each.role is Role.CONSTANT}
    size = 2 * 1500 * 1024
    assert [each.source.size for each in moved if each.targets[0].memory == DDR] == [size]
    back = [each for each in moved if each.source.memory == DDR and each.source.buffer not in stored]
    assert [each.source.size for each in back] == [size]


def test_as_the_text_spills_nothing_waits() -> None:
    assert not planned(replace(FULL, instances=False, spill="longest")).residence.waiting


def test_a_tile_waits_for_all_transfers_of_an_input_that_comes_to_the_global_buffer() -> None:
    nodes = [helper.make_node("Mul", ["x", f"c{n}"], [f"s{n}"]) for n in range(16)]
    nodes += [helper.make_node("Softmax", [f"s{n}"], [f"m{n}"], axis=1) for n in range(16)]
    nodes += [helper.make_node("Sum", [f"m{n}" for n in range(16)], ["y"])]
    shape = (1, 24, 40)
    factors = {f"c{n}": numpy.array(n + 2, numpy.float32) for n in range(16)}
    graph, layers, _ = scheduled_parts(model(nodes, {"x": shape}, {"y": shape}, **factors))
    device = replace(DEVICE, dma_latency=160 / DEVICE.ddr_bandwidth)  # of two rows, where a tile has three
    made = schedule(graph, layers, device, element_size=2, instances=False)
    program = write_program(plan_program(made, replace(FULL, instances=False)), 1).program
    transfers = [each for each in program.instructions if isinstance(each, Transfer) and each.source.buffer == "x"]
    assert len([each for each in transfers if each.source.memory == DDR]) > 1
    validate(program, device)
