"""The candidates that a trace shows: its sites with other options, and what a cost model would see of them unbuilt.

What a site offers may depend on what other sites took, so a space is an approximation: the schedule rule ignores
decisions that it cannot follow, and the trace of a built candidate tells which options it took.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from random import Random

from ..base.decisions import Decisions, DecisionSite
from .cost_model import TOTAL, Row, cost_ratio, option_row

Genome = tuple[int, ...]
"""The index of the option that each site of a space takes."""
PREFERENCE = 1.5
"""A mutation takes an option in proportion to this power of 1 / its cost ratio."""


def decisions_of(trace: Sequence[DecisionSite]) -> dict[str, str]:
    """The decisions of a trace in normal form: only sites that deviate from their cheapest option, by name."""
    return {site.name: site.option.label for site in sorted(trace, key=lambda site: site.name) if site.chosen}


class Space:
    """All choices at the sites of one trace. `task_row` is the part that the rows of all candidates share."""

    def __init__(self, trace: Sequence[DecisionSite], task_row: Row) -> None:
        self.sites = tuple(trace)
        self.own: Genome = tuple(site.chosen for site in self.sites)
        self._task_row = task_row

    @cached_property
    def size(self) -> int:
        """How many candidates there are."""
        return math.prod(len(site.options) for site in self.sites)

    @cached_property
    def labels(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The sites' names and the labels of their options: what tells spaces apart."""
        return tuple((site.name, tuple(option.label for option in site.options)) for site in self.sites)

    @cached_property
    def _ratios(self) -> list[list[float]]:
        return [[cost_ratio(site, option) for option in site.options] for site in self.sites]

    @cached_property
    def _weights(self) -> list[list[float]]:
        return [[ratio**-PREFERENCE for ratio in ratios] for ratios in self._ratios]

    @cached_property
    def _rows(self) -> list[list[dict[str, float]]]:
        return [[option_row(site, index) for index in range(len(site.options))] for site in self.sites]

    # --- candidates, decisions and rows

    def decisions(self, genome: Genome) -> dict[str, str]:
        """The decisions to ask a schedule rule for, in normal form (see `decisions_of`)."""
        taken = zip(self.labels, genome, strict=True)
        return dict(sorted((name, labels[index]) for (name, labels), index in taken if index))

    def genome(self, decisions: Decisions) -> Genome:
        """The candidate that these decisions give: the cheapest option if they name none of a site's."""
        return tuple(
            labels.index(decisions[name]) if decisions.get(name) in labels else 0 for name, labels in self.labels
        )

    def translate(self, other: Space, genome: Genome) -> Genome:
        """The candidate of this space that takes the options of the other's; the cheapest if it has none."""
        if other.labels == self.labels:
            return genome
        taken = zip(other.labels, genome, strict=True)
        return self.genome({name: labels[index] for (name, labels), index in taken})

    def row(self, genome: Genome) -> dict[str, float]:
        """The features that the candidate will have, as far as this trace tells (see `cost_model.features_of`)."""
        row = dict(self._task_row)
        ratios = 1.0
        for rows, costs, index in zip(self._rows, self._ratios, genome, strict=True):
            row.update(rows[index])
            ratios *= costs[index]
        row[TOTAL] = math.log(ratios)
        return row

    # --- steps of a search

    def mutant(self, genome: Genome, random: Random) -> Genome:
        """The candidate with one or two sites changed, preferably to options of low estimated cost."""
        changed = list(genome)
        places = [place for place, ratios in enumerate(self._ratios) if len(ratios) > 1]
        for place in random.sample(places, min(len(places), random.choice((1, 1, 2)))):
            weights = [*self._weights[place]]
            weights[genome[place]] = 0.0
            changed[place] = random.choices(range(len(weights)), weights)[0]
        return tuple(changed)

    def child(self, one: Genome, other: Genome, random: Random) -> Genome:
        """Each site takes the option of one of both parents."""
        return tuple(random.choice(pair) for pair in zip(one, other, strict=True))

    def stray(self, genome: Genome, random: Random) -> Genome:
        """About half of the sites changed, to any option whatever its estimate."""
        return tuple(
            random.randrange(len(ratios)) if random.random() < 0.5 else index
            for ratios, index in zip(self._ratios, genome, strict=True)
        )

    def everything(self) -> Iterator[Genome]:
        """All candidates, the cheapest options first."""
        return iter(product(*(range(len(site.options)) for site in self.sites)))


def key_of(decisions: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Equal for equal decisions, whatever their order."""
    return tuple(sorted(decisions.items()))
