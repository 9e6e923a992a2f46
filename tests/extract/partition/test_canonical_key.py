"""The canonical key: the same for isomorphic sub-graphs, another for all others."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqfuse.extract.partition.canonical_key import operator_names, subgraph_key, subgraph_text
from eqfuse.ir.graph import Operator, OperatorGraph, Value
from eqfuse.ir.types import TensorType

Change = Callable[[OperatorGraph], OperatorGraph]


def f32(*shape: int | str) -> TensorType:
    return TensorType("float32", shape)


def graph_of(values: list[Value], *operators: tuple[str, tuple[int | None, ...], tuple[int, ...]]) -> OperatorGraph:
    """Operators without attributes; the values' producers are told from them."""
    made = tuple(Operator(f"node{i}", op, {}, inputs, outputs) for i, (op, inputs, outputs) in enumerate(operators))
    producer = {value: index for index, operator in enumerate(made) for value in operator.outputs}
    return OperatorGraph(made, tuple(replace(v, producer=producer.get(i)) for i, v in enumerate(values)))


def dense() -> OperatorGraph:
    """Relu(x w + b), whose product another operator reads too."""
    values = [Value("x", f32(1, 8)), Value("w", f32(8, 4), None, True), Value("b", f32(4), None, True)]
    values += [Value(name, f32(1, 4), is_output=name == "y") for name in ("product", "sum", "y", "other")]
    operators = (("MatMul", (0, 1), (3,)), ("Add", (3, 2), (4,)), ("Relu", (4,), (5,)), ("Sigmoid", (3,), (6,)))
    made = graph_of(values, *operators)
    return OperatorGraph(
        (replace(made.operators[0], attributes={"mode": "a", "k": 1}), *made.operators[1:]), made.values
    )


MEMBERS = (0, 1, 2)


def test_the_text_says_what_is_computed() -> None:
    assert subgraph_text(dense(), MEMBERS).splitlines() == [
        "%0: float32[1,8]",
        "%1: constant float32[8,4]",
        "%2: constant float32[4]",
        "  %3: float32[1,4] = MatMul(%0, %1) {k=1, mode='a'}",
        "  %4: float32[1,4] = Add(%3, %2)",
        "  %5: float32[1,4] = Relu(%4)",
        "return %3, %5",
    ]


def test_operator_names_are_those_of_the_text() -> None:
    assert operator_names(subgraph_text(dense(), MEMBERS)) == ("MatMul", "Add", "Relu")


def test_a_key_is_the_same_in_every_process() -> None:
    assert subgraph_key(dense(), MEMBERS) == "b0aa0ac996875ca4ff1059db9467effa255df0b6e1f6b0a611ef86f8e00d7ffa"


# --- what makes a difference


def with_operator(index: int, **fields: object) -> Change:
    def change(graph: OperatorGraph) -> OperatorGraph:
        operators = list(graph.operators)
        operators[index] = replace(operators[index], **fields)
        return OperatorGraph(tuple(operators), graph.values)

    return change


def with_value(index: int, **fields: object) -> Change:
    def change(graph: OperatorGraph) -> OperatorGraph:
        values = list(graph.values)
        values[index] = replace(values[index], **fields)
        return OperatorGraph(graph.operators, tuple(values))

    return change


DIFFERENT: dict[str, Change] = {
    "operator": with_operator(2, op="Tanh"),
    "attribute": with_operator(0, attributes={"mode": "b", "k": 1}),
    "kind of attribute": with_operator(0, attributes={"mode": "a", "k": 1.0}),
    "name of attribute": with_operator(0, attributes={"node": "a", "k": 1}),
    "no attributes": with_operator(0, attributes={}),
    "order of operands": with_operator(1, inputs=(2, 3)),
    "operand": with_operator(1, inputs=(3, 0)),
    "shared operand": with_operator(1, inputs=(3, 3)),
    "absent operand": with_operator(1, inputs=(3, None, 2)),
    "dtype": with_value(0, type=TensorType("float16", (1, 8))),
    "shape": with_value(0, type=f32(2, 8)),
    "symbolic dimension": with_value(0, type=f32("N", 8)),
    "dimension named as a number": with_value(0, type=f32("1", 8)),
    "dimensions in one name": with_value(0, type=f32("1,8")),
    "unknown rank": with_value(0, type=TensorType("float32", None)),
    "unknown type": with_value(0, type=None),
    "constant": with_value(0, is_constant=True),
    "output": with_value(4, is_output=True),
    "read outside": with_operator(3, inputs=(4,)),
}


SAME: dict[str, Change] = {
    "name of operator": with_operator(0, name="other"),
    "name of value": with_value(0, name="other"),
    "operator outside": with_operator(3, op="Tanh"),
    "absent operand at the end": with_operator(1, inputs=(3, 2, None)),
    "order of attributes": with_operator(0, attributes={"k": 1, "mode": "a"}),
    "output that is read outside too": with_value(3, is_output=True),
}


@pytest.mark.parametrize("name", [*DIFFERENT, *SAME])
def test_the_computation_makes_a_difference_and_nothing_else(name: str) -> None:
    change = (DIFFERENT | SAME)[name]
    is_same = subgraph_key(change(dense()), [2, 0, 1, 0]) == subgraph_key(dense(), MEMBERS)
    assert is_same == (name in SAME)


def test_an_opaque_operator_has_no_key() -> None:
    graph = with_operator(1, is_opaque=True)(dense())
    assert subgraph_key(graph, MEMBERS) is None
    assert "opaque Add(" in subgraph_text(graph, MEMBERS)


