"""Timing: worked examples, and what holds of every program."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eqfuse.costmodels.dsa_device import ComputeUnit, Dataflow, DsaDevice, load_dsa_device, single_cluster
from eqfuse.costmodels.systolic import Product
from eqfuse.lowering.dsa.program.cost import Cost
from eqfuse.lowering.dsa.program.happens_before import predecessors, users
from eqfuse.lowering.dsa.program.instructions import (
    DDR,
    Barrier,
    Compute,
    Instruction,
    Level,
    Program,
    ProgramError,
    Region,
    Role,
    ScopeCounts,
    Transfer,
    Unit,
    Work,
    global_buffer,
    local_buffer,
)
from eqfuse.lowering.dsa.simulate.time_report import LevelBytes, StageUse, report, use_by_stage
from eqfuse.lowering.dsa.simulate.timing import Timeline, simulate_time

from ..accelerator_programs import CLUSTER_DEVICE, DEVICE, Builder, cluster_dma, core_dma, layer_program, unit

MATRIX, MACS, VECTOR = (Work(Unit.MME, products=(Product(8, 16, 10),)), Work(Unit.VME, 320), Work(Unit.VECTOR, 160))


def compute(core: int, *work: Work, waits: tuple[int, ...] = (), cluster: int = 0) -> Compute:
    return Compute(cluster, core, "k", (), (), work, waits=waits)


def places() -> Builder:
    """1600 bytes in each memory; those in DDR are an input and an output."""
    builder = Builder()
    builder.buffer("x", DDR, 0, (400,), Role.INPUT)
    builder.buffer("y", DDR, 1600, (400,), Role.OUTPUT)
    for cluster in range(2):
        builder.buffer(f"g{cluster}", global_buffer(cluster), 0, (400,))
        for core in range(2):
            builder.buffer(f"l{cluster}{core}", local_buffer(cluster, core), 0, (400,))
    return builder


def run(builder: Builder, device: DsaDevice = DEVICE) -> Timeline:
    return simulate_time(builder.program(), device)


BARRIER = Barrier((unit(0, 0, Unit.VME), unit(0, 1, Unit.VECTOR)))


@pytest.mark.parametrize(
    ("instructions", "starts", "ends"),
    [
        # 2 x 2 folds of 10 + 4 + 8 - 2 cycles; 320 multiply-accumulates and 160 operations at 16 a cycle.
        pytest.param([compute(0, MATRIX), compute(0, MACS), compute(0, VECTOR)], (0, 0, 0), (80, 20, 10), id="units"),
        # The vector unit is free when it has done its part, the matrix unit when all is done.
        pytest.param(
            [compute(0, MATRIX, VECTOR), compute(0, VECTOR), compute(0, MATRIX)], (0, 10, 80), (80, 20, 160),
            id="units of one kernel run as a pipeline",
        ),
        pytest.param([compute(0, VECTOR), compute(0, VECTOR)], (0, 10), (10, 20), id="one engine runs in order"),
        pytest.param(
            [compute(core, work, cluster=cluster) for cluster in (0, 1) for core in (0, 1) for work in (VECTOR, MACS)],
            (0,) * 8, (10, 20) * 4, id="engines, cores and clusters run concurrently",
        ),
        pytest.param([compute(0, MACS), compute(1, VECTOR, waits=(0,))], (0, 20), (20, 30), id="waits hold back"),
        pytest.param(
            [compute(0, MACS), BARRIER, compute(1, VECTOR), compute(1, MACS)], (0, 20, 20, 0), (20, 20, 30, 20),
            id="a barrier holds back its engines alone",
        ),
    ],
)  # fmt: skip
def test_kernels_run(instructions: list[Instruction], starts: tuple[float, ...], ends: tuple[float, ...]) -> None:
    timeline = simulate_time(Program("p", "d", 1, (), tuple(instructions)), DEVICE)
    assert (timeline.starts, timeline.ends) == (starts, ends)


def with_dataflows(*dataflows: Dataflow) -> DsaDevice:
    return dataclasses.replace(DEVICE, units=(ComputeUnit("MME", "matrix", "core", 4, 8, dataflows),))


def test_the_dataflow_counts() -> None:
    program = replace(Builder().program(), instructions=(compute(0, MATRIX),))
    device = with_dataflows(Dataflow.WEIGHT_STATIONARY)
    plain, transposed = 3 * 2 * (2 * 4 + 8 + 8 - 2), 3 * 1 * (2 * 4 + 8 + 16 - 2)
    assert simulate_time(program, device).cycles == min(plain, transposed)


def test_each_product_of_a_kernel_has_its_own_dataflow() -> None:
    work = Work(Unit.MME, products=(Product(4, 8, 100), Product(100, 8, 4)))
    program = replace(Builder().program(), instructions=(compute(0, work),))
    device = with_dataflows(Dataflow.OUTPUT_STATIONARY, Dataflow.WEIGHT_STATIONARY)
    assert simulate_time(program, device).cycles == (100 + 4 + 8 - 2) + (100 + 2 * 4 + 8 - 2)


def test_a_kernel_is_no_faster_than_its_operands_arrive() -> None:
    builder = places()
    builder.add(Compute(0, 0, "k", (builder.operand("l00"),), (), (VECTOR,)))
    assert run(builder).cycles == 1600 / 64


@pytest.mark.parametrize(
    ("source", "target", "cycles"),
    [
        ("x", "g0", 100 + 1600 / 16),
        ("g0", "l00", 10 + 1600 / 32),
        ("l00", "l01", 10 + 1600 / 32),
        ("x", "l00", 100 + 1600 / 16),
        ("g0", "y", 100 + 1600 / 16),
    ],
)
def test_a_transfer_alone(source: str, target: str, cycles: float) -> None:
    builder = places()
    builder.move(cluster_dma(0), builder.region(source), builder.region(target))
    assert run(builder).cycles == pytest.approx(cycles)


def test_clusters_share_ddr() -> None:
    builder = places()
    for cluster in range(2):
        builder.move(cluster_dma(cluster), builder.region("x"), builder.region(f"g{cluster}"))
    assert run(builder).cycles == pytest.approx(100 + 2 * 1600 / 16)


def test_what_one_transfer_leaves_the_others_take() -> None:
    builder = places()
    builder.move(cluster_dma(0), builder.region("x", 0, 800), builder.region("g0", 0, 800))
    builder.move(cluster_dma(1), builder.region("x"), builder.region("g1"))
    # Both at 8 bytes a cycle until the shorter one ends, then the other at 16.
    assert run(builder).ends == pytest.approx((200, 250))


def test_a_multicast_reads_once() -> None:
    builder = places()
    builder.move(cluster_dma(0), builder.region("g0"), builder.region("l00"), builder.region("l01"))
    assert run(builder).cycles == pytest.approx(10 + 1600 / 32)


def test_rows_take_whole_beats() -> None:
    builder = places()
    rows = Region("x", DDR, 8, 16, 10, 32)
    builder.move(cluster_dma(0), rows, builder.region("g0", 0, 160))
    assert run(builder).cycles == pytest.approx(100 + 10 * 32 / 16)


@given(
    *(st.integers(0, 40), st.integers(1, 40), st.integers(1, 9), st.integers(0, 40)),
    *(st.integers(1, 9), st.integers(0, 9)),
)
def test_each_row_of_each_plane_takes_its_beats(
    address: int, row: int, rows: int, gap: int, planes: int, space: int
) -> None:
    beat, stride = DEVICE.alignment, row + gap
    region = Region("x", DDR, address, row, rows, stride if rows > 1 else 0, planes)
    region = replace(region, plane_stride=region.span + space if planes > 1 else 0)
    apart = sum(-(-(start % beat + row) // beat) for start in region.starts.tolist())
    together = sum(-(-(start % beat + region.span) // beat) for start in region.starts[::rows].tolist())
    transfer = Transfer(cluster_dma(0), region, (Region("g0", global_buffer(0), 0, region.size),))
    wanted = max(beat * (apart if gap or rows == 1 else together), -(-region.size // beat) * beat)
    assert Cost(DEVICE).wire_bytes(transfer) == wanted


@pytest.mark.parametrize("clusters", [2, 4])
def test_a_cluster_of_many_in_lockstep_is_a_device_of_its_own(clusters: int) -> None:
    device = dataclasses.replace(DEVICE, clusters=clusters)
    single = cluster_program(1)
    alone = simulate_time(single, single_cluster(device))
    together = simulate_time(cluster_program(clusters), device)
    count = len(single.instructions)
    assert together.cycles == alone.cycles
    assert all(together.ends[place : place + count] == alone.ends for place in range(0, clusters * count, count))


def cluster_program(clusters: int) -> Program:
    """In each cluster the same: transfers over all links at once, and kernels that wait for them."""
    builder = Builder()
    builder.buffer("x", DDR, 0, (400,), Role.INPUT)
    for cluster in range(clusters):
        builder.buffer(f"g{cluster}", global_buffer(cluster), 0, (400,))
        cores = range(2)
        for core in cores:
            builder.buffer(f"l{cluster}{core}", local_buffer(cluster, core), 0, (400,))
        everywhere = [builder.region(f"l{cluster}{core}") for core in cores]
        first = builder.move(cluster_dma(cluster), builder.region("x"), builder.region(f"g{cluster}"))
        half = builder.region("x", 0, 800), builder.region(f"g{cluster}", 0, 800)
        other = builder.move(cluster_dma(cluster, 1), *half)
        builder.move(core_dma(cluster, 0), builder.region("x", 0, 320), builder.region(f"l{cluster}0", 0, 320))
        builder.move(cluster_dma(cluster, 2), builder.region(f"g{cluster}"), *everywhere, waits=[other])
        source = builder.region(f"g{cluster}")
        copies = [builder.move(core_dma(cluster, core), source, everywhere[core]) for core in cores]
        for core in cores:
            builder.add(compute(core, MATRIX, waits=(first, copies[core]), cluster=cluster))
    return builder.program()


def test_a_unit_of_the_cluster() -> None:
    program = Program("p", "d", 1, (), (Compute(0, None, "k", (), (), (MATRIX,)),))
    assert simulate_time(program, CLUSTER_DEVICE).cycles == 80


def test_a_unit_that_is_not_there() -> None:
    with pytest.raises(ProgramError, match=r"engine of the cluster has no unit for engine 0\.0\.vme"):
        simulate_time(Program("p", "d", 1, (), (compute(0, MACS),)), CLUSTER_DEVICE)


def test_nothing_takes_no_time() -> None:
    figures = report(run(Builder()))
    assert (figures.cycles, figures.throughput, figures.bound_ratio) == (0.0, 0.0, 1.0)


def test_the_report_of_the_layers() -> None:
    figures = report(simulate_time(layer_program(), DEVICE))
    assert figures.as_json()["traffic"] == {
        "DDR->GB": 512 + 2 * 384,
        "GB->DDR": 768,
        "GB->LB": 512 + 4 * 384,
        "LB->GB": 768,
    }
    # The hoist of each cluster reads the weights once, for two cores.
    assert figures.levels[1] == LevelBytes(Level.GB, 512 + 2 * 384 + 768, 512 + 2 * 384 + 768)
    assert figures.seconds == pytest.approx(figures.cycles / 1e9)
    assert figures.throughput == pytest.approx(16 / figures.seconds)
    assert figures.scopes == ScopeCounts(4, 2, 6)
    # 512 bytes of input, 384 of weights and 768 of output, each once.
    assert figures.bound.traffic == pytest.approx((512 + 384 + 768) / 16)
    assert dict(figures.bound.compute) == {Unit.MME: 16 * 12 * 8 / (4 * 32), Unit.VECTOR: 16 * 12 / (4 * 16)}
    assert dict(figures.scheduled)[Unit.MME] == 2 * (8 + 4 + 8 - 2)


def test_a_stage_uses_the_units_while_any_of_its_kernels_runs() -> None:
    kernels = [compute(0, MATRIX), compute(0, MATRIX), compute(1, VECTOR)]
    named = [replace(kernel, label=label) for kernel, label in zip(kernels, "aba", strict=True)]
    first, second = use_by_stage(simulate_time(Program("p", "d", 1, (), tuple(named)), DEVICE), {"a": 0, "b": 1})
    # Core 0 runs a's product for 80 of 160 cycles, beside 10 cycles of a on core 1, then b's; there are four cores.
    assert first == StageUse(0.5, ((Unit.VECTOR, 10 / (4 * 80)), (Unit.VME, 0.0), (Unit.MME, 0.25)))
    assert second == StageUse(0.5, ((Unit.VECTOR, 0.0), (Unit.VME, 0.0), (Unit.MME, 0.25)))


def test_the_report_is_json() -> None:
    document = json.loads(json.dumps(report(simulate_time(layer_program(), DEVICE)).as_json()))
    assert document["traffic"]["GB->DDR"] == 768
    assert document["levels"]["DDR"] == {"read": 512 + 2 * 384, "written": 768}
    assert 0 < document["utilisation"]["0.0.mme"] < 1


def test_the_devices_that_come_along_can_be_simulated() -> None:
    device = load_dsa_device("stcp920")
    product = Work(Unit.MME, products=(Product(32, 64, 512),))
    timeline = simulate_time(Program("p", "d", 1, (), (compute(7, product, cluster=3),)), device)
    assert timeline.cycles == 512 + 32 + 64 - 2


SIZES = st.integers(1, 100).map(lambda each: 16 * each)
WORKS = st.sampled_from([(MATRIX,), (MACS,), (VECTOR,), (MATRIX, VECTOR)])


@st.composite
def programs(draw: st.DrawFn, channels: int = 3) -> Program:
    builder = places()
    for index in range(draw(st.integers(1, 12))):
        waits = tuple(sorted(draw(st.sets(st.integers(0, index - 1), max_size=2)))) if index else ()
        cluster, core = draw(st.integers(0, 1)), draw(st.integers(0, 1))
        if draw(st.booleans()):
            builder.add(compute(core, *draw(WORKS), waits=waits, cluster=cluster))
            continue
        size, paths = draw(SIZES), [("x", f"g{cluster}"), (f"g{cluster}", f"l{cluster}{core}"), (f"g{cluster}", "y")]
        names = draw(st.sampled_from([*paths, (f"l{cluster}{core}", f"l{cluster}{1 - core}")]))
        regions = [builder.region(name, 0, size) for name in names]
        channel = draw(st.integers(0, channels - 1))
        engine = core_dma(cluster, core) if channel == 2 else cluster_dma(cluster if channels > 1 else 0, channel)
        builder.move(engine, *regions, waits=waits)
    return builder.program()


def alone(program: Program, index: int, device: DsaDevice = DEVICE) -> float:
    instruction = replace(program.instructions[index], waits=())
    return simulate_time(replace(program, instructions=(instruction,)), device).cycles


@given(programs())
def test_never_below_the_lower_bounds(program: Program) -> None:
    figures = report(simulate_time(program, DEVICE))
    assert figures.cycles >= figures.bound.cycles * (1 - 1e-9)
    assert all(figures.cycles >= cycles * (1 - 1e-9) for _, cycles in figures.scheduled)


@given(programs())
def test_no_link_carries_more_than_it_can(program: Program) -> None:
    cost, cycles = Cost(DEVICE), simulate_time(program, DEVICE).cycles
    carried: dict[tuple[Level, int, int], int] = {}
    for each in program.instructions:
        if isinstance(each, Transfer):
            for link in cost.links(each):
                carried[link] = carried.get(link, 0) + cost.wire_bytes(each)
    assert all(total <= cost.bandwidth(link) * cycles * (1 + 1e-9) for link, total in carried.items())


@given(programs())
def test_a_serial_program_takes_the_sum(program: Program) -> None:
    chained = [replace(each, waits=(index - 1,) if index else ()) for index, each in enumerate(program.instructions)]
    serial = replace(program, instructions=tuple(chained))
    total = sum(alone(program, index) for index in range(len(chained)))
    assert simulate_time(serial, DEVICE).cycles == pytest.approx(total)


@given(programs())
def test_no_slower_than_one_after_another(program: Program) -> None:
    total = sum(alone(program, index) for index in range(len(program.instructions)))
    assert simulate_time(program, DEVICE).cycles <= total * (1 + 1e-9)


@given(programs())
def test_what_must_come_before_does(program: Program) -> None:
    timeline = simulate_time(program, DEVICE)
    for index, (earlier, using) in enumerate(zip(predecessors(program), users(program), strict=True)):
        used = (_used(timeline, *each) for each in using)
        assert timeline.starts[index] == max((*(timeline.ends[each] for each in earlier), *used), default=0.0)


def _used(timeline: Timeline, index: int, number: int) -> float:
    """When a kernel has used one of its units."""
    return list(timeline.occupied_engines(index))[number][2]


@given(programs())
def test_deterministic(program: Program) -> None:
    assert simulate_time(program, DEVICE) == simulate_time(program, DEVICE)


@settings(max_examples=60)
@given(programs(channels=1), st.sampled_from(["ddr_bandwidth", "global_bandwidth", "local_bandwidth"]))
def test_more_bandwidth_never_slows_transfers_that_run_one_at_a_time(program: Program, which: str) -> None:
    faster = dataclasses.replace(DEVICE, **{which: 2 * getattr(DEVICE, which)})
    assert simulate_time(program, faster).cycles <= simulate_time(program, DEVICE).cycles * (1 + 1e-9)


def test_more_bandwidth_can_slow_concurrent_transfers() -> None:
    # The anomaly: with a quarter more of DDR's bandwidth the first transfer ends earlier, and the seven that wait
    # for it share DDR with the critical one, which had it alone before.
    builder = places()
    builder.add(compute(0, Work(Unit.VECTOR, 16 * 200)))
    first = builder.move(cluster_dma(0), builder.region("x"), builder.region("g0"))
    critical = builder.move(cluster_dma(1), builder.region("x", 0, 800), builder.region("g1", 0, 800), waits=[0])
    for channel in range(1, 8):
        builder.move(cluster_dma(0, channel), builder.region("x"), builder.region("l00"), waits=[first])
    builder.add(compute(0, Work(Unit.MME, products=(Product(4, 8, 5000),)), waits=(critical,)))
    slow = run(builder, dataclasses.replace(DEVICE, ddr_bandwidth=8e9)).cycles
    fast = run(builder, dataclasses.replace(DEVICE, ddr_bandwidth=10e9)).cycles
    assert fast > slow
