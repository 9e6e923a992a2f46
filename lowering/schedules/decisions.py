"""What a schedule leaves open: sites, each with its options and what they are estimated to cost.

A rule asks `decide` at each site. By itself that gives the cheapest option, so the schedule is the analytic one. Inside
of `following` it gives the options that are named there (where a site has them), and notes what there was to choose
from: a search changes decisions and applies the rule again, so that every candidate is one that the rules can make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

Decisions = Mapping[str, str]
"""Labels of options by the names of their sites; what is not named is decided by the estimate."""

MOST_OPTIONS = 64
"""Of a site with more, only the cheapest are options."""
WORST_COST = 4.0
"""Options whose estimate is more than so many times the best are none: the device model prunes them unbuilt."""


class _Choosable(Protocol):
    """What tells an option from the others of its site, and what a learned model may judge it by."""

    @property
    def label(self) -> str: ...

    @property
    def features(self) -> Mapping[str, float]: ...


_Any = TypeVar("_Any", bound=_Choosable)


@dataclass(frozen=True)
class Number:
    """A number to choose."""

    value: int

    @property
    def label(self) -> str:
        return str(self.value)

    @property
    def features(self) -> Mapping[str, float]:
        return {"value": float(self.value)}


Value = TypeVar("Value")


@dataclass(frozen=True)
class Named(Generic[Value]):
    """Something to choose by a name; its `cost` is in the unit of its site."""

    label: str
    cost: float
    value: Value

    @property
    def features(self) -> Mapping[str, float]:
        return {f"is {self.label}": 1.0}


@dataclass(frozen=True)
class Option:
    """One option of a site: its estimate in the site's own unit, and its features."""

    label: str
    cost: float
    features: Mapping[str, float]


@dataclass(frozen=True)
class Site:
    """A decision that was taken: `options[chosen]`; the cheapest stands first."""

    name: str
    options: tuple[Option, ...]
    chosen: int

    @property
    def option(self) -> Option:
        """The one that was taken."""
        return self.options[self.chosen]


@dataclass
class Trace:
    """The decisions of one application of a rule, in the order in which they were taken."""

    wanted: Decisions
    sites: list[Site] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)

    def named(self, site: str) -> str:
        """The full name of a site that is asked now: ``second.tile``, and ``second.tile 2`` when it is asked again."""
        name = ".".join((*self.scopes, site))
        self.asked[name] += 1
        return name if self.asked[name] == 1 else f"{name} {self.asked[name]}"


_TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def following(decisions: Decisions) -> Iterator[Trace]:
    """Rules that are applied inside take these decisions; the result notes all that they took."""
    trace = Trace(dict(decisions))
    token = _TRACE.set(trace)
    try:
        yield trace
    finally:
        _TRACE.reset(token)


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Sites inside are called ``name.site``: for functions with several blocks of a kind."""
    trace = _TRACE.get()
    if trace is None:
        yield
        return
    trace.scopes.append(name)
    try:
        yield
    finally:
        trace.scopes.pop()


def decide(site: str, choices: Sequence[_Any], cost: Callable[[_Any], float]) -> _Any:
    """One of at least one options: the one that is wanted, else the one of the least cost, the first among equals."""
    trace = _TRACE.get()
    if trace is None:
        return min(choices, key=cost)
    ranked = _worthwhile(choices, cost)
    name = trace.named(site)
    labels = [option.label for _, option in ranked]
    wanted = trace.wanted.get(name)
    chosen = labels.index(wanted) if wanted in labels else 0
    if len(ranked) > 1:
        options = tuple(Option(option.label, price, option.features) for price, option in ranked)
        trace.sites.append(Site(name, options, chosen))
    return ranked[chosen][1]


def decide_number(site: str, values: Sequence[int], cost: Callable[[int], float]) -> int:
    """The same for plain numbers."""
    return decide(site, [Number(value) for value in values], lambda number: cost(number.value)).value


def _worthwhile(options: Sequence[_Any], cost: Callable[[_Any], float]) -> list[tuple[float, _Any]]:
    """The options with their costs, the cheapest first, without those that the device model rules out."""
    ranked = sorted(((cost(option), option) for option in options), key=lambda pair: pair[0])
    limit = WORST_COST * max(ranked[0][0], 0.0)
    return [pair for pair in ranked[:MOST_OPTIONS] if pair[0] <= limit or pair is ranked[0]]
