"""A wrong program is refused, and the message has instruction, level and addresses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from eqfuse.costmodels.dsa_device import DsaDevice
from eqfuse.costmodels.systolic import Product
from eqfuse.lowering.dsa.program.instructions import (
    DDR,
    Barrier,
    Buffer,
    Compute,
    Engine,
    Instruction,
    Program,
    ProgramError,
    Region,
    Role,
    Transfer,
    Unit,
    Work,
    global_buffer,
    local_buffer,
)
from eqfuse.lowering.dsa.program.validate import overlap, problems, validate

from ....properties import examples
from ..accelerator_programs import (
    CLUSTER_DEVICE,
    DEVICE,
    Builder,
    changed,
    cluster_dma,
    core_dma,
    layer_program,
    moved_to,
    unit,
)

GB = global_buffer(0)
LB = local_buffer(0, 0)


def one_problem(program: Program, device: DsaDevice = DEVICE) -> str:
    with pytest.raises(ProgramError) as error:
        validate(program, device)
    return str(error.value)


def chain() -> Builder:
    """An input from DDR to GB to LB, by three channels; the last goes back to DDR."""
    builder = Builder()
    builder.buffer("x", DDR, 0, (16,), Role.INPUT)
    builder.buffer("g", GB, 0, (16,))
    builder.buffer("l", LB, 0, (16,))
    builder.buffer("y", DDR, 64, (16,), Role.OUTPUT)
    builder.move(cluster_dma(0), builder.region("x"), builder.region("g"))
    builder.move(core_dma(0, 0), builder.region("g"), builder.region("l"), waits=[0])
    builder.move(core_dma(0, 0), builder.region("l"), builder.region("y"))
    return builder


def test_a_right_program_passes() -> None:
    validate(layer_program(), DEVICE)


@pytest.mark.parametrize(
    ("index", "wait"),
    [(i, wait) for i, each in enumerate(layer_program().instructions) for wait in each.waits],
)
def test_every_wait_of_the_layers_is_needed(index: int, wait: int) -> None:
    program = layer_program()
    instruction = program.instructions[index]
    waits = tuple(each for each in instruction.waits if each != wait)
    assert f"#{wait} " in one_problem(changed(program, index, replace(instruction, waits=waits)))


def test_read_before_write() -> None:
    builder = chain()
    builder.instructions[0] = Transfer(cluster_dma(0), builder.region("x", 0, 32), (builder.region("g", 0, 32),))
    message = "#1 transfer 'dma g' on 0.0.dma0 reads 'g' at GB[0]:0x20..0x40 before anything is written there"
    assert one_problem(builder.program()) == message


def test_a_missing_wait_names_both_instructions() -> None:
    builder = chain()
    builder.instructions[1] = replace(builder.instructions[1], waits=())
    message = one_problem(builder.program())
    assert message.startswith("#1 transfer 'dma g' on 0.0.dma0 reads 'g' at GB[0]:0x0..0x40, which #0 transfer 'dma x'")
    assert message.endswith("not ordered by a wait or barrier")


def test_a_barrier_orders_like_a_wait() -> None:
    builder = chain()
    builder.instructions[1] = replace(builder.instructions[1], waits=())
    builder.instructions.insert(1, Barrier((cluster_dma(0), core_dma(0, 0))))
    validate(builder.program(), DEVICE)


def test_a_barrier_of_other_engines_orders_nothing() -> None:
    builder = chain()
    builder.instructions[1] = replace(builder.instructions[1], waits=())
    builder.instructions.insert(1, Barrier((cluster_dma(0), core_dma(0, 1))))
    assert "not ordered" in one_problem(builder.program())


def test_live_buffers_that_overlap() -> None:
    builder = chain()
    builder.buffer("other", LB, 32, (16,))
    overwriting = Transfer(core_dma(0, 0), builder.region("g"), (builder.region("other"),))
    builder.instructions.insert(2, overwriting)
    message = one_problem(builder.program())
    assert message.startswith(
        "#3 transfer 'dma l' on 0.0.dma0 reads 'l' at LB[0.0]:0x20..0x40, overwritten as 'other' by #2"
    )
    assert message.endswith("two live buffers overlap")


def test_a_dead_buffer_may_be_overwritten() -> None:
    builder = chain()
    builder.buffer("other", LB, 32, (16,))
    builder.move(core_dma(0, 0), builder.region("g"), builder.region("other"))
    validate(builder.program(), DEVICE)


def test_no_write_to_what_another_engine_may_still_read() -> None:
    builder = chain()
    builder.move(core_dma(0, 1), builder.region("x"), builder.region("l"), waits=[1])
    assert "writes l@LB[0.0]:0x0..0x40, which #2 transfer 'dma l' on 0.0.dma0 reads" in one_problem(builder.program())


def test_two_writes_need_an_order() -> None:
    builder = Builder()
    builder.buffer("x", DDR, 0, (16,), Role.INPUT)
    builder.buffer("g", GB, 0, (16,))
    builder.move(cluster_dma(0), builder.region("x"), builder.region("g"))
    builder.move(cluster_dma(0, 1), builder.region("x"), builder.region("g"))
    assert "writes 'g' at GB[0]:0x0..0x40, which #0 transfer" in one_problem(builder.program())


def test_an_output_must_be_written() -> None:
    builder = chain()
    builder.instructions.pop()
    assert one_problem(builder.program()) == "output 'y' at DDR:0x40..0x80 is never written"


def test_an_output_must_survive() -> None:
    builder = chain()
    builder.buffer("spill", DDR, 96, (16,))
    builder.move(core_dma(0, 0), builder.region("l"), builder.region("spill"))
    message = "output 'y' at DDR:0x60..0x80 is overwritten as 'spill' by #3 transfer 'dma l' on 0.0.dma0"
    assert one_problem(builder.program()) == message


def test_inputs_and_constants_are_apart() -> None:
    builder = chain()
    builder.buffer("w", DDR, 48, (16,), Role.CONSTANT)
    message = "constant 'w' at DDR:0x30..0x40 overlaps 'x', which is there from the start too"
    assert one_problem(builder.program()) == message


def test_strided_rows_between_rows_do_not_overlap() -> None:
    builder = Builder()
    builder.buffer("x", DDR, 0, (8, 4), Role.INPUT)
    builder.buffer("y", DDR, 256, (8, 8), Role.OUTPUT)
    for place in range(2):
        target = Region("y", DDR, 256 + 16 * place, 16, 8, 32)
        builder.move(cluster_dma(place), builder.region("x"), target)
    builder.instructions = [replace(each, engine=cluster_dma(i)) for i, each in enumerate(builder.instructions)]
    validate(builder.program(), DEVICE)


def test_strided_rows_that_overlap_need_an_order() -> None:
    builder = Builder()
    builder.buffer("x", DDR, 0, (8, 4), Role.INPUT)
    builder.buffer("y", DDR, 256, (8, 8))
    for place in range(2):
        builder.move(cluster_dma(place), builder.region("x"), Region("y", DDR, 256 + 12 * place, 16, 8, 32))
    assert "writes 'y' at DDR:0x10c..0x110, which #0" in one_problem(builder.program())


def with_buffer(buffer: Buffer) -> Program:
    return Program("p", "small", 1, (buffer,), ())


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (Buffer("b", LB, 4064, 64, "uint8", (64,)), "64 bytes do not fit in the 4096 bytes of LB[0.0]"),
        (Buffer("b", GB, 16384, 16, "uint8", (16,)), "16 bytes do not fit in the 16384 bytes of GB[0]"),
        (Buffer("b", GB, 8, 16, "uint8", (16,)), "the address is not a multiple of 16"),
        (Buffer("b", global_buffer(2), 0, 16, "uint8", (16,)), "small has no GB[2]"),
        (Buffer("b", local_buffer(0, 2), 0, 16, "uint8", (16,)), "small has no LB[0.2]"),
        (Buffer("b", GB, 0, 16, "float16", (16,)), "its value needs 32 bytes"),
        (Buffer("b", GB, 0, 16, "float17", (8,)), "no tensor of type 'float17'"),
    ],
)
def test_buffers_that_do_not_fit(buffer: Buffer, message: str) -> None:
    found = one_problem(with_buffer(buffer))
    assert f"buffer 'b' at {buffer.memory}:{buffer.address:#x}" in found
    assert message in found


def test_two_buffers_of_one_name() -> None:
    buffer = Buffer("b", GB, 0, 16, "uint8", (16,))
    assert "same name" in one_problem(Program("p", "small", 1, (buffer, buffer), ()))


def single(instruction: Instruction) -> Program:
    return replace(chain().program(), instructions=(instruction,))


G, X, L = chain().region("g"), chain().region("x"), chain().region("l")


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Transfer(cluster_dma(0), X, (replace(G, row_bytes=32),)), "64 bytes of x@DDR:0x0..0x40 to 32 bytes"),
        (Transfer(cluster_dma(0), X, ()), "no target"),
        (Transfer(unit(0, 0, Unit.MME), X, (G,)), "a transfer needs a DMA channel, not 0.0.mme"),
        (Transfer(cluster_dma(1), X, (G,)), "channel 1.dma0 does not reach GB[0]"),
        (Transfer(cluster_dma(2), X, (X,)), "small has no engine 2.dma0"),
        (Transfer(cluster_dma(0, 8), X, (G,)), "small has no engine 0.dma8: a cluster has 8 DMA channels"),
        (Transfer(Engine(0, 1, Unit.DMA, 4), X, (G,)), "small has no engine 0.1.dma4: a core has 4 DMA channels"),
        (Transfer(cluster_dma(0), replace(X, buffer="z"), (G,)), "z@DDR:0x0..0x40: no buffer of this name"),
        (Transfer(cluster_dma(0), X, (replace(G, address=16),)), "outside of its buffer, 0x0..0x40"),
        (Transfer(cluster_dma(0), X, (replace(G, memory=LB),)), "the buffer is in GB[0]"),
        (Transfer(cluster_dma(0), X, (replace(G, row_bytes=32, rows=2, stride=16),)), "rows are empty or overlap"),
        (Transfer(cluster_dma(0), X, (replace(G, row_bytes=32, planes=2, plane_stride=16),)), "no planes, or they"),
        (Transfer(cluster_dma(0), X, (G, G)), "which overlap"),
        (Transfer(cluster_dma(0), X, (X,)), "while it reads"),
        (Compute(0, 0, "k", (), (), ()), "needs at least one engine"),
        (Compute(0, 0, "k", (), (), (Work(Unit.MME, 5),)), "work of mme needs products"),
        (Compute(0, 0, "k", (), (), (Work(Unit.VME, 5, (Product(1, 1, 1),)),)), "work of vme needs operations"),
        (Compute(0, 2, "k", (), (), (Work(Unit.VME, 5),)), "small has no engine 0.2.vme"),
        (Compute(0, 0, "k", (chain().operand("g"),), (), (Work(Unit.VME, 5),)), "is not in LB[0.0]"),
        (Barrier(()), "needs at least one engine"),
        (Transfer(cluster_dma(0), X, (G,), waits=(0,)), "waits for #0, which does not come before it"),
    ],
)
def test_instructions_that_cannot_run(instruction: Instruction, message: str) -> None:
    assert any(message in each for each in problems(single(instruction), DEVICE))


@pytest.mark.parametrize(
    ("dtype", "shape", "message"),
    [
        ("float32", (4,), "has 64 bytes, float32[4] 16"),
        ("float65", (4,), "no type 'float65'"),
    ],
)
def test_operands_that_are_no_tensor(dtype: str, shape: tuple[int, ...], message: str) -> None:
    operand = replace(chain().operand("l"), dtype=dtype, shape=shape)
    instruction = Compute(0, 0, "k", (operand,), (), (Work(Unit.VME, 5),))
    assert any(message in each for each in problems(single(instruction), DEVICE))


def test_a_unit_of_the_cluster_works_in_the_global_buffer() -> None:
    builder = chain()
    work = (Work(Unit.MME, products=(Product(4, 4, 1),)),)
    builder.add(Compute(0, None, "k", (builder.operand("g"),), (), work, waits=(0,)))
    validate(builder.program(), CLUSTER_DEVICE)


def test_an_engine_that_the_device_lacks() -> None:
    message = one_problem(single(Compute(0, 0, "k", (), (), (Work(Unit.VME, 5),))), CLUSTER_DEVICE)
    assert "engine of the cluster has no engine 0.0.vme" in message


def test_in_place_only_where_it_says_so() -> None:
    program = layer_program()
    index, relu = next((i, each) for i, each in enumerate(program.instructions) if each.label == "relu")
    assert isinstance(relu, Compute)
    assert "while it reads" in one_problem(changed(program, index, replace(relu, in_place=False)))


def test_in_place_only_at_the_same_addresses() -> None:
    assert "while it reads" in one_problem(moved_to(layer_program(), "y00", 1040))


@st.composite
def strided_regions(draw: st.DrawFn) -> Region:
    """Planes of rows with gaps between them."""
    address, row, rows = draw(st.integers(0, 30)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    region = Region("b", GB, address, row, rows, row + draw(st.integers(0, 5)))
    return replace(region, planes=draw(st.integers(1, 3)), plane_stride=region.span + draw(st.integers(0, 9)))


def bytes_of(region: Region) -> set[int]:
    return {start + place for start in region.starts.tolist() for place in range(region.row_bytes)}


@given(strided_regions(), strided_regions())
def test_overlap_is_a_common_byte(first: Region, second: Region) -> None:
    assert overlap(first, second) == bool(bytes_of(first) & bytes_of(second))


@st.composite
def shufflings(draw: st.DrawFn) -> Program:
    """Bytes that three channels copy between overlapping buffers of the GB, with some waits."""
    builder = Builder()
    builder.buffer("x", GB, 0, (8,), Role.INPUT)
    for name in "abc":
        builder.buffer(name, GB, 16 * draw(st.integers(1, 5)), (8,), draw(st.sampled_from([Role.INTERMEDIATE] * 3)))
    for index in range(draw(st.integers(1, 7))):
        source, target = draw(st.sampled_from("xabc")), draw(st.sampled_from("abc"))
        rows = draw(st.sampled_from([(32, 1, 0), (8, 2, 16), (16, 1, 0), (4, 2, 8, 2, 16)]))
        waits = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        regions = [_part(builder, name, rows) for name in (source, target)]
        if not bytes_of(regions[0]) & bytes_of(regions[1]):
            builder.move(cluster_dma(0, draw(st.integers(0, 2))), *regions, waits=sorted(waits))
            continue
        builder.add(Barrier((cluster_dma(0, 0), cluster_dma(0, 1))))
    return builder.program()


def _part(builder: Builder, name: str, rows: tuple[int, ...]) -> Region:
    return Region(name, GB, builder.buffers[name].address, *rows)


def right(program: Program) -> bool:
    """The rules by brute force: bytes one by one, orders by reachability."""
    count = len(program.instructions)
    after = np.zeros((count, count), bool)
    for index, each in enumerate(program.instructions):
        for earlier in range(index):
            if earlier in each.waits or set(program.instructions[earlier].engines) & set(each.engines):
                after[index] |= after[earlier]
                after[index, earlier] = True
    holds = dict.fromkeys(range(32), ("x", -1))
    readers: dict[int, set[int]] = {}
    for index, each in enumerate(program.instructions):
        for region in each.reads:
            for byte in bytes_of(region):
                buffer, writer = holds.get(byte, ("", -1))
                if buffer != region.buffer or (writer >= 0 and not after[index, writer]):
                    return False
                readers.setdefault(byte, set()).add(index)
        for region in each.writes:
            for byte in bytes_of(region):
                before = {holds[byte][1]} if byte in holds else set()
                if any(other >= 0 and not after[index, other] for other in before | readers.pop(byte, set())):
                    return False
                holds[byte] = region.buffer, index
    return True


@examples(100)
@given(shufflings())
def test_as_by_brute_force(program: Program) -> None:
    assert (not list(problems(program, DEVICE))) == right(program)
