"""Partitions in the metadata of a model: written, read back, and refused where somebody broke them."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

from eqfuse.engine.onnx.model import Model, read, write
from eqfuse.engine.onnx.provenance import GROUP_KEY, METHOD_KEY, forget_partition
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.annotations.annotate import annotate, read_partition
from eqfuse.extract.partition.groups import Partition, PartitionError, partition_of

DIAMOND = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[2, 3] x) => (float[2, 3] y) {
    one = Constant <value_float = 1.0> ()
    [top] a = Relu(x)
    [left] b = Add(a, one)
    [right] c = Exp(a)
    [bottom] y = Mul(b, c)
}
"""
GROUPS = (0, 1, 0, 1)


def parsed(text: str) -> Model:
    return read(onnx.parser.parse_model(text))


def cut(model: Model, labels: tuple[int, ...], method: str = "joint") -> Partition:
    return partition_of(operator_graph(model, infer(model)), labels, method)


def reread(model: Model) -> Partition | None:
    return read_partition(model, operator_graph(model, infer(model)))


@pytest.fixture
def annotated() -> Model:
    model = parsed(DIAMOND)
    annotate(model, cut(model, GROUPS))
    return model


def test_nodes_get_the_number_of_their_group_and_the_model_the_method(annotated: Model) -> None:
    assert [node.metadata_props.get(GROUP_KEY) for node in annotated.graph] == [None, "0", "1", "0", "1"]
    assert annotated.ir.metadata_props[METHOD_KEY] == "joint"


def test_a_file_keeps_the_partition(annotated: Model, tmp_path: Path) -> None:
    write(annotated, tmp_path / "model.onnx")
    found = reread(read(tmp_path / "model.onnx"))
    assert found is not None
    assert (found.group, found.method) == (GROUPS, "joint")


def test_a_model_without_a_partition_has_none() -> None:
    assert reread(parsed(DIAMOND)) is None


def test_a_second_partition_replaces_the_first(annotated: Model) -> None:
    annotated.graph[0].metadata_props[GROUP_KEY] = "7"  # as a node has that was folded since
    annotate(annotated, cut(annotated, (0, 0, 0, 0), "ago"))
    assert [node.metadata_props.get(GROUP_KEY) for node in annotated.graph] == [None, "0", "0", "0", "0"]
    assert annotated.ir.metadata_props[METHOD_KEY] == "ago"


def test_a_partition_can_be_forgotten(annotated: Model) -> None:
    forget_partition(annotated)
    assert reread(annotated) is None
    assert not any(GROUP_KEY in node.metadata_props for node in annotated.graph)


def test_other_metadata_stay(annotated: Model) -> None:
    annotated.graph[1].metadata_props["scope"] = "encoder"
    annotate(annotated, cut(annotated, (0, 0, 0, 0)))
    assert annotated.graph[1].metadata_props == {"scope": "encoder", GROUP_KEY: "0"}


def test_a_partition_of_another_model_is_refused(annotated: Model) -> None:
    other = parsed(DIAMOND.replace("Exp", "Neg"))
    with pytest.raises(PartitionError, match="the partition is of another graph than this model's"):
        annotate(other, cut(annotated, GROUPS))


@pytest.mark.parametrize(
    "labels", [(5, 9, 5, 9), (1, 0, 1, 0), (3, 3, 3, 3), (999_999_998, 999_999_999, 999_999_998, 999_999_999)]
)
def test_numbers_given_by_hand_become_an_order(annotated: Model, labels: tuple[int, ...]) -> None:
    for node, label in zip(list(annotated.graph)[1:], labels, strict=True):
        node.metadata_props[GROUP_KEY] = str(label)
    found = reread(annotated)
    assert found is not None
    assert found.group == cut(annotated, labels).group


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "node 'right' has no eqfuse.group; partition it again"),
        *((text, f"eqfuse.group of node 'right' is {text!r}, not a") for text in ("", "first", "-1", "1.0", "٣")),
        ("9" * 5000, "eqfuse.group of node 'right' has 5000 digits"),
    ],
)
def test_a_number_that_cannot_be_read_is_named(annotated: Model, text: str | None, problem: str) -> None:
    metadata = annotated.graph[3].metadata_props
    del metadata[GROUP_KEY]
    metadata |= {} if text is None else {GROUP_KEY: text}
    with pytest.raises(PartitionError, match=f"^graph: {problem}"):
        reread(annotated)
    annotated.graph[3].name = ""
    with pytest.raises(PartitionError, match="node 'Exp of c'"):
        reread(annotated)


def test_a_cycle_is_named_by_its_nodes(annotated: Model) -> None:
    for node, label in zip(list(annotated.graph)[1:], (0, 1, 0, 0), strict=True):
        node.metadata_props[GROUP_KEY] = str(label)
    cycle = r"the groups form a cycle: g0 \(top\) -> g1 \(left\) -> g0; partition it again$"
    with pytest.raises(PartitionError, match=f"^graph: eqfuse.group: {cycle}"):
        reread(annotated)
