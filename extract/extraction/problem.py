"""The extraction problem over an abstract e-graph, and its solution.

An e-graph is a list of e-classes; an e-class is a list of e-nodes (here: candidates) that compute the same value.
Extraction picks one candidate for every class that is needed, starting from the roots, so that no class needs
itself and the sum of the costs of the distinct classes picked (the DAG cost) is least. The problem is NP-hard
(Stepp, "Equality Saturation", 2011, section 3.4; Goharshady et al., "Fast and Optimal Extraction for Sparse Equality
Graphs", OOPSLA 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ...support.errors import EqfuseError

TOLERANCE = 1e-9
"""Two costs closer than this, relative to the larger, are equal: the earlier candidate wins, and a bound this close to
the cost proves it optimal."""

Status = Literal["optimal", "feasible"]


class ExtractionError(EqfuseError):
    """The problem has no acyclic extraction, or is not an e-graph at all."""


@dataclass(frozen=True)
class Candidate:
    """One e-node: its own cost (finite, at least 0, any unit) and the e-classes it reads (indices, may repeat)."""

    cost: float
    children: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """E-classes as tuples of candidates, and the classes that must be extracted.

    On equal cost the earlier candidate of a class is preferred, so put the original e-nodes first.
    Raises ExtractionError if a cost is negative or not finite, or a child or root is no class.
    """

    classes: tuple[tuple[Candidate, ...], ...]
    roots: tuple[int, ...]

    def __post_init__(self) -> None:
        count = len(self.classes)
        for number, candidates in enumerate(self.classes):
            for candidate in candidates:
                if not (math.isfinite(candidate.cost) and candidate.cost >= 0):
                    raise ExtractionError(f"e-class {number}: cost {candidate.cost} is not a finite number >= 0")
                if candidate.children and not (min(candidate.children) >= 0 and max(candidate.children) < count):
                    raise ExtractionError(f"e-class {number}: children {candidate.children} are not all below {count}")
        if any(not 0 <= root < count for root in self.roots):
            raise ExtractionError(f"roots {self.roots} are not all e-classes below {count}")


@dataclass(frozen=True)
class Solution:
    """An acyclic extraction.

    choice: for exactly the classes reachable from the roots, the index of the candidate picked.
    cost: the DAG cost of that choice. lower_bound: no extraction costs less (up to TOLERANCE).
    status: "optimal" if cost and lower_bound agree up to TOLERANCE.
    """

    choice: Mapping[int, int]
    cost: float
    lower_bound: float
    status: Status

    @property
    def gap(self) -> float:
        """The most that the cost may be above the optimum, relative to the cost: 0 is proven optimal."""
        return (self.cost - self.lower_bound) / self.cost if self.cost > 0 else 0.0


class Node(Protocol):
    """A candidate of a problem, or a choice of a core."""

    @property
    def cost(self) -> float: ...
    @property
    def children(self) -> tuple[int, ...]: ...


class Classes(Protocol):
    """A problem, or a core: for every class its nodes, and the classes that must be extracted."""

    @property
    def classes(self) -> Sequence[Sequence[Node]]: ...
    @property
    def roots(self) -> Sequence[int]: ...


def selection_cost(graph: Classes, selection: Mapping[int, int]) -> float:
    """The sum of the costs of the nodes selected, correctly rounded, hence independent of their order."""
    return math.fsum(graph.classes[number][index].cost for number, index in selection.items())


def selected_children(graph: Classes, selection: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """The children of every selected class."""
    return {number: graph.classes[number][index].children for number, index in selection.items()}


def follow_choices(graph: Classes, choose: Callable[[int], int | None]) -> dict[int, int] | None:
    """The selection that a rule makes of the classes that it reaches from the roots; None if it does not know one."""
    selection: dict[int, int] = {}
    stack = list(graph.roots)
    while stack:
        number = stack.pop()
        if number in selection:
            continue
        index = choose(number)
        if index is None:
            return None
        selection[number] = index
        stack.extend(graph.classes[number][index].children)
    return selection
