"""Index maps: which elements they say are read, against what operators do to numbers."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.ir.index_maps import Axis, Shape, interval_of, reshaped_map
from eqfuse.ir.operators.graph_maps import index_maps_of

from ..extract.partition.baselines.test_mapping_types import CALLS
from ..extract.partition.perturbation import Call, read_elements

Box = tuple[tuple[int, int], ...]


def _name(call: Call) -> str:
    return f"{call.op}-{'-'.join('x'.join(map(str, shape)) or 'scalar' for shape in call.shapes)}"


@pytest.mark.representatives(70)
@pytest.mark.parametrize("call", CALLS, ids=_name)
def test_no_element_is_read_that_the_maps_leave_out(call: Call) -> None:
    graph = call.graph()
    maps = index_maps_of(graph, graph.operators[0])
    assert maps is not None
    result = tuple(axis.extent for axis in maps.result)
    for position, (operand, shape) in enumerate(zip(maps.operands, call.shapes, strict=True)):
        reads = read_elements(call, position)
        for target in np.ndindex(result):
            box = [interval_of(index)([(n, n + 1) for n in target]) for index in operand or ()]
            expected = np.zeros(shape, bool)
            if operand is not None:
                expected[tuple(slice(max(0, low), max(0, high)) for low, high in box)] = True
            assert not (reads[target] & ~expected).any(), (position, target)


def read_box(box: Box, result: Shape, operand: Shape) -> Box:
    """The part of an operand that a box of its Reshape reads."""
    indices = reshaped_map(operand, [Axis(number, extent) for number, extent in enumerate(result)])
    return tuple(interval_of(index)(box) for index in indices)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Shape, Shape, Box]:
    """A shape, another one of as many elements, and a box of the first."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=5))
    shapes = []
    for _ in range(2):
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=3)))
        ends = zip([0, *cuts], [*cuts, len(factors)], strict=True)
        shapes.append(tuple(prod(factors[a:b]) for a, b in ends))
    bounds = [sorted(draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))) for n in shapes[0]]
    return shapes[0], shapes[1], tuple((a, b + 1) for a, b in bounds)


@given(reshapes())
def test_a_reshaped_box_holds_every_element(case: tuple[Shape, Shape, Box]) -> None:
    source, target, box = case
    marked = np.zeros(source, bool)
    marked[tuple(slice(*i) for i in box)] = True
    found = np.zeros(target, bool)
    found[tuple(slice(*i) for i in read_box(box, source, target))] = True
    assert not (marked.reshape(target) & ~found).any()


def test_a_reshaped_box_is_small_where_axes_are_kept() -> None:
    assert read_box(((2, 4), (0, 12)), (8, 12), (8, 3, 4)) == ((2, 4), (0, 3), (0, 4))
    assert read_box(((2, 4), (0, 6), (0, 5)), (8, 6, 5), (48, 5)) == ((12, 24), (0, 5))
    assert read_box(((1, 2), (3, 5)), (4, 6), (1, 4, 1, 6, 1)) == ((0, 1), (1, 2), (0, 1), (3, 5), (0, 1))
