"""Which Concats, Splits and Slices are no kernels, and where their parts are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from eqfuse.extract.partition.placement import Place, find_in_place, resolve_places
from eqfuse.ir.graph import OperatorGraph

from ...lowering.small_models import graph_of, model


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def graph(*nodes: onnx.NodeProto, result: str = "y", **stored: np.ndarray) -> OperatorGraph:
    """Of an input `x` of two rows of eight, and an output."""
    return graph_of(model(nodes, {"x": (2, 8)}, {result: ("a", "b")}, **stored))


def found(graph: OperatorGraph, alone: tuple[int, ...] = ()) -> dict[str, tuple[str, int, int, int]]:
    """By the name of a part its whole, axis, first place, and the extent of the whole."""
    places = resolve_places(find_in_place(graph, alone).values())
    names = [value.name for value in graph.values]
    return {names[v]: (names[p.whole], p.axis, p.first, p.extent) for v, p in places.items()}


HALVES = (node("Neg", "x", "a"), node("Abs", "x", "b"))
JOIN = node("Concat", "a b", "c", axis=1)
END = node("Exp", "c", "y")


def test_operands_are_made_in_their_places() -> None:
    assert found(graph(*HALVES, JOIN, END)) == {"a": ("c", 1, 0, 16), "b": ("c", 1, 8, 16)}


def test_the_whole_may_be_an_output() -> None:
    assert set(found(graph(*HALVES, node("Concat", "a b", "y", axis=0)))) == {"a", "b"}


@pytest.mark.parametrize(
    "nodes",
    [
        (HALVES[0], node("Concat", "a x", "c", axis=1)),  # the caller makes it
        (HALVES[0], node("Concat", "a a", "c", axis=1)),  # in two places at once
        (*HALVES, JOIN, node("Flatten", "a", "d"), node("Exp", "d", "e")),  # a view takes dense tensors
        (HALVES[0], node("Flatten", "x", "b"), JOIN),
    ],
)
def test_others_are_kernels(nodes: tuple[onnx.NodeProto, ...]) -> None:
    assert not found(graph(*nodes, END))


def test_what_no_kernel_makes_is_no_part() -> None:
    assert not found(graph(*HALVES, JOIN, END), alone=(0,))


def test_an_operand_of_two_is_in_the_first() -> None:
    again = node("Concat", "b a", "d", axis=1)
    assert set(found(graph(*HALVES, JOIN, again, node("Add", "c d", "y")))) == {"a", "b"}
    assert found(graph(*HALVES, JOIN, again, node("Add", "c d", "y")))["b"] == ("c", 1, 8, 16)


@pytest.mark.parametrize(("axis", "places"), [(1, {"a": 0, "b": 8, "c": 0, "d": 16}), (0, {"a": 0, "b": 8})])
def test_a_whole_may_be_a_part_along_the_same_axis(axis: int, places: dict[str, int]) -> None:
    other = (node("Neg", "x", "d"),) if axis == 1 else (node("Concat", "x x", "f", axis=1), node("Neg", "f", "d"))
    around = node("Concat", "c d", "e", axis=axis)
    result = found(graph(*HALVES, *other, JOIN, around, node("Exp", "e", "y")))
    assert {name: place[2] for name, place in result.items()} == places
    assert {place[0] for place in result.values()} == ({"e"} if axis == 1 else {"c"})


def test_results_of_a_split_are_read_in_their_places() -> None:
    cut = node("Split", "x", "a b", axis=1)
    assert found(graph(cut, node("Mul", "a b", "y"))) == {"a": ("x", 1, 0, 8), "b": ("x", 1, 4, 8)}
    assert not found(graph(cut, node("Mul", "a b", "c"), node("Abs", "a", "y"), result="a"))  # the caller reads one


@pytest.mark.parametrize(("step", "is_part"), [(1, True), (2, False)])
def test_a_slice_leaves_nothing_out_between(step: int, is_part: bool) -> None:
    numbers = {"s": np.array([2]), "e": np.array([6]), "i": np.array([1]), "t": np.array([step])}
    cut = graph(node("Slice", "x s e i t", "a"), node("Neg", "a", "y"), **numbers)
    assert found(cut) == ({"a": ("x", 1, 2, 8)} if is_part else {})


@pytest.mark.parametrize(("batch", "axis", "is_part"), [(1, 1, True), (2, 1, False), (2, 2, True), (2, 0, True)])
def test_parts_are_rows_or_columns(batch: int, axis: int, is_part: bool) -> None:
    proto = model((*HALVES, node("Concat", "a b", "c", axis=axis), END), {"x": (batch, 4, 8)}, {"y": ("a", "b", "c")})
    assert bool(found(graph_of(proto))) == is_part


def test_places_of_places() -> None:
    inner, outer = {1: Place(2, 1, 3, 8)}, {2: Place(5, 1, 4, 20)}
    assert resolve_places([inner, outer]) == {1: Place(5, 1, 7, 20), 2: Place(5, 1, 4, 20)}


def test_parts_nest_deeper_than_python_recurses() -> None:
    depth = 5000
    found = [{inner: Place(inner + 1, 0, 2, 3 + inner)} for inner in range(depth)]
    assert resolve_places(reversed(found))[0] == Place(depth, 0, 2 * depth, 2 + depth)
    assert resolve_places(found)[depth - 2].first == 4
