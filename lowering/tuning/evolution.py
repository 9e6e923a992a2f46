"""The search for one task: evolution over the decisions of its schedule, guided by a cost model.

As in Ansor (OSDI 2020, section 5.1), a population of virtual candidates is mutated, crossed over and scored without
being built; the best that were not tried are proposed, with a share of strays that tell the model what it does not
know. Equal candidates are recognised by the normal form of their decisions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from random import Random

from ..base.decisions import Decisions, DecisionSite
from .cost_model import CostModel, Row, task_row
from .records import Record
from .space import Genome, Space, decisions_of, key_of

POPULATION = 128
"""Candidates of a generation, none of which is built."""
GENERATIONS = 3
"""Generations before the best candidates are proposed."""
PARENTS = 16
"""How many of the best measured candidates start the population; as many different spaces are remembered."""
EXPLORATION = 0.1
"""The share of strays among the proposed."""
CROSSED = 0.3
"""The share of a generation that has two parents."""
NOTICEABLE = 0.01
"""An improvement by a smaller share counts as none."""

_Key = tuple[tuple[str, str], ...]
_Candidate = tuple[Space, Genome]


class TaskSearch:
    """Remembers the candidates of one task, and proposes which to try next.

    It starts with `records` of earlier runs, in the order in which they were measured. Options are learned from the
    traces of built candidates, so only the analytic schedule is proposed before there is a trace: of a resumed
    task, build `wanted_trace` without measuring it and hand in its trace.
    """

    def __init__(self, task_features: Row, records: Iterable[Record] = ()) -> None:
        self._task_row = task_row(task_features)
        self._latencies: dict[_Key, float] = {}
        self._seen: set[_Key] = set()
        self._history: list[float] = []
        self._tried: set[_Key] = set()
        self._first: list[Decisions] = [{}]
        self._parents: dict[_Key, Space] = {}
        self._spaces: dict[object, Space] = {}
        self._untraceable: set[_Key] = set()
        self._pending: set[_Key] = set()
        for record in records:
            self._note(key_of(record.decisions), record.latency)

    # --- results

    @property
    def best(self) -> tuple[Decisions, float] | None:
        """The fastest candidate and its latency in seconds; None before one ran."""
        if not self._latencies:
            return None
        key = min(self._latencies, key=self._latencies.__getitem__)
        return dict(key), self._latencies[key]

    def leaders(self, count: int) -> list[Decisions]:
        """The fastest candidates, at most `count`, the fastest first."""
        return [dict(key) for key in sorted(self._latencies, key=lambda key: self._latencies[key])[:count]]

    @property
    def failed(self) -> int:
        """How many trials gave no latency."""
        return sum(not math.isfinite(latency) for latency in self._history)

    @property
    def history(self) -> tuple[float, ...]:
        """The best latency after each trial, infinite before one ran."""
        return tuple(accumulate(self._history, min))

    @property
    def wanted_trace(self) -> Decisions | None:
        """After a resumption: the best recorded decisions, to be built for `observe_trace`; None when that is done."""
        for key in sorted(self._latencies, key=self._latencies.__getitem__):
            if key in self._parents:
                return None
            if key not in self._untraceable:
                return dict(key)
        return None

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to propose, as far as the known traces tell."""
        if self.wanted_trace is not None or any(key_of(decisions) not in self._seen for decisions in self._first):
            return False
        if self._pending and not self._spaces:
            return False
        return all(key_of(decisions) in self._seen for decisions in self._rest())

    def is_stable(self) -> bool:
        """Whether the search "tends to stabilise" (AGO, section V), so that its result can be joined with others.

        It does when none of the last N measured candidates improved the best latency by more than 1 %; N is
        twice the number of the schedule's sites, at least 8; and when the search is exhausted.
        """
        sites = max((len(space.sites) for space in self._spaces.values()), default=0)
        window = max(8, 2 * sites)
        history = list(accumulate((seconds for seconds in self._history if math.isfinite(seconds)), min))
        if len(history) > window and history[-1] >= history[-1 - window] * (1.0 - NOTICEABLE):
            return True
        return self.exhausted

    # --- observations

    def observe(self, decisions: Decisions, trace: Sequence[DecisionSite] | None, latency: float | None) -> None:
        """A candidate was built and measured: its trace, if it has one, and its seconds; None if it failed.

        One that turns out to be another that is known was not measured again, and is no trial.
        """
        taken = key_of(decisions if trace is None else decisions_of(trace))
        self._seen.add(key_of(decisions))
        if taken not in self._tried:
            self._note(taken, latency)
        self.observe_trace(decisions, trace)

    def observe_trace(self, decisions: Decisions, trace: Sequence[DecisionSite] | None) -> None:
        """A candidate was built: what it took, and what it could have taken; None if that is not known."""
        asked = key_of(decisions)
        self._pending.discard(asked)
        if trace is None:
            self._untraceable.add(asked)
            return
        taken = key_of(decisions_of(trace))
        if taken in self._latencies:
            self._seen.add(taken)
        if asked != taken and asked in self._latencies:
            self._latencies[taken] = self._latencies.pop(asked)
        self._remember(taken, Space(trace, self._task_row))

    def _remember(self, key: _Key, space: Space) -> None:
        if len(self._spaces) < PARENTS:
            self._spaces.setdefault(space.labels, space)
        if key in self._latencies:
            self._parents[key] = space
            ranked = sorted(self._parents, key=lambda parent: self._latencies.get(parent, math.inf))
            self._parents = {parent: self._parents[parent] for parent in ranked[:PARENTS]}

    def suggest(self, decisions: Decisions) -> None:
        """Propose these soon, unless they were tried: what other searches found for parts of the kernel."""
        if decisions not in self._first:
            self._first.append(decisions)

    def _note(self, key: _Key, latency: float | None) -> None:
        self._seen.add(key)
        self._tried.add(key)
        self._history.append(math.inf if latency is None else latency)
        if latency is not None:
            self._latencies[key] = latency

    # --- proposals

    def propose(self, count: int, model: CostModel, random: Random) -> list[Decisions]:
        """At most `count` decisions that were never proposed, tried or recorded, the most promising first."""
        proposed = self._take_new(self._first, count)
        if not self._spaces:
            return proposed
        strays = sum(random.random() < EXPLORATION for _ in range(count - len(proposed)))
        proposed += self._take_new(self._promising(model, random), count - len(proposed) - strays)
        proposed += self._take_new(self._strays(random), count - len(proposed))
        proposed += self._take_new(self._rest(), count - len(proposed))
        return proposed

    def _take_new(self, candidates: Iterable[Decisions], count: int) -> list[Decisions]:
        """The first candidates that are new, and from now on are not."""
        fresh: list[Decisions] = []
        for decisions in candidates if count > 0 else ():
            key = key_of(decisions)
            if key not in self._seen:
                self._seen.add(key)
                self._pending.add(key)
                fresh.append(decisions)
            if len(fresh) == count:
                break
        return fresh

    def _promising(self, model: CostModel, random: Random) -> list[Decisions]:
        """Candidates that the model puts first: of all that exist if these are few, else of those that evolve."""
        spaces = list(self._spaces.values())
        if sum(space.size for space in spaces) <= POPULATION * GENERATIONS:
            scored = _score([(space, genome) for space in spaces for genome in space.everything()], model, {})
        else:
            scored = self._evolve(model, random)
        return [space.decisions(genome) for space, genome in _rank(scored)]

    def _evolve(self, model: CostModel, random: Random) -> _Scored:
        parents = self._measured_parents()
        mutants = [(space, space.mutant(own, random)) for space, own in random.choices(parents, k=POPULATION // 2)]
        strays = [(space, space.stray(own, random)) for space, own in random.choices(parents, k=POPULATION // 4)]
        scored = _score([*parents, *mutants, *strays], model, {})
        for _ in range(GENERATIONS - 1):
            elite = _rank(scored)[: POPULATION // 2]
            weights = [1.0 / (2 + rank) for rank in range(len(elite))]
            pairs = zip(*(random.choices(elite, weights, k=POPULATION) for _ in range(2)), strict=True)
            scored = _score([_offspring(one, other, random) for one, other in pairs], model, scored)
        return scored

    def _measured_parents(self) -> list[_Candidate]:
        """The best that were measured; one without a trace of its own as the trace of another shows it."""
        space = next(iter((self._parents or self._spaces).values()))
        ranked = sorted(self._latencies, key=self._latencies.__getitem__)[:PARENTS]
        own = [(self._parents[key], self._parents[key].own) for key in ranked if key in self._parents]
        others = [(space, space.genome(dict(key))) for key in ranked if key not in self._parents]
        return [*own, *others] or [(space, space.own)]

    def _strays(self, random: Random) -> Iterator[Decisions]:
        sources = [*self._measured_parents(), *((space, space.own) for space in self._spaces.values())]
        for space, genome in random.choices(sources, k=POPULATION):
            yield space.decisions(space.stray(genome, random))

    def _rest(self) -> Iterator[Decisions]:
        """All that the known spaces hold, those that were tried included."""
        for space in self._spaces.values():
            yield from map(space.decisions, space.everything())


_Scored = dict[_Key, tuple[float, _Candidate]]


def _score(candidates: Iterable[_Candidate], model: CostModel, before: _Scored) -> _Scored:
    """Add these candidates to those that were scored `before`, each once."""
    fresh = {key_of(space.decisions(genome)): (space, genome) for space, genome in candidates}
    fresh = {key: candidate for key, candidate in fresh.items() if key not in before}
    scores = model.score([space.row(genome) for space, genome in fresh.values()])
    return before | {key: (score, fresh[key]) for key, score in zip(fresh, scores, strict=True)}


def _rank(scored: _Scored) -> list[_Candidate]:
    """The best first."""
    return [candidate for _, candidate in sorted(scored.values(), key=lambda pair: -pair[0])]


def _offspring(one: _Candidate, other: _Candidate, random: Random) -> _Candidate:
    space, genome = one
    if random.random() < CROSSED:
        return space, space.child(genome, space.translate(*other), random)
    return space, space.mutant(genome, random)
