"""Certificates checked by z3, which finds an order of its own; those that the certificate and the graph state are only
compared with the edges.

One question (support/solvers.py): are there places of the operators and of the groups such that an operator has a
higher place than each operator of its group that it reads, and a group a higher place than each group of which it reads
an operator? Then the quotient graph is acyclic, and the graph is, for no cycle stays inside a group or leaves it. Every
group is convex, too: a path that left a group and came back would lead to ever higher groups. If there are none, the
unsatisfiable core has a cycle, of groups or of operators.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.graph import OperatorGraph
from ....support.solvers import UndecidedOrderError, find_cycle
from ..groups import PartitionError
from .certificate import Certificate, check, crossings_of, cycle_error, labels_of, operator_names


class UndecidedError(PartitionError):
    """z3 did not answer within the time limit."""


@dataclass(frozen=True)
class Proof:
    """The numbers that z3 has proven: operators and groups that have an order, edges between groups that all go up
    theirs, and convex groups of several operators (a single operator is convex in any case)."""

    operators: int
    groups: int
    edges: int
    convex: int

    def __str__(self) -> str:
        """``checked by z3: 24 operators and 9 groups in acyclic orders, 7 groups of several operators convex``."""
        counts = ((self.operators, "operator"), (self.groups, "group"), (self.convex, "group"))
        operators, groups, convex = (f"{count} {noun}{'s' if count != 1 else ''}" for count, noun in counts)
        return f"checked by z3: {operators} and {groups} in acyclic orders, {convex} of several operators convex"


def certify(graph: OperatorGraph, certificate: Certificate, time_limit: float = 60.0) -> Proof:
    """Have z3 prove that the graph and its quotient graph are acyclic and every group is convex.

    Raises CertificateError if the certificate is not of this graph, PartitionError if it is wrong: with the
    cycle that z3 found, or the edge that goes against the order of the certificate or of the graph; and UndecidedError
    if z3 does not answer in `time_limit` seconds.
    """
    labels = labels_of(graph, certificate)
    crossings = crossings_of(graph, labels)
    size = len(graph)
    inside = [
        (source, reader)
        for reader, sources in enumerate(graph.predecessors)
        for source in sources
        if labels[source] == labels[reader]
    ]
    between = [(size + crossing.tail, size + crossing.head) for crossing in crossings]
    try:
        cycle = find_cycle([*between, *inside], time.monotonic() + time_limit)
    except UndecidedOrderError:
        raise UndecidedError(
            "z3 could not check the certificate within the time limit; give it more seconds"
        ) from None
    if cycle and cycle[0] < len(between):
        raise cycle_error(graph, [crossings[position] for position in cycle])
    if cycle:
        raise PartitionError(_describe_loop(graph, [inside[position - len(between)][0] for position in cycle]))
    check(graph, certificate)
    _require_topological(graph)
    return Proof(size, len(certificate.groups), len(crossings), _count_several(labels))


def _require_topological(graph: OperatorGraph) -> None:
    """Raise PartitionError if an operator stands before one that it reads."""
    names = operator_names(graph)
    for reader, sources in enumerate(graph.predecessors):
        if sources and sources[-1] >= reader:
            raise PartitionError(f"{names[reader]!r} reads {names[sources[-1]]!r}, which stands behind it in the graph")


def _describe_loop(graph: OperatorGraph, operators: Sequence[int]) -> str:
    names = operator_names(graph)
    return f"operators form a cycle: {' -> '.join(names[operator] for operator in (*operators, operators[0]))}"


def _count_several(labels: Sequence[int]) -> int:
    """How many groups have several operators."""
    return sum(size > 1 for size in Counter(labels).values())
