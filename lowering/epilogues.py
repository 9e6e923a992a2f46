"""Element-wise operators in front of a kernel's anchor op, moved behind the anchor op of the kernel before.

    {DepthwiseConv} {Clip, Conv}    =>    {DepthwiseConv, Clip} {Conv}

By bytes both are the same, and a partition may have either. But an anchor op reads its operand many times, so what
stands in front of it is computed as often, or into a buffer of its own; behind one it works on registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..costmodels.fused import ANCHORS
from ..extract.partition.graph import OperatorGraph
from ..rules.signatures import operators

Kernels = Sequence[Sequence[int]]


def with_epilogues(graph: OperatorGraph, kernels: Kernels) -> tuple[tuple[int, ...], ...]:
    """The kernels, in the same running order, with such operators moved; kernels that this empties are left out."""
    moving = _Moving(graph, [list(kernel) for kernel in kernels])
    for number in range(len(moving.kernels)):
        moving.empty_front(number)
    return tuple(tuple(kernel) for kernel in moving.kernels if kernel)


@dataclass
class _Moving:
    graph: OperatorGraph
    kernels: list[list[int]]

    def __post_init__(self) -> None:
        self.number = {member: number for number, kernel in enumerate(self.kernels) for member in kernel}

    def empty_front(self, number: int) -> None:
        """Move what can be moved out of the front of one kernel."""
        if not any(self.graph.operators[member].op in ANCHORS for member in self.kernels[number]):
            return
        for member in sorted(self.kernels[number]):
            target = self._target(member)
            if target is not None:
                self.kernels[number].remove(member)
                self.kernels[target] = sorted([*self.kernels[target], member])
                self.number[member] = target

    def _target(self, member: int) -> int | None:
        """The kernel that makes the last of its operands, if nobody else reads that and it can take the operator."""
        operator = self.graph.operators[member]
        known = operators().get(operator.op)
        if known is None or operator.is_opaque or not known.category.startswith("elementwise"):
            return None
        makers = {v: self._maker(v) for v in operator.inputs if v is not None}
        last = max(makers.values(), default=-1)
        if last < 0 or last >= self.number[member] or not self._takes(last):
            return None
        (first, *others) = [value for value, maker in makers.items() if maker == last]
        value, result = self.graph.values[first], self.graph.values[operator.outputs[0]]
        alone = not others and not value.is_output and len(self.graph.consumers[first]) == 1
        alike = value.type is not None and result.type is not None and value.type.shape == result.type.shape
        return last if alone and alike else None

    def _maker(self, value: int) -> int:
        """The kernel that makes a value; -1 for what comes from outside."""
        producer = self.graph.values[value].producer
        return -1 if producer is None else self.number[producer]

    def _takes(self, number: int) -> bool:
        """Whether it has an anchor op, and no Concat, which writes what it joins by itself."""
        found = {self.graph.operators[member].op for member in self.kernels[number]}
        return not found.isdisjoint(ANCHORS) and "Concat" not in found
