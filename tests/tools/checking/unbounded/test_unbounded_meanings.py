"""The meanings of operators for tensors of unknown rank agree, on tensors of known shape, with numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.ir import operators as semantics
from eqfuse.tools.checking.unbounded.axes import axes_of
from eqfuse.tools.checking.unbounded.reading import MEANINGS
from eqfuse.tools.checking.unbounded.tensors import (
    Applied,
    Conditional,
    Count,
    Element,
    Parameter,
    Reduced,
    Side,
    Tensor,
    leaf,
)
from eqfuse.tools.checking.unbounded.vectors import assume_equal, unknown, vector_of
from eqfuse.tools.checking.unbounded.world import World

CASES: dict[str, tuple[str, list[tuple[int, ...]], list[Any]]] = {
    "Transpose": ("Transpose", [(2, 3, 4)], [(2, 0, 1)]),
    "Expand": ("Expand", [(3, 1)], [(2, 3, 2)]),
    "Squeeze": ("Squeeze", [(1, 3, 1, 2)], [(0, 2)]),
    "Unsqueeze": ("Unsqueeze", [(3, 2)], [(0, 2)]),
    "Slice": ("Slice", [(7, 3)], [(1, 1), (6, 9), (0, 1), (2, 1)]),
    "Slice downwards": ("Slice", [(5, 3)], [(4,), (0,), (0,), (-2,)]),
    "Slice of nothing": ("Slice", [(3,)], [(3,), (2,), (0,), (1,)]),
    "reversal": ("Slice", [(4,)], [(9,), (-9,), (0,), (-1,)]),
    "Concat": ("Concat", [(2, 3), (2, 2)], [1]),
    "Pad": ("Pad", [(2, 3)], [(1, 0, 2, 1), None, "constant"]),
    "Pad that cuts": ("Pad", [(4, 3)], [(-1, 1, -2, 0), None, "constant"]),
    "Tile": ("Tile", [(2, 3)], [(2, 2)]),
    "ReduceSum": ("ReduceSum", [(2, 3, 2)], [(0, 2), 0]),
    "ReduceMean": ("ReduceMean", [(2, 3, 2)], [(1,), 1]),
    "ReduceMax": ("ReduceMax", [(2, 3, 2)], [(1, 2), 0]),
    "MatMul": ("MatMul", [(2, 2, 3), (3, 2)], []),
    "MatMul of a row": ("MatMul", [(3,), (2, 3, 2)], []),
    "MatMul of a column": ("MatMul", [(2, 2, 3), (3,)], []),
    "Gemm": ("Gemm", [(3, 2), (2, 3)], [None, 1.0, 1.0, 1, 1]),
}


@pytest.mark.representatives(9)
@pytest.mark.parametrize("name", CASES)
def test_meaning_is_that_of_numpy(name: str) -> None:
    """Every element of one example."""
    head, shapes, attributes = CASES[name]
    arrays = [np.arange(1, 1 + int(np.prod(s)), dtype=np.float64).reshape(s) + 0.5 * i for i, s in enumerate(shapes)]
    compare(head, arrays, attributes)


@given(st.data())
def test_slice_of_any_bounds_is_that_of_numpy(data: st.DataObject) -> None:
    """Starts and ends inside and beyond, and steps of any size."""
    size = data.draw(st.integers(0, 4))
    start, end, step = (data.draw(st.integers(low, 5)) for low in (0, 0, 1))
    compare("Slice", [np.arange(float(size))], [(start,), (end,), (0,), (step,)])


@given(st.data())
def test_pad_of_any_widths_is_that_of_numpy(data: st.DataObject) -> None:
    """Negative widths cut."""
    before, after = (data.draw(st.integers(-1, 2)) for _ in range(2))
    compare("Pad", [np.arange(1.0, 4.0)], [(before, after), None, "constant"])


@pytest.mark.conformance
@pytest.mark.parametrize("listed", [[True, False], [False, True, False], [False, False], [True, False, True]], ids=str)
def test_lists_of_axes_are_counted_rightly(listed: list[bool]) -> None:
    """The facts assumed of an unknown list of axes hold for every list: no true statement contradicts them."""
    world = World()
    rank = len(listed)
    chosen = [a for a, one in enumerate(listed) if one]
    vector = unknown("axes", None, world)
    axes = axes_of(vector, z3.IntVal(rank), Side(world))
    assume_equal(vector, vector_of(chosen, world), world)
    others = [a for a in range(rank) if a not in chosen]
    for axis in range(rank):
        world.assume(axes.has(z3.IntVal(axis)) == z3.BoolVal(axis in chosen))
        world.assume(axes.before(z3.IntVal(axis)) == sum(a < axis for a in chosen))
    for place, axis in enumerate(others):
        world.assume(axes.other(z3.IntVal(place)) == axis)
    assert world.possible()
    if others:
        assert not world.follows(axes.other(z3.IntVal(len(others) - 1)) != others[-1])


def compare(head: str, arrays: Sequence[np.ndarray[Any, Any]], attributes: Sequence[Any]) -> None:
    """The meaning for unknown ranks, computed on known arrays, beside that in numpy."""
    expected = semantics.evaluate(head, [*arrays, *attributes])
    assert isinstance(expected, np.ndarray)
    world = World()
    tensors = [_leaf_of_shape(f"x{i}", a.shape, world) for i, a in enumerate(arrays)]
    values = {id(t): a for t, a in zip(tensors, arrays, strict=True)}
    result = MEANINGS[head](Side(world), *tensors, *(_attribute(a, world) for a in attributes))
    shape = [_number(world, result.size(z3.IntVal(axis))) for axis in range(expected.ndim)][::-1]
    assert (_number(world, result.rank), tuple(shape)) == (expected.ndim, expected.shape)
    for place in np.ndindex(expected.shape):
        index = vector_of(place[::-1], world).get
        assert _element(world, result.element(index), values) == pytest.approx(expected[place])


def _leaf_of_shape(name: str, shape: tuple[int, ...], world: World) -> Tensor:
    tensor = leaf(name, world)
    world.assume(tensor.rank == len(shape))
    for axis, size in enumerate(shape[::-1]):
        world.assume(tensor.size(z3.IntVal(axis)) == size)
    return tensor


def _attribute(value: Any, world: World) -> Any:
    if isinstance(value, tuple):
        return vector_of(value, world)
    if isinstance(value, float):
        return Parameter(value)
    return z3.IntVal(value) if isinstance(value, int) else value


def _number(world: World, number: Any) -> int:
    """The only value that a number can have."""
    assert world.possible()
    assert world.solver.check() == z3.sat
    value = world.solver.model().eval(number, model_completion=True).as_long()
    assert world.follows(number == value)
    return int(value)


def _element(world: World, x: Any, values: dict[int, np.ndarray[Any, Any]]) -> float:
    if isinstance(x, Element):
        array = values[id(x.leaf)]
        return float(array[tuple(_number(world, x.index(z3.IntVal(axis))) for axis in range(array.ndim))[::-1]])
    if isinstance(x, Parameter):
        return float(x.value)
    if isinstance(x, Conditional):
        return _element(world, x.then if world.follows(x.condition) else x.otherwise, values)
    if isinstance(x, Applied):
        operands = [np.float64(_element(world, o, values)) for o in x.operands]
        return float(semantics.evaluate(x.head, [np.asarray(o) for o in operands]))
    if isinstance(x, Count):
        return float(sum(1 for _ in _positions(world, x.binders)))
    assert isinstance(x, Reduced)
    elements = []
    for facts in _positions(world, x.binders):
        with world.supposing(*facts):
            elements.append(_element(world, x.body, values))
    return float(getattr(np, x.total).reduce(elements))


def _positions(world: World, binders: Sequence[Any]) -> list[list[Any]]:
    """The positions that binders can have, as facts."""
    positions: list[list[Any]] = [[]]
    for binder in binders:
        for axis in range(_number(world, binder.rank)):
            at = z3.IntVal(axis)
            if world.follows(binder.among(at)):
                size = _number(world, binder.extent(at))
                positions = [[*facts, binder.at(at) == place] for facts in positions for place in range(size)]
    return positions
