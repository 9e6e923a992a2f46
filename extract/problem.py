"""The extraction problem over an abstract e-graph, and its solution.

An e-graph is a list of e-classes; an e-class is a list of e-nodes (here: candidates) that compute the same value.
Extraction picks one candidate for every class that is needed, starting from the roots, so that no class needs
itself and the sum of the costs of the distinct classes picked (the DAG cost) is least. The problem is NP-hard
(Stepp, "Equality Saturation", 2011, section 3.4; Goharshady et al., "Fast and Optimal Extraction for Sparse Equality
Graphs", OOPSLA 2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..errors import EqfuseError

# Two costs closer than this, relative to the larger, are equal: the earlier candidate wins, and a bound this close
# to the cost proves it optimal.
TOLERANCE = 1e-9

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
    components: independent subproblems that needed a decision; distinct_components: those really solved.
    """

    choice: Mapping[int, int]
    cost: float
    lower_bound: float
    status: Status
    components: int
    distinct_components: int

    @property
    def gap(self) -> float:
        """How far the cost may be above the optimum, relative to the cost: 0 is proven optimal."""
        return (self.cost - self.lower_bound) / self.cost if self.cost > 0 else 0.0


def dag_cost(problem: Problem, choice: Mapping[int, int]) -> float:
    """The sum of the costs of the chosen candidates, correctly rounded (hence independent of their order)."""
    return math.fsum(problem.classes[number][index].cost for number, index in choice.items())


def reached(problem: Problem, picked: Mapping[int, int]) -> dict[int, int]:
    """The picks that the roots need. Raises ExtractionError where an e-class among them has none."""
    choice: dict[int, int] = {}
    stack = list(problem.roots)
    while stack:
        number = stack.pop()
        if number not in choice:
            if number not in picked:
                raise ExtractionError(f"e-class {number} is needed and has no e-node")
            choice[number] = picked[number]
            stack.extend(problem.classes[number][picked[number]].children)
    return choice
