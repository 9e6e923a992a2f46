"""The savings of a partition: intermediate results that need no memory, and data movement that needs no separate pass.

DNNFusion (Niu et al., PLDI 2021), section 3.2: IR_removable, an intermediate result whose readers are all fused with
its maker; section 4.4.2: data movement becomes an index map inside a kernel if the one consumer reads through the
operator that moves, or the producer writes through it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....costmodels.traffic import UNMOVED, traffic
from ....ir.graph import OperatorGraph
from ..groups import Partition
from .kernels import KernelModel

_NAMES = "Transpose Reshape Flatten Squeeze Unsqueeze Slice Expand DepthToSpace SpaceToDepth Gather"
_MOVEMENT = frozenset(_NAMES.split())


def removed_values(partition: Partition) -> frozenset[int]:
    """Values that never leave the group that makes them, so that they need no memory."""
    leaving = {value for outputs in partition.outputs for value in outputs}
    return frozenset(value for operator in partition.graph.operators for value in operator.outputs) - leaving


def intermediate_bytes(partition: Partition) -> int:
    """Bytes of the values that other groups than their own read. A value that only the caller reads is no intermediate
    result.

    A value and its views (Reshape, ...) are the same bytes and count once; views of inputs and constants count nothing.
    """
    graph, group = partition.graph, partition.group
    crossing = (
        value
        for number, outputs in enumerate(partition.outputs)
        for value in outputs
        if any(group[user] != number for user in graph.consumers[value])
    )
    stored = {storage(graph, value) for value in crossing}
    return sum(graph.values[v].extent.bytes for v in stored if graph.values[v].producer is not None)


def storage(graph: OperatorGraph, value: int) -> int:
    """The value whose bytes `value` is: itself, or the one that it is a view of."""
    while (producer := graph.values[value].producer) is not None:
        operator = graph.operators[producer]
        source = operator.inputs[0] if operator.op in UNMOVED else None
        if source is None or operator.outputs[0] != value:  # further outputs of a view (the mask of Dropout) are none
            break
        value = source
    return value


def index_mapped_operators(partition: Partition, model: KernelModel) -> frozenset[int]:
    """The operators that run as index maps, so that they move no bytes of their own."""
    kernels = (frozenset(kernel) for members in partition.members for kernel in model.kernels(members))
    return frozenset(m for kernel in kernels for m in kernel if _is_index_map(m, kernel, partition.graph))


def saved_bytes(graph: OperatorGraph, operators: Iterable[int]) -> int:
    """Bytes that these operators would read and write as separate kernels."""
    return sum(traffic(graph.operations[m]).total for m in operators)


def _is_index_map(member: int, kernel: frozenset[int], graph: OperatorGraph) -> bool:
    operator = graph.operators[member]
    operand = operator.inputs[0] if operator.inputs else None
    if operator.is_opaque or operator.op not in _MOVEMENT or operand is None:
        return False
    is_computed = any(v is None or not graph.values[v].is_constant for v in operator.inputs[1:])
    if operator.op == "Gather" and is_computed:
        return False  # its index map is known in a run only
    made_for_it = graph.values[operand].producer in kernel and _has_one_consumer(operand, kernel, graph)
    return made_for_it or _has_one_consumer(operator.outputs[0], kernel, graph)


def _has_one_consumer(value: int, kernel: frozenset[int], graph: OperatorGraph) -> bool:
    consumers = graph.consumers[value]
    return not graph.values[value].is_output and len(consumers) == 1 and consumers[0] in kernel
