"""Loops of an e-graph, where alone a selection of e-nodes could have a cycle, and the proof that it has none.

A loop is a strongly connected component with a cycle, of the e-classes that the roots reach through e-nodes that may be
chosen. z3 is asked about what the chosen e-nodes read inside of loops (support/solvers.py): whether the classes have an
order in which each comes behind those that it is built from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...support.directed_graphs import cyclic_components
from ...support.solvers import Pair

Children = tuple[int, ...]
"""The e-classes that an e-node reads."""
Proof = Literal["no loops", "no reads in loops", "z3", "undecided"]
"""Why a selection is acyclic: the e-graph has no loops, the selection reads nothing inside of them, z3 found an order.
"undecided" if z3 gave no answer: then only the search itself has looked for cycles."""


@dataclass(frozen=True)
class Loops:
    """The loops of an e-graph that a selection is from: their number, that of the classes chosen in them, and the reads
    between these, each as a class and the one that reads it."""

    count: int = 0
    classes: int = 0
    reads: tuple[Pair, ...] = field(default=(), repr=False)


NO_LOOPS = Loops()


@dataclass(frozen=True)
class Acyclicity:
    """Why a selection is acyclic, the number of loops of its e-graph, of the classes chosen in them and of the reads
    between these."""

    proof: Proof
    loops: int
    classes: int
    reads: int

    @staticmethod
    def of(loops: Loops, *, is_decided: bool = True) -> Acyclicity:
        """The proof once z3 has found an order for the reads, or gave no answer about them."""
        proof: Proof = "z3" if is_decided else "undecided"
        if not loops.reads:
            proof = "no reads in loops" if loops.count else "no loops"
        return Acyclicity(proof, loops.count, loops.classes, len(loops.reads))

    def __str__(self) -> str:
        """``acyclic (z3: 14 e-classes of 7 loops have an order)``."""
        loops = f"{self.loops} loop{'s' if self.loops != 1 else ''}"
        reason = {
            "no loops": "the e-graph has no loops",
            "no reads in loops": f"the choices inside {loops} do not read each other",
            "z3": f"z3: {self.classes} e-classes of {loops} have an order",
            "undecided": f"by the search alone: z3 gave no answer about {self.classes} e-classes of {loops}",
        }[self.proof]
        return f"acyclic ({reason})"


def find_loops(
    candidates: Callable[[int], Iterable[Children]], roots: Iterable[int], choice: Mapping[int, Children]
) -> Loops:
    """The loops that the roots reach, and what a choice reads inside of them.

    `candidates` gives the e-nodes of a class that may be chosen, of which those that read their own class never are.
    Nothing is taken for granted about `choice`: what it reads is followed, too.
    """
    successors: dict[int, tuple[int, ...]] = {}
    stack = list(roots)
    while stack:
        owner = stack.pop()
        if owner not in successors:
            read = dict.fromkeys(child for node in candidates(owner) if owner not in node for child in node)
            successors[owner] = (*read, *(child for child in choice.get(owner, ()) if child not in read))
            stack += successors[owner]
    home = {owner: number for number, loop in enumerate(cyclic_components(successors)) for owner in loop}
    inside = [owner for owner in choice if owner in home]
    reads = tuple(
        (child, owner)
        for owner in inside
        for child in dict.fromkeys(choice[owner])
        if home.get(child) == home[owner]
    )
    return Loops(len(set(home.values())), len(inside), reads)
