"""Lookups in a table: checked, on real bytes, in time, and written down."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from eqfuse.lowering.dsa.bundle.files import dump_json, dump_text, load_json
from eqfuse.lowering.dsa.program.cost import Cost
from eqfuse.lowering.dsa.program.instructions import (
    DDR,
    Buffer,
    IndexedTransfer,
    Instruction,
    Level,
    Operand,
    ProgramError,
    Role,
    Unit,
    global_buffer,
    local_buffer,
)
from eqfuse.lowering.dsa.program.validate import problems, validate
from eqfuse.lowering.dsa.report.trace import trace_events
from eqfuse.lowering.dsa.simulate.function import simulate_function
from eqfuse.lowering.dsa.simulate.time_report import compulsory_bytes, report
from eqfuse.lowering.dsa.simulate.timing import simulate_time

from .accelerator_programs import DEVICE, Builder, changed, core_dma, unit
from .program.test_validate import one_problem

GB = global_buffer(0)
LB = local_buffer(0, 0)


def lookup(dtype: str = "int64") -> Builder:
    """Three rows of a table of six, by indices in the GB."""
    builder = Builder()
    builder.buffer("t", DDR, 0, (6, 4), Role.CONSTANT)
    builder.buffers["i"] = Buffer("i", GB, 0, 3 * np.dtype(dtype).itemsize, dtype, (3,), Role.INPUT)
    builder.buffer("e", LB, 0, (3, 4))
    builder.buffer("y", DDR, 512, (3, 4), Role.OUTPUT)
    indices = Operand(builder.region("i"), dtype, (3,))
    builder.add(IndexedTransfer(core_dma(0, 0), builder.region("t"), indices, 16, builder.region("e"), label="rows"))
    builder.move(core_dma(0, 0), builder.region("e"), builder.region("y"))
    return builder


def test_a_right_lookup_passes() -> None:
    validate(lookup().program(), DEVICE)


@pytest.mark.parametrize("name", ["t", "i"])
def test_a_lookup_reads_its_table_and_its_indices(name: str) -> None:
    builder = lookup()
    builder.buffers[name] = replace(builder.buffers[name], role=Role.INTERMEDIATE)
    message = f"#0 indexed transfer 'rows' on 0.0.dma0 reads '{name}' at"
    assert one_problem(builder.program()).startswith(message)


def test_a_lookup_writes_its_target() -> None:
    program = lookup().program()
    assert "reads 'e' at LB[0.0]:0x0..0x30 before" in one_problem(
        replace(program, instructions=program.instructions[1:])
    )


LOOKUP = lookup().program().instructions[0]
assert isinstance(LOOKUP, IndexedTransfer)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (replace(LOOKUP, row_bytes=20), "t@DDR:0x0..0x60 is no table of contiguous rows of 20 bytes"),
        (replace(LOOKUP, row_bytes=8), "3 rows of 8 bytes to 48 bytes of e@LB[0.0]:0x0..0x30"),
        (replace(LOOKUP, indices=replace(LOOKUP.indices, dtype="float64")), "they must be int32 or int64, in LB or GB"),
        (replace(LOOKUP, engine=core_dma(1, 0)), "channel 1.0.dma0 does not reach GB[0]"),
        (replace(LOOKUP, engine=unit(0, 0, Unit.MME)), "a transfer needs a DMA channel, not 0.0.mme"),
    ],
)
def test_lookups_that_cannot_run(instruction: Instruction, message: str) -> None:
    program = lookup().program()
    assert any(message in each for each in problems(changed(program, 0, instruction), DEVICE))


TABLE = np.arange(24, dtype=np.float32).reshape(6, 4)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("in_time", [False, True])
def test_a_lookup_copies_the_rows_of_its_indices(dtype: str, in_time: bool) -> None:
    program, indices = lookup(dtype).program(), np.array([5, -6, 2], dtype)
    timeline = simulate_time(program, DEVICE) if in_time else None
    found = simulate_function(program, {}, {"t": TABLE, "i": indices}, timeline)["y"]
    np.testing.assert_array_equal(found, TABLE[[5, 0, 2]])


@pytest.mark.parametrize("wrong", [6, -7])
def test_an_index_out_of_range_is_named(wrong: int) -> None:
    message = rf"#0 indexed transfer 'rows' on 0\.0\.dma0: index {wrong} is out of range for the 6 rows of t@DDR"
    with pytest.raises(ProgramError, match=message):
        simulate_function(lookup().program(), {}, {"t": TABLE, "i": np.array([0, wrong, 1])})


def test_a_lookup_takes_its_rows_and_its_indices() -> None:
    # Three rows of one beat, and 24 bytes of indices in two, over DDR's link.
    assert simulate_time(lookup().program(), DEVICE).ends[0] == 100 + 3 + 2


def test_a_row_of_a_table_takes_the_beats_of_the_worst() -> None:
    builder = lookup()
    gather = builder.instructions[0]
    assert isinstance(gather, IndexedTransfer)
    # Rows of 24 bytes begin at multiples of 8: any touches two beats.
    table, target = replace(gather.table, row_bytes=96), replace(gather.target, row_bytes=72)
    assert Cost(DEVICE).wire_bytes(replace(gather, row_bytes=24, table=table, target=target)) == 3 * 2 * 16 + 32
    # Rows of 20 bytes begin at multiples of 4; one that begins 12 bytes into a beat still ends in the next.
    assert Cost(DEVICE).wire_bytes(replace(gather, row_bytes=20, table=replace(table, row_bytes=80))) == 3 * 2 * 16 + 32


def test_the_report_of_a_lookup() -> None:
    figures = report(simulate_time(lookup().program(), DEVICE))
    assert figures.as_json()["traffic"]["DDR->LB"] == 3 * 16
    assert {each.level: (each.read, each.written) for each in figures.levels} == {
        Level.DDR: (48, 48),
        Level.GB: (24, 0),
        Level.LB: (48, 48),
    }
    # Three rows of the table and the output.
    assert figures.bound.traffic == (48 + 48) / 16


def test_lookups_need_no_more_than_the_table() -> None:
    builder = lookup()
    builder.instructions = [builder.instructions[0]] * 3
    assert compulsory_bytes(builder.program()) == 96


def test_json_of_a_lookup_reads_back() -> None:
    program = lookup().program()
    assert load_json(dump_json(program)) == program


def test_text_of_a_lookup() -> None:
    gather = "0.0.dma0: gather e@LB[0.0]:0x0..0x30 <- t@DDR:0x0..0x60 by i@GB[0]:0x0..0x18 int64[3]"
    assert f"{gather} (3 rows of 16 bytes)  ; rows" in dump_text(lookup().program())


def test_a_lookup_says_what_it_moves() -> None:
    events = trace_events(simulate_time(lookup().program(), DEVICE))
    gather = next(each for each in events if each["ph"] == "X" and each["args"]["instruction"] == 0)
    assert (gather["cat"], gather["args"]["bytes"], gather["args"]["rows"]) == ("gather", 48, 3)
