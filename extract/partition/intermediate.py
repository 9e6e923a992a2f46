"""Which intermediate results a partition removes, and the bytes of those it leaves.

DNNFusion (Niu et al., PLDI 2021), section 3.2: IR_removable, an intermediate result whose readers are all fused with
its maker.
"""

from __future__ import annotations

from ...costmodels.traffic import VIEWS
from ...ir.graph import OperatorGraph
from .groups import Partition, unfused


def removed(partition: Partition) -> frozenset[int]:
    """Values that never leave the group that makes them, so that no memory need hold them."""
    leaving = {value for outputs in partition.outputs for value in outputs}
    made = {value for operator in partition.graph.operators for value in operator.outputs}
    return frozenset(made - leaving)


def intermediate_bytes(partition: Partition) -> int:
    """Bytes of the values that other groups than their own read. What only the caller reads is no intermediate result.

    A value and its views (Reshape, ...) are the same bytes and count once; views of what comes from outside the graph
    count nothing.
    """
    graph, group = partition.graph, partition.group
    crossing = (
        value
        for number, outputs in enumerate(partition.outputs)
        for value in outputs
        if any(group[user] != number for user in graph.consumers[value])
    )
    held = {storage(graph, value) for value in crossing}
    return sum(graph.values[v].extent.bytes for v in held if graph.values[v].producer is not None)


def unfused_intermediate_bytes(graph: OperatorGraph) -> int:
    """`intermediate_bytes` of each operator by itself."""
    return intermediate_bytes(unfused(graph))


def storage(graph: OperatorGraph, value: int) -> int:
    """The value whose bytes `value` is: itself, or what it is a view of."""
    while (source := _viewed(graph, value)) is not None:
        value = source
    return value


def _viewed(graph: OperatorGraph, value: int) -> int | None:
    """What a value is directly a view of. Further outputs of a view (the mask of Dropout) are none."""
    producer = graph.values[value].producer
    if producer is None:
        return None
    operator = graph.operators[producer]
    return operator.inputs[0] if operator.op in VIEWS and operator.outputs[0] == value else None
