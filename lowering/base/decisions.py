"""The decisions of a schedule as data: sites with options and their estimated costs.

A rule asks the trace that it is given at each site. A trace without wanted decisions takes the cheapest option
everywhere: the analytic schedule. Otherwise it takes the wanted options, if a site has them. It records
every site in order, so a search changes decisions and applies the rule again: the rules make every candidate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

Decisions = Mapping[str, str]
"""Labels of options by the names of their sites; a site that is not named takes its cheapest option."""

MOST_OPTIONS = 64
"""A site with more options keeps only its cheapest ones."""
WORST_COST = 4.0
"""An option that is estimated to cost more than this multiple of the best is dropped without being built."""


class Choosable(Protocol):
    """An option: a label that is unique at its site, and features that a learned model may judge it by."""

    @property
    def label(self) -> str: ...

    @property
    def features(self) -> Mapping[str, float]: ...


_Choice = TypeVar("_Choice", bound=Choosable)
_Value = TypeVar("_Value")


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


@dataclass(frozen=True)
class Alternative(Generic[_Value]):
    """A value to choose by its label; `cost` is in the unit of the site."""

    label: str
    cost: float
    value: _Value

    @property
    def features(self) -> Mapping[str, float]:
        return {f"is {self.label}": 1.0}


@dataclass(frozen=True)
class Option:
    """A recorded option of a site: its estimate in the site's own unit, and its features."""

    label: str
    cost: float
    features: Mapping[str, float]


@dataclass(frozen=True)
class DecisionSite:
    """A recorded decision: `options[chosen]` was taken; the cheapest option is first."""

    name: str
    options: tuple[Option, ...]
    chosen: int

    @property
    def option(self) -> Option:
        """The option that was taken."""
        return self.options[self.chosen]


@dataclass(frozen=True)
class Trace:
    """Replays the `wanted` decisions in one application of a rule, and records all of them in order in `sites`."""

    wanted: Decisions = field(default_factory=dict)
    prefix: str = ""
    sites: list[DecisionSite] = field(default_factory=list)
    _asked: Counter[str] = field(default_factory=Counter)

    def within(self, scope: str) -> Trace:
        """The same trace for one of several similar blocks: its sites are named ``scope.site``."""
        return replace(self, prefix=f"{self.prefix}{scope}.")

    def decide(self, site: str, choices: Sequence[_Choice], cost: Callable[[_Choice], float]) -> _Choice:
        """The wanted choice, else the cheapest, the first among equals. Expects at least one choice.

        A site that is asked again gets a number: ``second.tile``, then ``second.tile 2``.
        """
        ranked = sorted(((cost(choice), choice) for choice in choices), key=lambda pair: pair[0])
        limit = WORST_COST * max(ranked[0][0], 0.0)
        ranked = [pair for pair in ranked[:MOST_OPTIONS] if pair[0] <= limit or pair is ranked[0]]
        name = self.prefix + site
        self._asked[name] += 1
        if self._asked[name] > 1:
            name = f"{name} {self._asked[name]}"
        labels = [choice.label for _, choice in ranked]
        wanted = self.wanted.get(name)
        chosen = labels.index(wanted) if wanted in labels else 0
        if len(ranked) > 1:
            options = tuple(Option(choice.label, cost, choice.features) for cost, choice in ranked)
            self.sites.append(DecisionSite(name, options, chosen))
        return ranked[chosen][1]

    def decide_number(self, site: str, values: Sequence[int], cost: Callable[[int], float]) -> int:
        """Decide between numbers."""
        return self.decide(site, [Number(value) for value in values], lambda number: cost(number.value)).value

    def decide_flag(self, site: str, usual: bool) -> bool:
        """Decide between 0 and 1: `usual`, unless the other is wanted."""
        return bool(self.decide_number(site, (0, 1), lambda number: 1.0 + abs(number - usual)))

    def choose(self, site: str, alternatives: Sequence[Alternative[_Value]]) -> _Value:
        """The value of one of these alternatives."""
        return self.decide(site, alternatives, lambda alternative: alternative.cost).value
