"""The e-graph as Python sees it: e-classes of e-nodes, with what the analyses found out about each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ...ir.types import TensorType

Literal = int | float | str | tuple[int, ...]


@dataclass(frozen=True)
class ENode:
    """A constructor, its literals, and its operands as indices (of e-classes, or of terms before saturation).

    The literals and operands stand in the order of the constructor's arguments of either kind. The operands of an
    opaque ``Op`` are its list, flattened.
    """

    op: str
    attributes: tuple[Literal, ...]
    children: tuple[int, ...]


@dataclass(frozen=True)
class EClass:
    """Terms proven equal. `type` is None where the analyses could not tell it; `uniform` is the number that
    every element of a constant has."""

    nodes: tuple[ENode, ...]
    type: TensorType | None
    constant: bool
    uniform: float | None = None


@dataclass(frozen=True)
class RuleStatistics:
    """How often a rule matched, and the seconds spent on it."""

    name: str
    matches: int
    seconds: float


@dataclass(frozen=True)
class Saturation:
    """How the rewriting went: `growth` is the number of e-nodes after each iteration, `seconds` leave out the rules."""

    stop_reason: str
    iterations: int
    growth: tuple[int, ...] = field(repr=False)
    seconds: float
    rules: tuple[RuleStatistics, ...] = field(repr=False)

    @property
    def budget_hit(self) -> bool:
        """Whether a limit ended it before nothing was left to rewrite."""
        return self.stop_reason != "saturated"

    @property
    def out_of_time(self) -> bool:
        """Whether the time ended it."""
        return self.stop_reason == "time limit"

    @property
    def is_void(self) -> bool:
        """Whether it ended before a single iteration was complete: then the e-graph is the model as it was."""
        return self.iterations == 0 and self.stop_reason in ("time limit", "memory limit")

    @property
    def matched(self) -> tuple[RuleStatistics, ...]:
        """The rules that matched, without those that only derive facts."""
        return tuple(r for r in self.rules if r.matches and not r.name.startswith(("analysis.", "(")))


@dataclass(frozen=True)
class EGraph:
    """A saturated e-graph.

    `terms` maps each term of the encoding to its class; `roots` are the classes of the graph's outputs, in order.
    Invariant: children are indices into `classes`.
    """

    classes: tuple[EClass, ...]
    terms: Mapping[int, int]
    roots: tuple[int, ...]
    saturation: Saturation

    @cached_property
    def absent(self) -> int:
        """The class of (Absent), -1 where the e-graph has none."""
        return next((i for i, c in enumerate(self.classes) if any(n.op == "Absent" for n in c.nodes)), -1)

    @property
    def enodes(self) -> int:
        """Number of e-nodes."""
        return sum(len(c.nodes) for c in self.classes)


@dataclass(frozen=True)
class Selection:
    """One e-node chosen for every class that the outputs need.

    Invariant: the chosen nodes form an acyclic graph that reaches every root. `lower_bound` is proven: no choice is
    cheaper. `out_of_time` says whether the time ended the search for the optimum.
    """

    choice: Mapping[int, ENode] = field(repr=False)
    cost: float
    lower_bound: float
    status: str
    out_of_time: bool = False

    @property
    def gap(self) -> float:
        """Proven distance from the optimum, relative."""
        return 0.0 if self.cost <= self.lower_bound else (self.cost - self.lower_bound) / max(self.cost, 1e-300)
