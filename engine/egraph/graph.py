"""The e-graph in Python: e-classes of e-nodes, with the results of the analyses for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ...ir.types import TensorType
from .loops import NO_LOOPS, Loops

Literal = int | float | str | tuple[int, ...]
NONEMPTY_SYMBOLS = -1_000_000
"""The numbers of symbolic dimensions that are never 0 lie below this one, which rules know (`least-size`)."""
EMPTY_SYMBOLS = -250_000
"""Between this and half of `NONEMPTY_SYMBOLS` lie those that may be 0 because the user says so, or although the symbols
they depend on are not. All others may be 0 because nothing is known of them."""


@dataclass(frozen=True)
class ENode:
    """A constructor, its literals, and its operands as indices (of e-classes, or of terms before saturation).

    Literals and operands each have the order of the constructor's arguments. The operands of an opaque ``Op`` are its
    list, flattened.
    """

    op: str
    attributes: tuple[Literal, ...]
    children: tuple[int, ...]


@dataclass(frozen=True)
class EClass:
    """Terms proven equal. `type` is None if the analyses did not find it; `uniform` is the number that all elements of
    a constant have; `subsumed` are nodes that a rule has replaced by better ones."""

    nodes: tuple[ENode, ...]
    type: TensorType | None
    constant: bool
    uniform: float | None = None
    subsumed: frozenset[ENode] = frozenset()


@dataclass(frozen=True)
class RuleStatistics:
    """How often a rule matched, and the seconds spent on it."""

    name: str
    matches: int
    seconds: float


@dataclass(frozen=True)
class Saturation:
    """Figures of a saturation: `growth` is the number of e-nodes after each iteration; `seconds` exclude the rules."""

    stop_reason: str
    iterations: int
    growth: tuple[int, ...] = field(repr=False)
    seconds: float
    rules: tuple[RuleStatistics, ...] = field(repr=False)

    @property
    def budget_hit(self) -> bool:
        """Whether a limit ended it before the rules found nothing new."""
        return self.stop_reason != "saturated"

    @property
    def out_of_time(self) -> bool:
        """Whether the time limit ended it."""
        return self.stop_reason == "time limit"

    @property
    def is_void(self) -> bool:
        """Whether it ended before one iteration was complete, so that the e-graph is the original model."""
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
        """The class of (Absent), -1 if the e-graph has none."""
        return next((i for i, c in enumerate(self.classes) if any(n.op == "Absent" for n in c.nodes)), -1)

    @property
    def enodes(self) -> int:
        """Number of e-nodes."""
        return sum(len(c.nodes) for c in self.classes)


@dataclass(frozen=True)
class Selection:
    """One e-node chosen for every class that the outputs need.

    Invariant: the chosen nodes form an acyclic graph that reaches every root. `lower_bound` is proven: no choice is
    cheaper. `out_of_time` says whether the time limit ended the search for the optimum. `loops` is where there could be
    a cycle: what has to be proven of the choice.
    """

    choice: Mapping[int, ENode] = field(repr=False)
    cost: float
    lower_bound: float
    status: str
    out_of_time: bool = False
    loops: Loops = NO_LOOPS

    @property
    def gap(self) -> float:
        """Proven distance from the optimum, relative."""
        return 0.0 if self.cost <= self.lower_bound else (self.cost - self.lower_bound) / max(self.cost, 1e-300)


class NodePosition(NamedTuple):
    """An e-node by its class and its place in that class."""

    owner: int
    place: int


class WaitingNodes:
    """E-nodes that wait for the classes of their operands, for walks from the leaves to the roots."""

    def __init__(self) -> None:
        self._users: dict[int, list[NodePosition]] = {}
        self._missing: dict[NodePosition, int] = {}

    def add(self, position: NodePosition, operands: Iterable[int]) -> bool:
        """Add an e-node. Returns whether it has no operands to wait for."""
        classes = set(operands)
        self._missing[position] = len(classes)
        for owner in classes:
            self._users.setdefault(owner, []).append(position)
        return not classes

    def provide(self, owner: int) -> list[NodePosition]:
        """Mark a class as done, once. Returns the e-nodes that waited for it alone."""
        ready = []
        for user in self._users.get(owner, ()):
            self._missing[user] -= 1
            if not self._missing[user]:
                ready.append(user)
        return ready


def postorder(roots: Iterable[int], operands: Callable[[int], Iterable[int]]) -> list[int]:
    """The classes that the roots reach, each after its `operands`, of which one in a cycle may come later."""
    done: dict[int, None] = {}
    begun: set[int] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        owner, is_ready = stack.pop()
        if is_ready:
            done[owner] = None
        if owner in begun:
            continue
        begun.add(owner)
        stack.append((owner, True))
        stack += [(operand, False) for operand in reversed(list(operands(owner))) if operand not in done]
    return list(done)
