"""Element-wise operators at the front of a kernel, moved behind the anchor op of the kernel before.

    {DepthwiseConv} {Clip, Conv}    =>    {DepthwiseConv, Clip} {Conv}

By bytes both are the same, and a partition may have either. But an anchor op reads its operand many times, so what
stands in front of it is computed as often, or into a buffer of its own; behind one it works on registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...costmodels.fused import ANCHORS
from ...ir.graph import OperatorGraph
from ...ir.operators import OPERATORS

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
        """Move what can be moved out of the front of one kernel: as much as possible of each connected part of it."""
        for part in self._parts(self._front(number)):
            self._move(part, number)

    def _move(self, part: list[int], number: int) -> None:
        """The longest beginning of the part that a kernel before can take."""
        for size in range(len(part), 0, -1):
            target = self._target(part[:size], number)
            if target is not None:
                self.kernels[number] = [m for m in self.kernels[number] if m not in part[:size]]
                self.kernels[target] = sorted([*self.kernels[target], *part[:size]])
                self.number.update(dict.fromkeys(part[:size], target))
                return

    def _front(self, number: int) -> list[int]:
        """Element-wise operators that need nothing of the kernel but each other."""
        front: list[int] = []
        for member in sorted(self.kernels[number]):
            needed = (p for p in self.graph.predecessors[member] if self.number[p] == number)
            if _is_elementwise(self.graph, member) and set(front).issuperset(needed):
                front.append(member)
        return front

    def _parts(self, front: Sequence[int]) -> list[list[int]]:
        """The front in parts that share no value that a kernel makes, each ascending."""
        parts: list[list[int]] = []
        for member in front:
            values = self._values(member)
            touching = [part for part in parts if any(values & self._values(other) for other in part)]
            parts = [part for part in parts if part not in touching]
            parts.append(sorted([member, *(m for part in touching for m in part)]))
        return parts

    def _values(self, member: int) -> set[int]:
        operator = self.graph.operators[member]
        read = {v for v in operator.inputs if v is not None and self.graph.values[v].producer is not None}
        return read | set(operator.outputs)

    def _target(self, part: Sequence[int], number: int) -> int | None:
        """The kernel that makes the last of their operands, if nobody else reads that and it can take the operators."""
        made = {v for member in part for v in self.graph.operators[member].outputs}
        read = {v for m in part for v in self.graph.operators[m].inputs if v is not None} - made
        last = max((self._maker(value) for value in read), default=-1)
        if not 0 <= last < number or not self._takes(last):
            return None
        taken = [value for value in read if self._maker(value) == last]
        leaving = [value for value in made if self._is_read(value, set(part))]
        inside = {*part, *self.kernels[last]}
        alone = not any(self._is_read(value, inside) for value in taken)
        return last if alone and len(leaving) <= len(taken) and self._alike([*taken, *leaving]) else None

    def _is_read(self, value: int, inside: set[int]) -> bool:
        """Whether an operator outside of these reads a value, or whoever runs the graph."""
        return self.graph.values[value].is_output or not inside.issuperset(self.graph.consumers[value])

    def _alike(self, values: Iterable[int]) -> bool:
        types = [self.graph.values[value].type for value in values]
        return len({None if known is None else known.shape for known in types}) == 1

    def _maker(self, value: int) -> int:
        """The kernel that makes a value; -1 for what comes from outside."""
        producer = self.graph.values[value].producer
        return -1 if producer is None else self.number[producer]

    def _takes(self, number: int) -> bool:
        """Whether it has an anchor op, and no Concat, which writes what it joins by itself."""
        found = {self.graph.operators[member].op for member in self.kernels[number]}
        return not found.isdisjoint(ANCHORS) and "Concat" not in found


def _is_elementwise(graph: OperatorGraph, member: int) -> bool:
    operator = graph.operators[member]
    known = OPERATORS.get(operator.op)
    return known is not None and not operator.is_opaque and known.category.startswith("elementwise")
