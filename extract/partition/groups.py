"""A partition of an operator graph into groups, each one sub-graph to compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...ir.graph import OperatorGraph
from ...support.directed_graphs import CycleError, short_cycles, topological_order
from ...support.errors import EqfuseError


class PartitionError(EqfuseError):
    """Groups that do not form an acyclic partition; the message names the cycle."""


@dataclass(frozen=True)
class Partition:
    """Groups of operators, numbered in an order in which they can run.

    `group` holds the number of each operator's group. Invariants: the numbers are 0 to ``count - 1``, and no operator
    reads what a later group makes. So the numbers certify that the quotient graph is acyclic and every group convex:
    a path that left a group and came back would have to go down. Make one by `partition_of`, which finds such numbers.
    """

    graph: OperatorGraph = field(repr=False)
    group: tuple[int, ...] = field(repr=False)
    method: str

    @property
    def count(self) -> int:
        """Number of groups."""
        return max(self.group, default=-1) + 1

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Operators of each group, ascending, so in topological order."""
        members: list[list[int]] = [[] for _ in range(self.count)]
        for index, number in enumerate(self.group):
            members[number].append(index)
        return tuple(map(tuple, members))

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """Values that each group reads from outside, constants too, ascending."""
        return tuple(tuple(sorted(self.graph.inputs_of(members))) for members in self.members)

    @cached_property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """Values that each group makes and others, or the caller, read, ascending."""
        return tuple(tuple(sorted(self.graph.outputs_of(members))) for members in self.members)


def partition_of(graph: OperatorGraph, labels: Sequence[int], method: str) -> Partition:
    """The partition that puts operators of equal label together. Raises PartitionError if that makes a cycle."""
    if len(labels) != len(graph):
        raise PartitionError(f"{len(labels)} groups given for {len(graph)} operators")
    readers: dict[int, set[int]] = {label: set() for label in labels}
    first_operator: dict[int, int] = {}
    for index, sources in enumerate(graph.predecessors):
        first_operator.setdefault(labels[index], index)
        for source in sources:
            if labels[source] != labels[index]:
                readers[labels[source]].add(labels[index])
    try:
        order = topological_order(readers, key=first_operator.__getitem__)
    except CycleError:
        cycle = short_cycles(readers)[0]
        raise PartitionError(f"the groups form a cycle: {' -> '.join(map(str, (*cycle, cycle[0])))}") from None
    number = {label: position for position, label in enumerate(order)}
    return Partition(graph, tuple(number[label] for label in labels), method)


def unfused(graph: OperatorGraph) -> Partition:
    """Each operator on its own."""
    return partition_of(graph, range(len(graph)), "none")


