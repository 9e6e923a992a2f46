"""Operators that only move data and need no pass of their own: they are index maps inside a kernel.

Its one consumer reads through such an operator, or its producer writes through it, where they are one kernel. DNNFusion
(Niu et al., PLDI 2021), section 4.4.2, replaces data movement by changed indices in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...costmodels.traffic import traffic
from ...ir.graph import OperatorGraph
from .groups import Partition
from .kernels import KernelModel

_NAMES = "Transpose Reshape Flatten Squeeze Unsqueeze Slice Expand DepthToSpace SpaceToDepth Gather"
_MOVEMENT = frozenset(_NAMES.split())


def index_mapped(partition: Partition, model: KernelModel) -> frozenset[int]:
    """The operators that run as index maps, so that they move no bytes of their own."""
    kernels = (kernel for members in partition.members for kernel in model.kernels(members))
    return frozenset(m for kernel in kernels for m in kernel if _is_mapped(m, frozenset(kernel), partition.graph))


def saved_bytes(graph: OperatorGraph, operators: Iterable[int]) -> int:
    """Bytes that these operators would read and write as kernels of their own."""
    return sum(traffic(graph.operations[m]).total for m in operators)


def _is_mapped(member: int, kernel: frozenset[int], graph: OperatorGraph) -> bool:
    return _only_moves(member, graph) and (_read_inside(member, kernel, graph) or _made_inside(member, kernel, graph))


def _only_moves(member: int, graph: OperatorGraph) -> bool:
    """Whether the index map is known before any run: a Gather's is where its indices are constant."""
    operator = graph.operators[member]
    if operator.is_opaque or operator.op not in _MOVEMENT or operator.inputs[0] is None:
        return False
    return operator.op != "Gather" or all(v is not None and graph.values[v].is_constant for v in operator.inputs[1:])


def _read_inside(member: int, kernel: frozenset[int], graph: OperatorGraph) -> bool:
    """Whether the result has one consumer, in the same kernel."""
    return _has_one_consumer(graph.operators[member].outputs[0], kernel, graph)


def _made_inside(member: int, kernel: frozenset[int], graph: OperatorGraph) -> bool:
    """Whether the kernel makes the operand, for this operator alone."""
    operand = graph.operators[member].inputs[0]
    if operand is None or graph.values[operand].producer not in kernel:
        return False
    return _has_one_consumer(operand, kernel, graph)


def _has_one_consumer(value: int, kernel: frozenset[int], graph: OperatorGraph) -> bool:
    consumers = graph.consumers[value]
    return not graph.values[value].is_output and len(consumers) == 1 and consumers[0] in kernel
