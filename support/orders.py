"""Orders of the nodes of a directed graph, asked of z3's difference logic.

Each node has an integer that z3 is free to choose, its place in the order, and each pair of nodes says that the first
has the lower one. A set of pairs that no places satisfy has a cycle.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from .directed_graphs import find_short_cycle
from .errors import EqfuseError
from .solvers import check_within, z3_context

_DIFFERENCE_LOGIC = 1
"""z3's number of its solver for differences of integers: with 6,000 nodes it takes half the time of the others."""

Pair = tuple[int, int]
"""Two nodes, the first of which comes before the second."""


class UndecidedOrderError(EqfuseError):
    """z3 did not answer within the time limit."""


@dataclass(frozen=True)
class OrderQuestion:
    """Whether nodes have an order in which every pair ascends; z3 may take `seconds` to answer."""

    pairs: tuple[Pair, ...]
    seconds: float

    def answer(self) -> tuple[int, ...]:
        """The positions of the pairs that form a cycle, along it; () if there is an order. Raises
        UndecidedOrderError."""
        return find_cycle(self.pairs, time.monotonic() + self.seconds)


def find_cycle(pairs: Sequence[Pair], deadline: float) -> tuple[int, ...]:
    """The positions of pairs that form a cycle, along it; () if z3 finds an order in which every pair ascends.

    Raises UndecidedOrderError if z3 has no answer by the deadline (time.monotonic).
    """
    if not pairs:
        return ()
    if time.monotonic() >= deadline:
        raise UndecidedOrderError("z3 had no time to look for an order")
    import z3  # here: importing it takes longer than most answers

    context = z3_context("orders")
    solver = z3.SimpleSolver(ctx=context)
    solver.set("arith.solver", _DIFFERENCE_LOGIC)
    places = {node: z3.Int(f"place{node}", context) for node in sorted({node for pair in pairs for node in pair})}
    claims = [z3.Bool(f"pair{position}", context) for position in range(len(pairs))]
    for claim, (before, after) in zip(claims, pairs, strict=True):
        solver.add(z3.Implies(claim, places[before] < places[after]))
    status = check_within(deadline, solver, claims)
    if status == z3.unknown:
        raise UndecidedOrderError("z3 did not find in time whether there is an order")
    if status == z3.sat:
        return ()
    # z3 would look for a minimal core after its time limit: seconds for a cycle of thousands of pairs
    core = [int(str(claim).removeprefix("pair")) for claim in solver.unsat_core()]
    return tuple(core[position] for position in find_short_cycle([pairs[position] for position in core]))
