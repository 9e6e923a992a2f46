"""Operators that move elements do what ONNX says, for elements of any type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqfuse.ir.operators import OPERATORS, RESHAPES, Operand, Unsupported, evaluate

from ..onnx_cases import SPECIAL, Case
from .onnx_answers import assert_as_onnx, random_array

DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint8", "bool")


def whole_shape(case: Case) -> Case:
    """An Expand whose shape is that of its result, as in the e-graph."""
    return replace(case, literals={"shape": np.broadcast_shapes(case.shapes[0], case.literals["shape"])})


CASES = {
    **{head: SPECIAL[head] for head in (
        "Reshape", "Flatten", "Unsqueeze", "Transpose", "Tile", "Gather", "Concat", "Split", "DepthToSpace",
        "SpaceToDepth",
    )},
    "Squeeze": SPECIAL["Squeeze"].filter(lambda case: bool(case.literals["axes"])),
    "Expand": SPECIAL["Expand"].map(whole_shape),
}  # fmt: skip
"""ONNX takes a Squeeze of no axes for one of all; the constructor's drops none."""

quick = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
MOVED_FLOATS_ONLY = {"DepthToSpace", "SpaceToDepth"}


def arguments(case: Case, dtype: str) -> list[Any]:
    """The operands and attributes of a case in the order of its constructor."""
    operands = iter(
        None if s is None else np.zeros(s, case.dtype(i)) if case.dtype(i) == "int64" else random_array(s, dtype, i)
        for i, s in enumerate(case.shapes)
    )
    signature = OPERATORS[case.op].arguments
    return [next(operands) if isinstance(a, Operand) else case.literals[a.name] for a in signature]


@pytest.mark.parametrize("head", sorted(RESHAPES))
def test_a_view_keeps_the_order_of_elements(head: str) -> None:
    @quick
    @given(SPECIAL[head])
    def check(case: Case) -> None:
        data, *others = arguments(case, "float32")
        np.testing.assert_array_equal(np.ravel(evaluate(head, [data, *others])), np.ravel(data))

    check()


@pytest.mark.representatives(6)
@pytest.mark.parametrize("head", CASES)
def test_moves_elements(head: str) -> None:
    @quick
    @given(CASES[head], st.sampled_from(DTYPES))
    def check(case: Case, dtype: str) -> None:
        assert_as_onnx(head, *arguments(case, "float32" if head in MOVED_FLOATS_ONLY else dtype))

    check()


@pytest.mark.parametrize(
    ("head", "attributes"),
    [
        ("Flatten", (1,)),
        ("Unsqueeze", ((0, 2),)),
        ("Transpose", ((1, 0),)),
        ("Expand", ((2, 0, 3),)),
        ("Tile", ((2, 1),)),
        ("Slice", ((0,), (2,), (1,), (1,))),
        ("Split", ((1, 2), 1)),
        ("Split", ((0, 3), 1)),
    ],
    ids=str,
)
def test_tensors_without_elements(head: str, attributes: tuple[Any, ...]) -> None:
    assert_as_onnx(head, np.zeros((0, 3), np.float32), *attributes)


@st.composite
def slices(draw: Any) -> tuple[Any, ...]:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    axes = sorted(draw(st.sets(st.integers(0, len(shape) - 1))))
    bound, step = st.integers(-7, 7), st.sampled_from((1, 2, 3, -1, -2))
    return (
        tuple(shape),
        *(tuple(draw(s) for _ in axes) for s in (bound, bound)),
        tuple(axes),
        tuple(draw(step) for _ in axes),
    )


@settings(quick, max_examples=150)
@given(slices())
def test_slices_in_either_direction(case: tuple[Any, ...]) -> None:
    shape, starts, ends, axes, steps = case
    if axes:
        assert_as_onnx("Slice", random_array(shape), starts, ends, axes, steps)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("indices", [np.int64(-1), [0, -3, 2], [[1], [0]], np.zeros((0, 2), np.int64)], ids=str)
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_gather(axis: int, indices: Any, kind: str) -> None:
    assert_as_onnx("Gather", random_array((3, 4)), np.asarray(indices, kind), axis)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    assert_as_onnx("DepthToSpace", random_array((2, 12, 2, 3)), 2, mode)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("value", [None, 1])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 2, 3), (-1, 2, 0, -1), (-1, -2, -1, -2)], ids=str)
def test_padding_by_a_constant(dtype: str, value: int | None, pads: tuple[int, ...]) -> None:
    fill = None if value is None else np.array(value, dtype)
    assert_as_onnx("Pad", random_array((3, 5), dtype), pads, fill, "constant")


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 2, 2, 3), (0, 3, 2, 0)], ids=str)
def test_padding_by_the_tensor_itself(mode: str, pads: tuple[int, ...]) -> None:
    assert_as_onnx("Pad", random_array((3, 5)), pads, None, mode)


def test_squeezing_no_axis_drops_none() -> None:
    assert np.shape(evaluate("Squeeze", (np.ones((1, 2)), ()))) == (1, 2)


def test_padding_of_a_scalar_of_symbols() -> None:
    """The element itself comes back, not an array that holds it."""
    scalar = np.array("a symbol", dtype=object)
    assert evaluate("Pad", (scalar, (), scalar, "constant")).item() == "a symbol"  # type: ignore[union-attr]


def test_padding_of_nothing() -> None:
    assert_as_onnx("Pad", np.zeros((0, 2), np.float32), (1, 0, 0, 1), None, "constant")


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        ("Reshape", (X, (4,))),
        ("Reshape", (X, (-2, -3))),
        ("Flatten", (X, 3)),
        ("Squeeze", (X, (0,))),
        ("Squeeze", (X, (2,))),
        ("Unsqueeze", (X, (4,))),
        ("Unsqueeze", (X, (0, 0))),
        ("Transpose", (X, (0,))),
        ("Transpose", (X, (0, 0))),
        ("Expand", (X, (2, 4))),
        ("Expand", (X, (3,))),
        ("Tile", (X, (2,))),
        ("Tile", (X, (2, -1))),
        ("Slice", (X, (0,), (1,), (2,), (1,))),
        ("Slice", (X, (0,), (1,), (0,), (0,))),
        ("Slice", (X, (0, 0), (1,), (0,), (1,))),
        ("Gather", (X, np.array([2]), 0)),
        ("Gather", (X, np.array([0.0]), 0)),
        ("Gather", (X, np.array([0]), 2)),
        ("Pad", (X, (1, 1), None, "constant")),
        ("Pad", (X, (-3, 0, 0, 0), None, "constant")),
        ("Pad", (X, (0, 3, 0, 0), None, "reflect")),
        ("Pad", (X, (0, 1, 0, 0), None, "diagonal")),
        ("Pad", (X, (0, 1, 0, 0), np.ones(2, np.float32), "constant")),
        ("Pad", (X, (0, 1, 0, 0), np.ones((), np.float64), "constant")),
        ("DepthToSpace", (np.ones((1, 6, 1, 1)), 2, "DCR")),
        ("SpaceToDepth", (np.ones((1, 1, 3, 2)), 2)),
        ("SpaceToDepth", (X, 1)),
        ("Concat", (X, X[0], 0)),
        ("Concat", (X, X[:, :2], 0)),
        ("Concat", (X, X, 2)),
        ("Concat", (X, X.astype(np.float64), 0)),
        ("Split", (X, (1, 1), 1)),
        ("Split", (X, (4, -1), 1)),
        ("Split", (X, (1, 1), 2)),
    ],
    ids=str,
)
def test_what_does_not_fit_is_unsupported(head: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Unsupported):
        evaluate(head, arguments)
