"""``eqfuse diff`` names the nodes in which two models differ."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from eqfuse.driver.node_changes import NamedGraph, compare_nodes
from eqfuse.ir.graph import Operator, OperatorGraph, Value

from .command_line import CommandLine


def graph_of(*operators: tuple[str, str, str]) -> NamedGraph:
    """Operators as (result, operator, operands between blanks); values that none of them makes are inputs."""
    names = list(dict.fromkeys(name for result, _, operands in operators for name in (*operands.split(), result)))
    made = {result: index for index, (result, _, _) in enumerate(operators)}
    values = tuple(Value(name, None, made.get(name)) for name in names)
    nodes = tuple(
        Operator(f"node {result}", op, {}, tuple(map(names.index, operands.split())), (names.index(result),))
        for result, op, operands in operators
    )
    return NamedGraph(OperatorGraph(nodes, values), {})


def kinds(before: NamedGraph, after: NamedGraph) -> dict[str, str]:
    return {change.value: str(change) for change in compare_nodes(before, after).all}


CHAIN = graph_of(("a", "Conv", "x w"), ("b", "BatchNormalization", "a s"), ("y", "Relu", "b"))


def test_a_fused_node_is_named_with_what_it_went_into() -> None:
    after = graph_of(("b", "Conv", "x w2"), ("y", "Relu", "b"))
    assert kinds(CHAIN, after) == {"a": "fused into b", "b": "now Conv"}


def test_an_added_node_is_named_with_what_it_is_for() -> None:
    after = graph_of(("p", "Pad", "x"), ("q", "Conv", "p w"), ("b", "Add", "q s"), ("y", "Relu", "b"))
    assert kinds(CHAIN, after) == {"a": "fused into b", "b": "now Add", "p": "added for b", "q": "added for b"}


def test_a_node_whose_reader_reads_past_it_is_fused_into_that() -> None:
    before = graph_of(("a", "Identity", "x"), ("y", "Relu", "a"))
    after = graph_of(("y", "Relu", "x"))
    assert kinds(before, after) == {"a": "fused into y", "y": "other operands or attributes"}


def test_a_node_that_nothing_reads_is_removed() -> None:
    before = graph_of(("a", "Exp", "x"), ("y", "Relu", "x"))
    assert kinds(before, graph_of(("y", "Relu", "x"))) == {"a": "removed"}


@st.composite
def graphs(draw: st.DrawFn) -> NamedGraph:
    names = ["x"]
    operators = []
    for name in draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)):
        operands = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
        operators.append((name, draw(st.sampled_from(["Add", "Mul"])), " ".join(operands)))
        names.append(name)
    return graph_of(*operators)


@given(graphs())
def test_a_graph_does_not_differ_from_itself(graph: NamedGraph) -> None:
    assert list(compare_nodes(graph, graph).all) == []


@given(graphs(), graphs())
def test_every_node_has_one_change_and_targets_are_changed(before: NamedGraph, after: NamedGraph) -> None:
    changes = compare_nodes(before, after)
    sides = (before, changes.before, {"kept", "changed", "fused", "removed"}), (after, changes.after, None)
    for graph, found, allowed in sides:
        assert [each.node for each in found] == [each.name for each in graph.graph.operators]
        assert {each.kind for each in found} <= (allowed or {"kept", "changed", "added"})
    changed = {each.value for each in changes.before if each.kind == "changed"}
    assert {target for each in (*changes.before, *changes.after) for target in each.targets} <= changed


def test_the_command_names_nodes(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.model(
        "out.onnx",
        [helper.make_node("Relu", ["x"], ["second"], "only"), helper.make_node("Add", ["second", "w"], ["y"])],
        w=[[1.5, -0.3, 0.7]],
    )
    said = eqfuse.run("diff", "in.onnx", "out.onnx").out
    assert ["fused", "into", "second"] in [line.split()[-3:] for line in said.splitlines()]
    nodes = json.loads(eqfuse.run("diff", "in.onnx", "out.onnx", "--json").out)["nodes"]
    assert [(each["kind"], each["value"]) for each in nodes] == [("fused", "first"), ("changed", "second")]


def test_equal_constants_of_other_names_are_no_difference(eqfuse: CommandLine) -> None:
    eqfuse.model("in.onnx", [helper.make_node("Add", ["x", "v"], ["y"])], v=[[1.0, 2.0, 3.0]])
    eqfuse.model("out.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], w=[[1.0, 2.0, 3.0]])
    assert json.loads(eqfuse.run("diff", "in.onnx", "out.onnx", "--json").out)["nodes"] == []
