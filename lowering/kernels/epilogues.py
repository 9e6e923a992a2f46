"""Element-wise operators at the front of a kernel, moved behind the anchor op of the kernel before.

    {DepthwiseConv} {Clip, Conv}    =>    {DepthwiseConv, Clip} {Conv}

By bytes both are the same, and a partition may have either. But an anchor op reads its operand many times, so operators
in front of it are computed as often, or into a buffer of their own; behind one they work on registers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...costmodels.fused import ANCHORS
from ...extract.partition.kernels import Members
from ...ir.graph import OperatorGraph
from ...ir.operators import ELEMENTWISE


def move_epilogues(graph: OperatorGraph, kernels: Sequence[Sequence[int]]) -> tuple[Members, ...]:
    """The kernels, in the same running order, with such operators moved; kernels that this empties are left out."""
    mover = _EpilogueMover(graph, [list(kernel) for kernel in kernels])
    for number in range(len(kernels)):
        for part in mover.front_parts(number):
            mover.move(part, number)
    return tuple(tuple(kernel) for kernel in mover.kernels if kernel)


class _EpilogueMover:
    """The kernels while operators move between them; `home` is the number of the kernel of each operator."""

    def __init__(self, graph: OperatorGraph, kernels: list[list[int]]) -> None:
        self.graph, self.kernels = graph, kernels
        self.home = {member: number for number, kernel in enumerate(kernels) for member in kernel}

    def front_parts(self, number: int) -> list[list[int]]:
        """Element-wise operators that need nothing of the kernel but each other.

        They come in parts that share no value that a kernel makes, each ascending.
        """
        front: set[int] = set()
        parts: list[list[int]] = []
        for member in sorted(self.kernels[number]):
            needed = (p for p in self.graph.predecessors[member] if self.home[p] == number)
            if not self._is_elementwise(member) or not front.issuperset(needed):
                continue
            front.add(member)
            values = self._values(member)
            touching = [part for part in parts if any(values & self._values(other) for other in part)]
            parts = [part for part in parts if part not in touching]
            parts.append(sorted([member, *(m for part in touching for m in part)]))
        return parts

    def move(self, part: list[int], number: int) -> None:
        """Move the longest beginning of the part that a kernel before can take."""
        for size in range(len(part), 0, -1):
            target = self._find_target(part[:size], number)
            if target is not None:
                self.kernels[number] = [m for m in self.kernels[number] if m not in part[:size]]
                self.kernels[target] = sorted([*self.kernels[target], *part[:size]])
                self.home.update(dict.fromkeys(part[:size], target))
                return

    def _find_target(self, part: Sequence[int], number: int) -> int | None:
        """The kernel that makes the last of their operands, if nobody else reads that and it can take the operators.

        It has an anchor op, and no Concat, which writes the joined tensor by itself.
        """
        outputs = {v for member in part for v in self.graph.operators[member].outputs}
        read = {v for m in part for v in self.graph.operators[m].inputs if v is not None} - outputs
        last = max((self._maker(value) for value in read), default=-1)
        if not 0 <= last < number:
            return None
        operators = {self.graph.operators[member].op for member in self.kernels[last]}
        if operators.isdisjoint(ANCHORS) or "Concat" in operators:
            return None
        taken = [value for value in read if self._maker(value) == last]
        leaving = [value for value in outputs if self._is_read_outside(value, part)]
        inside = {*part, *self.kernels[last]}
        types = [self.graph.values[value].type for value in (*taken, *leaving)]
        same_shape = len({None if type_ is None else type_.shape for type_ in types}) == 1
        alone = not any(self._is_read_outside(value, inside) for value in taken)
        return last if alone and len(leaving) <= len(taken) and same_shape else None

    def _values(self, member: int) -> set[int]:
        operator = self.graph.operators[member]
        read = {v for v in operator.inputs if v is not None and self.graph.values[v].producer is not None}
        return read | set(operator.outputs)

    def _is_read_outside(self, value: int, inside: Collection[int]) -> bool:
        """Whether an operator outside of these reads a value, or whoever runs the graph."""
        return self.graph.values[value].is_output or not set(inside).issuperset(self.graph.consumers[value])

    def _maker(self, value: int) -> int:
        """The kernel that makes a value; -1 for one from outside."""
        producer = self.graph.values[value].producer
        return -1 if producer is None else self.home[producer]

    def _is_elementwise(self, member: int) -> bool:
        operator = self.graph.operators[member]
        return operator.op in ELEMENTWISE and not operator.is_opaque
