from __future__ import annotations

import json

import pytest

from eqfuse.lowering.dsa.bundle.files import dump_json, dump_text, load_json
from eqfuse.lowering.dsa.program.instructions import (
    DDR,
    Barrier,
    Compute,
    Engine,
    Level,
    Memory,
    Operand,
    Program,
    ProgramError,
    Region,
    Transfer,
    Unit,
    global_buffer,
    local_buffer,
)

from ..accelerator_programs import Builder, cluster_dma, layer_program, unit


def test_json_reads_back() -> None:
    program = layer_program()
    assert load_json(dump_json(program)) == program


def test_json_of_strides_and_barriers_reads_back() -> None:
    builder = Builder()
    builder.buffer("x", DDR, 0, (4, 8))
    builder.buffer("y", global_buffer(1), 64, (4, 2))
    builder.add(Transfer(cluster_dma(1, 3), Region("x", DDR, 8, 8, 4, 32), (builder.region("y"),), waits=()))
    builder.add(Barrier((cluster_dma(1, 3), unit(0, 1, Unit.VME)), (0,), "end of the layer"))
    program = builder.program(3)
    assert load_json(dump_json(program)) == program


def test_json_of_an_engine_of_the_cluster_reads_back() -> None:
    program = Program("p", "d", 1, (), (Compute(0, None, "k", (), (), ()),))
    assert load_json(dump_json(program)) == program


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("buffers", 0, "size"), "many", "program.buffers[0].size: Expected `int`, got `str`"),
        (("buffers", 0, "size"), 1.0, "program.buffers[0].size: Expected `int`, got `float`"),
        (("buffers", 0, "memory"), "L2[0]", "program.buffers[0].memory: 'L2[0]' is no memory"),
        (("buffers", 0, "memory"), 3, "program.buffers[0].memory: 3 is no memory"),
        (("buffers", 0, "role"), "spare", "program.buffers[0].role: Invalid enum value 'spare'"),
        (("instructions", 0, "op"), "jump", "program.instructions[0].op: Invalid value 'jump'"),
        (("instructions", 0, "engine"), "0.gpu", "program.instructions[0].engine: '0.gpu' is no engine"),
        (("instructions", 0, "colour"), 1, "program.instructions[0]: Object contains unknown field `colour`"),
        (("instructions", 0), [], "program.instructions[0]: Expected `object`, got `array`"),
    ],
)
def test_json_that_is_no_program_names_the_field(path: tuple[str | int, ...], value: object, message: str) -> None:
    document = json.loads(dump_json(layer_program()))
    place = document["program"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ProgramError) as error:
        load_json(json.dumps(document))
    assert message in str(error.value)


def test_json_without_a_field_names_it() -> None:
    document = json.loads(dump_json(layer_program()))
    del document["program"]["buffers"][2]["address"]
    with pytest.raises(ProgramError, match=r"program\.buffers\[2\]: .* missing .* `address`"):
        load_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "eqfuse-dsa-program", "version": 99}'])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ProgramError, match="a program file"):
        load_json(text)


def test_text_shows_places_bytes_and_waits() -> None:
    text = dump_text(layer_program())
    assert "x: DDR:0x0..0x200 512 bytes, float32[16,8], input" in text
    assert (
        "2 0.dma1: hoist w00@LB[0.0]:0x0..0x180, w01@LB[0.1]:0x0..0x180 <- w0@GB[0]:0x400..0x580 (384 bytes)"
        " after 0  ; hoist w" in text
    )
    assert "relu y00@LB[0.0]:0x400..0x4c0 float32[4,12] <- p00@LB[0.0]:0x400..0x4c0 float32[4,12] in place" in text


def test_text_has_a_line_for_each_buffer_and_instruction() -> None:
    program = layer_program()
    assert dump_text(program).count("\n") == 4 + len(program.buffers) + len(program.instructions)


def test_equal_parts_of_the_machine_are_one_object() -> None:
    assert Memory(Level.DDR) is Memory(Level.DDR, 0, 0)
    assert Memory(Level.LB, 0, 1) is not Memory(Level.LB, 1, 0)
    assert Engine(0, None, Unit.DMA) is Engine(0, None, Unit.DMA, 0)


@pytest.mark.parametrize(
    ("shape", "planes", "rows", "leading"),
    [
        ((4, 6), 1, 1, (0, 0)),
        ((4, 6), 1, 4, (0, 1)),
        ((2, 3, 6), 1, 6, (0, 2)),
        ((4, 6), 1, 24, (0, 2)),
        ((4, 6), 1, 8, None),
        ((2, 3, 6), 2, 3, (1, 2)),
        ((2, 3, 6), 3, 2, None),
    ],
)
def test_leading_extents_of_strided_operands(
    shape: tuple[int, ...], planes: int, rows: int, leading: tuple[int, int] | None
) -> None:
    region = Region("x", local_buffer(0, 0), 0, 96 // (planes * rows), rows, 128, planes, 1024)
    assert Operand(region, "float32", shape).leading == leading
