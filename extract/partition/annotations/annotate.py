"""A partition in the metadata of a model: the number of its group on each node, its method on the model."""

from __future__ import annotations

import onnx_ir as ir

from ....engine.onnx.model import Model
from ....engine.onnx.nodes import layer_nodes
from ....engine.onnx.provenance import GROUP_KEY, METHOD_KEY, forget_partition
from ....ir.graph import OperatorGraph
from ..groups import Partition, PartitionError, partition_of
from .certificate import certificate_of, crossings_of, disproof

_MOST_DIGITS = 9
"""The most digits of a group's number: no model has more groups, and Python refuses to read thousands of digits."""


def annotate(model: Model, partition: Partition) -> None:
    """Write `partition` into the metadata of `model`, replacing any that is there.

    The operators of its graph are the nodes of the model that depend on an input, in order (of_model.py); other nodes
    get no number. Raises PartitionError if the two do not match.
    """
    nodes = partitioned_nodes(model, partition)
    forget_partition(model)
    for node, number in zip(nodes, partition.group, strict=True):
        node.metadata_props[GROUP_KEY] = str(number)
    model.ir.metadata_props[METHOD_KEY] = partition.method


def partitioned_nodes(model: Model, partition: Partition) -> list[ir.Node]:
    """The node of each operator of a partition. Raises PartitionError if it is of another model."""
    nodes = list(layer_nodes(model))
    if [node.op_type for node in nodes] != [operator.op for operator in partition.graph.operators]:
        raise PartitionError(f"{model.label}: the partition is of another graph than this model's")
    return nodes


def read_partition(model: Model, graph: OperatorGraph) -> Partition | None:
    """The partition that `annotate` wrote into `model`, whose operators are `graph`; None if there is none.

    The numbers are kept if they are an order in which the groups can run, else replaced by one. Raises PartitionError
    if a node has no number, or one that cannot be read, or if the groups form a cycle.
    """
    method = model.ir.metadata_props.get(METHOD_KEY)
    if method is None:
        return None
    labels = tuple(_read_label(model.label, node) for node in layer_nodes(model))
    partition = Partition(graph, labels, method)
    if set(labels) == set(range(len(set(labels)))) and all(
        labels[source] <= labels[index] for index, sources in enumerate(graph.predecessors) for source in sources
    ):
        return partition
    try:
        return partition_of(graph, labels, method)
    except PartitionError:
        place = {label: position for position, label in enumerate(sorted(set(labels)))}
        dense = tuple(place[label] for label in labels)
        problem = disproof(graph, certificate_of(Partition(graph, dense, "")), crossings_of(graph, dense))
        raise PartitionError(f"{model.label}: {GROUP_KEY}: {problem}; partition it again") from None


def _read_label(model: str, node: ir.Node) -> int:
    name = node.name or f"{node.op_type} of {node.outputs[0].name}"
    text = node.metadata_props.get(GROUP_KEY)
    if text is None:
        raise PartitionError(f"{model}: node {name!r} has no {GROUP_KEY}; partition it again")
    if not (text.isascii() and text.isdecimal()):
        raise PartitionError(f"{model}: {GROUP_KEY} of node {name!r} is {text!r}, not a number; partition it again")
    if len(text) > _MOST_DIGITS:
        raise PartitionError(f"{model}: {GROUP_KEY} of node {name!r} has {len(text)} digits; partition it again")
    return int(text)
