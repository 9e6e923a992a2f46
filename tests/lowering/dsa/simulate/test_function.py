"""Programs on real bytes; a wrong allocation or a missing wait gives wrong numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from msgspec.structs import replace

from eqfuse.lowering.dsa.program.instructions import (
    DDR,
    Compute,
    Operand,
    Program,
    ProgramError,
    Region,
    Role,
    Unit,
    Work,
    local_buffer,
)
from eqfuse.lowering.dsa.program.validate import problems
from eqfuse.lowering.dsa.simulate.function import simulate_function
from eqfuse.lowering.dsa.simulate.timing import simulate_time

from ....properties import examples
from ..accelerator_programs import (
    DEVICE,
    KERNELS,
    Builder,
    changed,
    cluster_dma,
    contents,
    core_dma,
    expected,
    layer_program,
    moved_to,
)
from ..program.test_validate import shufflings


def run(program: Program) -> np.ndarray:
    return simulate_function(program, KERNELS, contents())["y"]


def replay(program: Program) -> np.ndarray:
    return simulate_function(program, KERNELS, contents(), simulate_time(program, DEVICE))["y"]


def test_the_layer_is_computed() -> None:
    np.testing.assert_allclose(run(layer_program()), expected(), rtol=1e-5)


def test_the_layer_is_computed_in_the_order_of_its_timeline() -> None:
    np.testing.assert_array_equal(replay(layer_program()), run(layer_program()))


@pytest.mark.parametrize(("name", "address"), [("x11", 256), ("x0", 1152), ("y1", 128)])
def test_a_wrong_allocation_gives_wrong_numbers(name: str, address: int) -> None:
    program = moved_to(layer_program(), name, address)
    assert not np.allclose(run(program), expected())
    assert list(problems(program, DEVICE))


@pytest.mark.parametrize(("name", "address"), [("x11", 768), ("x0", 512), ("y1", 4096)])
def test_another_right_allocation_gives_the_same_numbers(name: str, address: int) -> None:
    program = moved_to(layer_program(), name, address)
    assert list(problems(program, DEVICE)) == []
    np.testing.assert_array_equal(run(program), run(layer_program()))


def test_a_missing_wait_gives_wrong_numbers() -> None:
    program = layer_program()
    index, matmul = next((i, each) for i, each in enumerate(program.instructions) if isinstance(each, Compute))
    early = changed(program, index, replace(matmul, waits=()))
    assert np.isnan(replay(early)).any()


def test_what_was_never_written_is_no_number() -> None:
    program = layer_program()
    assert np.isnan(run(replace(program, instructions=()))).all()


def test_strided_transfers_transpose_blocks() -> None:
    builder = Builder()
    builder.buffer("x", DDR, 0, (4, 8), Role.INPUT)
    builder.buffer("y", DDR, 512, (8, 4), Role.OUTPUT)
    for column in range(8):
        builder.move(cluster_dma(0), Region("x", DDR, 4 * column, 4, 4, 32), builder.region("y", 16 * column, 16))
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_array_equal(simulate_function(builder.program(), {}, {"x": x})["y"], x.T)


def test_kernels_see_strided_operands() -> None:
    builder = Builder()
    place = local_buffer(0, 0)
    builder.buffer("x", DDR, 0, (2, 3, 4), Role.INPUT)
    builder.buffer("l", place, 0, (2, 3, 4))
    builder.buffer("s", place, 128, (2, 3, 2))
    builder.buffer("y", DDR, 512, (2, 3, 2), Role.OUTPUT)
    builder.move(core_dma(0, 0), builder.region("x"), builder.region("l"))
    half = Operand(Region("l", place, 8, 8, 6, 16), "float32", (2, 3, 2))
    work = (Work(Unit.VECTOR, 12),)
    builder.add(Compute(0, 0, "double", (half,), (builder.operand("s"),), work, waits=(0,)))
    builder.move(core_dma(0, 0), builder.region("s"), builder.region("y"), waits=[1])
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def double(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        outputs[0][...] = 2 * inputs[0]

    np.testing.assert_array_equal(
        simulate_function(builder.program(), {"double": double}, {"x": x})["y"], 2 * x[..., 2:]
    )


@examples(60)
@given(shufflings())
def test_what_validates_does_not_depend_on_time(program: Program) -> None:
    if list(problems(program, DEVICE)):
        return
    outputs = tuple(replace(each, role=Role.OUTPUT) if each.name != "x" else each for each in program.buffers)
    program = replace(program, buffers=outputs)
    given = {"x": np.arange(8, dtype=np.float32)}
    in_order = simulate_function(program, {}, given)
    in_time = simulate_function(program, {}, given, simulate_time(program, DEVICE))
    assert all(in_order[name].tobytes() == in_time[name].tobytes() for name in in_order)


def test_a_missing_kernel_is_named() -> None:
    with pytest.raises(ProgramError, match=r"#4 compute 'matmul' on 0\.0\.mme: no kernel 'matmul'"):
        simulate_function(layer_program(), {}, contents())


def test_a_missing_content_is_named() -> None:
    with pytest.raises(ProgramError, match="constant 'w': no content given"):
        simulate_function(layer_program(), KERNELS, {"x": contents()["x"]})


@pytest.mark.parametrize("wrong", [np.zeros((16, 8)), np.zeros((8, 16), np.float32)])
def test_content_of_another_type_or_shape_is_named(wrong: np.ndarray) -> None:
    with pytest.raises(ProgramError, match=r"input 'x': needs float32\[16, 8\], not"):
        simulate_function(layer_program(), KERNELS, contents() | {"x": wrong})