def symbolic(*names: str) -> OperatorGraph:
    return with_value(4, type=f32(names[2]))(with_value(0, type=f32(*names[:2]))(dense()))


@pytest.mark.parametrize(
    ("names", "is_same"), [("bxb", True), ("aaa", False), ("abb", False), ("abc", False), ("NbN", False)]
)
def test_which_symbolic_dimensions_are_equal_makes_a_difference_and_their_names_none(names: str, is_same: bool) -> None:
    assert (subgraph_key(symbolic(*names), MEMBERS) == subgraph_key(symbolic("a", "b", "a"), MEMBERS)) == is_same


def test_nothing_has_a_text() -> None:
    assert subgraph_text(dense(), ()) == "return"


# --- isomorphic sub-graphs


def reordered(graph: OperatorGraph, seed: int) -> OperatorGraph:
    """Another topological order of the operators, another numbering of the values, and other names."""
    source = random.Random(seed)
    operators: list[int] = []
    while len(operators) < len(graph):
        left = [i for i in range(len(graph)) if i not in operators]
        operators.append(source.choice([i for i in left if set(graph.predecessors[i]) <= set(operators)]))
    values = source.sample(range(len(graph.values)), len(graph.values))
    place = {value: position for position, value in enumerate(values)}
    number = {operator: position for position, operator in enumerate(operators)}
    return OperatorGraph(
        tuple(_renumbered(graph.operators[i], place, str(source.random())) for i in operators),
        tuple(_moved(graph.values[v], number, str(source.random())) for v in values),
    )


def _renumbered(operator: Operator, place: dict[int, int], name: str) -> Operator:
    inputs = tuple(None if v is None else place[v] for v in operator.inputs)
    return replace(operator, name=name, inputs=inputs, outputs=tuple(place[v] for v in operator.outputs))


def _moved(value: Value, number: dict[int, int], name: str) -> Value:
    return replace(value, name=name, producer=None if value.producer is None else number[value.producer])


@st.composite
def graphs(draw: st.DrawFn) -> OperatorGraph:
    """Random graphs of few kinds of operators and types, so that many of their parts are alike."""
    values = [Value(str(i), f32(4), None, draw(st.booleans())) for i in range(draw(st.integers(1, 4)))]
    operators: list[Operator] = []
    for index in range(draw(st.integers(1, 9))):
        operands = draw(st.lists(st.none() | st.integers(0, len(values) - 1), min_size=1, max_size=2))
        outputs = range(len(values), len(values) + draw(st.integers(1, 2)))
        attributes = draw(st.sampled_from([{}, {}, {"axis": 1}]))
        operators.append(Operator("", draw(st.sampled_from("AB")), attributes, tuple(operands), tuple(outputs)))
        values += [Value("", f32(4), index, False, draw(st.integers(0, 3)) == 0) for _ in outputs]
    return OperatorGraph(tuple(operators), tuple(values))


@settings(deadline=None)
@given(graphs(), st.integers(0, 10**6))
def test_names_and_order_make_no_difference(graph: OperatorGraph, seed: int) -> None:
    everything = range(len(graph))
    assert subgraph_text(reordered(graph, seed), everything) == subgraph_text(graph, everything)


def changed(graph: OperatorGraph, index: int, kind: str) -> OperatorGraph:
    """The graph with one operator, shape or edge changed."""
    operator = graph.operators[index]
    if kind == "attribute":
        return with_operator(index, attributes={**operator.attributes, "keepdims": 0})(graph)
    if kind == "shape":
        return with_value(operator.outputs[0], type=f32(5))(graph)
    return with_operator(index, inputs=(*operator.inputs, 0))(graph)


@settings(deadline=None)
@given(graphs(), st.data(), st.sampled_from(["attribute", "shape", "edge"]))
def test_every_change_makes_a_difference(graph: OperatorGraph, data: st.DataObject, kind: str) -> None:
    other = changed(graph, data.draw(st.integers(0, len(graph) - 1)), kind)
    assert subgraph_key(other, range(len(graph))) != subgraph_key(graph, range(len(graph)))


def ring(*lengths: int) -> OperatorGraph:
    """Sums of neighbours around rings of inputs: every input, and every sum, looks like every other."""
    count = sum(lengths)
    operators: list[tuple[str, tuple[int | None, ...], tuple[int, ...]]] = []
    for length in lengths:
        start = len(operators)
        operators += [("Add", (start + i, start + (i + 1) % length), (count + start + i,)) for i in range(length)]
    values = [Value("", f32(4), is_output=i >= count) for i in range(2 * count)]
    return graph_of(values, *operators)


def branches(count: int) -> OperatorGraph:
    """Equal branches over one input, each with weights of its own."""
    operators: list[tuple[str, tuple[int | None, ...], tuple[int, ...]]] = []
    for index in range(count):
        made = 1 + count + 2 * index
        operators += [("MatMul", (0, 1 + index), (made,)), ("Relu", (made,), (made + 1,))]
    return graph_of([Value("", f32(4, 4), None, 0 < i <= count) for i in range(1 + 3 * count)], *operators)


@pytest.mark.representatives(7)
@pytest.mark.parametrize("graph", [ring(6), ring(3, 3), ring(6, 3, 3), ring(3, 4, 5), branches(12), branches(40)])
@pytest.mark.parametrize("seed", range(3))
def test_symmetric_graphs(graph: OperatorGraph, seed: int) -> None:
    everything = range(len(graph))
    assert subgraph_text(reordered(graph, seed), everything) == subgraph_text(graph, everything)


def test_rings_of_one_size_differ_from_another() -> None:
    assert subgraph_key(ring(6), range(6)) != subgraph_key(ring(3, 3), range(6))
