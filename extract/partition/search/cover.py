"""The cheapest acyclic cover of a region by given sets, each with an arbitrary cost: proven optimal.

Set partitioning: every node is in one chosen set, and the sets can run one after the other. Two solvers share one
reduction, after Dantzig and Wolfe: the dual of the linear relaxation gives each node a share of the cost, and a set
costs its excess over the shares of its nodes. Sets whose excess alone is no less than that of a known
cover are dropped. The shares are made feasible in exact integers, so nothing rests on the accuracy of the linear
program.

1. Shortest path over the lattice of ideals (sets of nodes that have run), exact and acyclic by construction: it takes
   milliseconds if the region is narrow, but the ideals grow exponentially with its width.
2. z3, if there are too many ideals: a Boolean per set, the excesses as soft constraints, cycles ruled out lazily.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ....support.bitsets import bits
from ....support.directed_graphs import short_cycles
from ....support.solvers import as_integers, check_within, sparse_matrix, z3_context
from .convex import Region

_WIDTHS = (32, 1024)
"""Ideals kept of each size. The first search finds a cheap cover, mostly the cheapest; if it had to drop ideals, its
cover bounds the second search, and z3 after that."""
_LEAST_SECONDS = 0.01
"""With less time than this z3 is not asked."""


@dataclass(frozen=True)
class CoverProblem:
    """`sets` are masks of nodes of the region, connected or not, each convex; `costs` are finite."""

    region: Region
    sets: tuple[int, ...]
    costs: tuple[float, ...]

    @cached_property
    def direct(self) -> tuple[int, ...]:
        """Per node, the mask of the nodes that it depends on directly."""
        masks = [0] * self.region.size
        for tail, head in self.region.precedences:
            masks[head] |= 1 << tail
        return tuple(masks)

    @cached_property
    def needs(self) -> tuple[int, ...]:
        """Per set, the mask of the nodes that must run before it: those outside it that its own depend on directly."""
        return tuple(functools.reduce(int.__or__, (self.direct[n] for n in bits(mask))) & ~mask for mask in self.sets)


@dataclass(frozen=True)
class Cover:
    """Positions of the chosen sets, ascending, and whether no acyclic cover by the given sets is cheaper."""

    chosen: tuple[int, ...]
    proven: bool


@dataclass(frozen=True)
class _Reduced:
    """The sets that can be in a cover cheaper than the known one, by position, with their excess over the shares.

    A cover is cheaper if and only if the sum of its excesses is below `limit`.
    """

    problem: CoverProblem
    positions: tuple[int, ...]
    excess: tuple[int, ...]
    limit: int

    def cost(self, chosen: Sequence[int]) -> int:
        """The sum of the excesses of kept sets."""
        by_position = dict(zip(self.positions, self.excess, strict=True))
        return sum(by_position[position] for position in chosen)


def cheapest_cover(
    problem: CoverProblem, incumbent: Sequence[int], deadline: float, widths: Sequence[int] = _WIDTHS
) -> Cover:
    """The cheapest acyclic cover, or `incumbent` (positions of an acyclic cover) if none is cheaper.

    If the deadline (time.monotonic) comes before z3's answer, it is not proven, but the best that the paths have found.
    """
    weights, _ = as_integers(problem.costs)
    shares = _make_feasible(problem, weights, _dual_shares(problem, weights))
    excess = [weight - sum(shares[n] for n in bits(mask)) for mask, weight in zip(problem.sets, weights, strict=True)]
    best = list(incumbent)
    for width in widths:
        path = _search_ideals(_reduce(problem, excess, best), width, deadline)
        best = path.chosen or best
        if path.complete:
            return Cover(tuple(sorted(best)), True)
    return _search_by_z3(_reduce(problem, excess, best), best, deadline)


def _reduce(problem: CoverProblem, excess: Sequence[int], incumbent: Sequence[int]) -> _Reduced:
    limit = sum(excess[position] for position in incumbent)
    kept = tuple(position for position, value in enumerate(excess) if value < limit)
    return _Reduced(problem, kept, tuple(excess[position] for position in kept), limit)


def _dual_shares(problem: CoverProblem, weights: Sequence[int]) -> list[int]:
    """The dual solution of the linear relaxation, rounded: near to feasible, near to the best lower bound."""
    import numpy
    from scipy.optimize import linprog

    scale = max(map(abs, weights)) or 1
    rows = [node for mask in problem.sets for node in bits(mask)]
    columns = [column for column, mask in enumerate(problem.sets) for _ in bits(mask)]
    matrix = sparse_matrix([1.0] * len(rows), rows, columns, (problem.region.size, len(weights)))
    costs = numpy.array([weight / scale for weight in weights])
    result = linprog(costs, A_eq=matrix, b_eq=numpy.ones(problem.region.size), bounds=(0, None), method="highs-ds")
    if result.status != 0:
        return [0] * problem.region.size
    return [round(float(share) * scale) for share in result.eqlin.marginals]


def _make_feasible(problem: CoverProblem, weights: Sequence[int], shares: list[int]) -> list[int]:
    """The shares, lowered evenly until no set costs less than those of its nodes."""
    over = [
        -((weight - sum(shares[node] for node in bits(mask))) // mask.bit_count())
        for mask, weight in zip(problem.sets, weights, strict=True)
    ]
    excess = max(0, *over)
    return [share - excess for share in shares]


@dataclass(frozen=True)
class _IdealPath:
    """A cover below the limit, [] if none was found, and whether every path was followed."""

    chosen: list[int]
    complete: bool


def _search_ideals(reduced: _Reduced, width: int, deadline: float) -> _IdealPath:
    """The cheapest cover as a shortest path from no nodes to all, through the `width` cheapest ideals of each size.

    An arc adds a set whose needs have run. Paths that reach the limit are dropped.
    """
    best: dict[int, tuple[int, int, int]] = {0: (0, -1, 0)}
    layers: list[list[int]] = [[0], *([] for _ in range(reduced.problem.region.size))]
    arcs = _Arcs(reduced)
    complete = True
    for layer in layers:
        if time.monotonic() > deadline:
            return _IdealPath([], False)
        if len(layer) > width:
            complete = False
            layer = sorted(layer, key=lambda ideal: best[ideal][0])[:width]
        for ideal in layer:
            cost = best[ideal][0]
            for mask, excess, position in arcs.leaving(ideal, reduced.limit - cost):
                larger = ideal | mask
                if larger not in best:
                    layers[larger.bit_count()].append(larger)
                elif best[larger][0] <= cost + excess:
                    continue
                best[larger] = (cost + excess, position, ideal)
    chosen = []
    ideal = (1 << reduced.problem.region.size) - 1
    while ideal in best and ideal:
        _, position, ideal = best[ideal]
        chosen.append(position)
    return _IdealPath(chosen, complete)


class _Arcs:
    """The sets by their first node, which must be ready before the set is."""

    def __init__(self, reduced: _Reduced) -> None:
        problem = reduced.problem
        self.direct = problem.direct
        self.all = (1 << problem.region.size) - 1
        self.by_first: list[list[tuple[int, int, int, int]]] = [[] for _ in self.direct]
        for excess, position in sorted(zip(reduced.excess, reduced.positions, strict=True)):
            mask = problem.sets[position]
            first = (mask & -mask).bit_length() - 1
            self.by_first[first].append((mask, problem.needs[position], excess, position))

    def leaving(self, ideal: int, budget: int) -> Iterator[tuple[int, int, int]]:
        """Mask, excess and position of the sets that can run next for less than the budget."""
        for node in bits(self.all & ~ideal):
            if self.direct[node] & ~ideal:
                continue
            for mask, needed, excess, position in self.by_first[node]:
                if excess >= budget:
                    break
                if not mask & ideal and not needed & ~ideal:
                    yield mask, excess, position


def _search_by_z3(reduced: _Reduced, incumbent: Sequence[int], deadline: float) -> Cover:
    search = _CoverProgram(reduced)
    while deadline - time.monotonic() > _LEAST_SECONDS:
        status, chosen = search.minimise(deadline)
        if status == "unsat" or (status == "sat" and reduced.cost(chosen) >= reduced.limit):
            return Cover(tuple(sorted(incumbent)), True)
        if status == "unknown":
            break
        cycles = short_cycles(_quotient(reduced.problem, chosen))
        if not cycles:
            return Cover(tuple(sorted(chosen)), True)
        for cycle in cycles:
            search.forbid(cycle)
    return Cover(tuple(sorted(incumbent)), False)


def _quotient(problem: CoverProblem, chosen: Sequence[int]) -> dict[int, list[int]]:
    """For each chosen set those that run after it."""
    owner = {node: position for position in chosen for node in bits(problem.sets[position])}
    pairs = {(owner[tail], owner[head]) for tail, head in problem.region.precedences}
    edges: dict[int, list[int]] = {position: [] for position in chosen}
    for tail, head in sorted(pairs):
        if tail != head:
            edges[tail].append(head)
    return edges


class _CoverProgram:
    """One z3 optimisation over the sets that are left."""

    def __init__(self, reduced: _Reduced) -> None:
        import z3

        self.z3 = z3
        self.problem = reduced.problem
        self.chosen = {position: z3.Bool(f"set{position}", z3_context("covers")) for position in reduced.positions}
        self.together: dict[tuple[int, int], Any] = {}
        self.optimize = z3.Optimize(ctx=z3_context("covers"))
        for node in range(self.problem.region.size):
            holding = [(self.chosen[position], 1) for position in self._positions_with(1 << node)]
            self.optimize.add(z3.PbEq(holding, 1) if holding else z3.BoolVal(False, z3_context("covers")))
        paid = [(self.chosen[p], e) for p, e in zip(reduced.positions, reduced.excess, strict=True) if e]
        for literal, excess in paid:
            self.optimize.add_soft(z3.Not(literal), str(excess))

    def _positions_with(self, nodes: int) -> list[int]:
        """The sets that hold all of some nodes."""
        return [position for position in self.chosen if self.problem.sets[position] & nodes == nodes]

    def _together(self, one: int, other: int) -> Any:
        """A literal that is true if one chosen set holds both nodes."""
        pair = min(one, other), max(one, other)
        if pair not in self.together:
            self.together[pair] = self.z3.Bool(f"together{pair[0]}_{pair[1]}", z3_context("covers"))
            for position in self._positions_with(1 << one | 1 << other):
                self.optimize.add(self.z3.Implies(self.chosen[position], self.together[pair]))
        return self.together[pair]

    def forbid(self, cycle: Sequence[int]) -> None:
        """Rule out a cycle of sets, with every other that the same edges would close.

        If each set of the cycle holds the node where the cycle comes in and the one where it goes out, the first
        edge cannot cross: both its ends are in one set.
        """
        masks = [self.problem.sets[position] for position in cycle]
        crossed = [self._crossing(tail, head) for tail, head in zip(masks, [*masks[1:], masks[0]], strict=True)]
        turns = zip([crossed[-1], *crossed[:-1]], crossed, strict=True)
        apart = [self.z3.Not(self._together(into[1], out[0])) for into, out in turns if into[1] != out[0]]
        tail, head = crossed[0]
        joined = [self.chosen[position] for position in self._positions_with(1 << tail | 1 << head)]
        self.optimize.add(self.z3.Or(apart + joined))

    def _crossing(self, tail: int, head: int) -> tuple[int, int]:
        """The first edge from one set to another."""
        return next((i, j) for i, j in self.problem.region.precedences if tail >> i & 1 and head >> j & 1)

    def minimise(self, deadline: float) -> tuple[str, list[int]]:
        """z3's answer and the cheapest sets under the clauses so far, cyclic perhaps."""
        status = check_within(deadline, self.optimize)
        if status != self.z3.sat:
            return str(status), []
        model = self.optimize.model()
        return "sat", [position for position, literal in self.chosen.items() if self.z3.is_true(model[literal])]
