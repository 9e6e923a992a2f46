"""Certificates checked by z3: three questions, each about the graph's edges themselves.

1. The selection is acyclic: with an integer per operator that extraction chose and ``place(p) < place(m)`` wherever m
   reads p, are the operators' places in the graph a solution?
2. The quotient graph is acyclic: with an integer per group and ``order(i) < order(j)`` for every edge that crosses from
   i to j, are the numbers of the certificate a solution? If not, the minimal unsatisfiable core without those numbers
   is a cycle.
3. Convex, without any order: is there a path that leaves some group and comes back? `away` says which operators are
   on such a path. Each has a reader that is on it or in the group, and reads one of these, so in a finite graph without
   cycles a solution is a path, and each path a solution. The answer must be that there is none.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....ir.graph import OperatorGraph
from ....support.solvers import check_within, z3_context
from ..groups import PartitionError
from .certificate import Certificate, Crossing, crossings_of, disproof, labels_of, operator_names


class UndecidedError(PartitionError):
    """z3 did not answer within the time limit."""


@dataclass(frozen=True)
class Proof:
    """The numbers that z3 has proven: operators that read only earlier ones, groups, edges between them that all go up
    the order, and convex groups of several operators (a single operator is convex in any case)."""

    operators: int
    groups: int
    edges: int
    convex: int

    def __str__(self) -> str:
        """``checked by z3: 24 operators and 9 groups in acyclic orders, 7 groups of several operators convex``."""
        return (
            f"checked by z3: {self.operators} operators and {self.groups} groups in acyclic orders, "
            f"{self.convex} groups of several operators convex"
        )


def certify(graph: OperatorGraph, certificate: Certificate, time_limit: float = 60.0) -> Proof:
    """Have z3 prove that the graph and its quotient graph are acyclic and every group is convex.

    Raises CertificateError if the certificate is not of this graph, PartitionError if it is wrong: with the
    cycle that z3 found, or the edge that goes against the order; and UndecidedError if z3 does not answer in
    `time_limit` seconds.
    """
    deadline = time.monotonic() + time_limit
    labels = labels_of(graph, certificate)
    crossings = crossings_of(graph, labels)
    reads = [(source, reader) for reader, sources in enumerate(graph.predecessors) for source in sources]
    if not _holds(reads, range(len(graph)), deadline):
        raise PartitionError("an operator of the graph reads the result of a later one")
    if not _holds([(crossing.tail, crossing.head) for crossing in crossings], certificate.order, deadline):
        raise disproof(graph, certificate, _core(crossings, deadline) or crossings)
    away = path_out_and_back(graph, labels, deadline)
    if away:
        path = ", ".join(operator_names(graph)[index] for index in away)
        raise PartitionError(f"a group is not convex: paths leave it and come back through {path}")
    return Proof(len(graph), len(certificate.groups), len(crossings), len(_several(labels)))


def _context() -> Any:
    return z3_context("certificates")


def _decide(solver: Any, assumptions: Sequence[Any], deadline: float) -> bool:
    """Whether the assertions of a solver have a solution. Raises UndecidedError if z3 cannot tell in time."""
    import z3

    status = z3.unknown
    if time.monotonic() < deadline:
        status = check_within(deadline, solver, assumptions)
    if status == z3.unknown:
        raise UndecidedError("z3 could not check the certificate within the time limit; give it more seconds")
    return bool(status == z3.sat)


def _holds(edges: Sequence[tuple[int, int]], order: Sequence[int], deadline: float) -> bool:
    """Whether every edge goes up the order, which holds the number of each node."""
    import z3

    solver = z3.SolverFor("QF_IDL", ctx=_context())
    place = [z3.Int(f"order{node}", _context()) for node in range(len(order))]
    solver.add([place[node] == number for node, number in enumerate(order)])
    solver.add([place[tail] < place[head] for tail, head in edges])
    return _decide(solver, (), deadline)


def _core(crossings: Sequence[Crossing], deadline: float) -> list[Crossing]:
    """A minimal set of crossings that no order satisfies, so a cycle; [] if some order satisfies them all."""
    import z3

    solver = z3.SimpleSolver(ctx=_context())
    solver.set("core.minimize", True)
    by_name = {f"crossing{number}": crossing for number, crossing in enumerate(crossings)}
    for name, crossing in by_name.items():
        tail, head = (z3.Int(f"order{group}", _context()) for group in (crossing.tail, crossing.head))
        solver.add(z3.Implies(z3.Bool(name, _context()), tail < head))
    if _decide(solver, [z3.Bool(name, _context()) for name in by_name], deadline):
        return []
    return [by_name[str(name)] for name in solver.unsat_core()]


def path_out_and_back(graph: OperatorGraph, labels: Sequence[int], deadline: float) -> tuple[int, ...]:
    """Operators on paths that leave some group and come back to it; () if every group is convex.

    `labels` holds the group of each operator. Raises UndecidedError if z3 does not answer by the deadline
    (time.monotonic).
    """
    import z3

    solver = z3.SolverFor("QF_FD", ctx=_context())
    solver.add(_claims(graph, labels, _several(labels)))
    if not _decide(solver, (), deadline):
        return ()
    model = solver.model()
    away = (z3.Bool(f"away{index}", _context()) for index in range(len(graph)))
    return tuple(index for index, literal in enumerate(away) if z3.is_true(model[literal]))


def _several(labels: Sequence[int]) -> list[int]:
    """The groups of several operators: a single one is convex in any acyclic graph."""
    return [label for label, size in Counter(labels).items() if size > 1]


def _claims(graph: OperatorGraph, labels: Sequence[int], groups: Sequence[int]) -> list[Any]:
    import z3

    context = _context()
    away = [z3.Bool(f"away{index}", context) for index in range(len(graph))]
    left = {group: z3.Bool(f"left{group}", context) for group in groups}
    inside = [left.get(label, z3.BoolVal(False, context)) for label in labels]
    if not groups:
        return [z3.BoolVal(False, context)]
    claims = [z3.PbEq([(choice, 1) for choice in left.values()], 1), z3.Or(away)]
    for index, (sources, readers) in enumerate(zip(graph.predecessors, graph.successors, strict=True)):
        claims.append(z3.Not(z3.And(away[index], inside[index])))
        for neighbours in (sources, readers):
            near = [literal for other in neighbours for literal in (away[other], inside[other])]
            claims.append(z3.Implies(away[index], z3.Or([z3.BoolVal(False, context), *near])))
    return claims
