"""Optimal orders by best-first search over the sets of jobs that have run."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from ....support.bitsets import bits
from .order_problem import Effort, OrderProblem


class SearchResult(NamedTuple):
    """An order that is better than asked for, if there is one.

    `is_proven`: the search came to its end, so the order is the best, or there is none.
    """

    order: tuple[int, ...] | None
    is_proven: bool


class OrderSearch:
    """Sets of jobs are bit sets. Jobs that wait for, read, make and serve the same run in ascending order only."""

    def __init__(self, problem: OrderProblem) -> None:
        self.problem = problem
        self.all = (1 << len(problem)) - 1
        self.before = [sum(1 << source for source in sources) for sources in problem.sources]
        for first, second in _twins(problem):
            self.before[second] |= 1 << first
        self.readers = [sum(1 << reader for reader in claim.readers) for claim in problem.claims]
        self.maker = [-1 if claim.maker is None else claim.maker for claim in problem.claims]
        self._find_certain_claims()

    def _find_certain_claims(self) -> None:
        """Compute which claims are kept while a job runs, whatever the order.

        `base`, per job: of claims made before it, or by it, and read after it, or by it. `extra`, per claim: further
        jobs that run while it is kept once it has been made: they have to be before one of its readers.
        """
        problem = self.problem
        self.base = [problem.passing] * len(problem)
        self.extra: list[int] = []
        self.covers: list[list[int]] = [[] for _ in problem.made]
        below = _below(problem)
        for number, claim in enumerate(problem.claims):
            until = self.all if claim.stays else 0
            for reader in claim.readers:
                until |= problem.above[reader] | 1 << reader
            since = self.all if claim.maker is None else below[claim.maker] | 1 << claim.maker
            for job in bits(until & since):
                self.base[job] += claim.size
            self.extra.append(until & ~since)
            for job in bits(until & ~since):
                self.covers[job].append(number)
        self.base = [base + unread for base, unread in zip(self.base, problem.unread, strict=True)]

    def least_peak(self, below: int, floor: int, effort: Effort) -> SearchResult:
        """The order with the fewest bytes at once, if fewer than `below`; less than `floor` is as good as `floor`."""
        heap = [(floor, 0, 0, self.problem.start)]
        best = {0: floor}
        parents: dict[int, int] = {}
        while heap:
            peak, count, done, kept = heappop(heap)
            if done == self.all:
                return SearchResult(self._path(parents, done), True)
            if peak > best[done]:
                continue
            if not effort.spend(len(self.problem)):
                return SearchResult(None, False)
            steps = [(job, *self._step(done, kept, job)) for job in self._ready(done)]
            # What shrinks and raises no peak may as well come first.
            safe = [step for step in steps if step[1] <= peak and step[2] <= kept][:1]
            for job, use, after in safe or steps:
                following, worst = done | 1 << job, max(peak, use)
                if worst < min(below, best.get(following, below)):
                    best[following], parents[following] = worst, job
                    heappush(heap, (worst, count - 1, following, after))
        return SearchResult(None, True)

    def least_total(self, cap: int, below: int, effort: Effort) -> SearchResult:
        """Of orders with no more than `cap` bytes at once, the one with the least sum, if less than `below` (A*)."""
        heap = [(sum(self.base), 0, 0, 0, self.problem.start)]
        best = {0: 0}
        parents: dict[int, int] = {}
        while heap:
            guess, count, done, total, kept = heappop(heap)
            if done == self.all:
                return SearchResult(self._path(parents, done), True)
            if total > best[done]:
                continue
            if not effort.spend(2 * len(self.problem)):
                return SearchResult(None, False)
            for job in self._ready(done):
                use, after = self._step(done, kept, job)
                following = done | 1 << job
                sofar = total + use
                if use > cap or sofar >= best.get(following, sofar + 1):
                    continue
                estimate = guess + use + self._bound_change(job, done, following)
                if estimate < below:
                    best[following], parents[following] = sofar, job
                    heappush(heap, (estimate, count - 1, following, sofar, after))
        return SearchResult(None, True)

    def _ready(self, done: int) -> Iterator[int]:
        for job, before in enumerate(self.before):
            if not done >> job & 1 and before & done == before:
                yield job

    def _step(self, done: int, kept: int, job: int) -> tuple[int, int]:
        """Bytes while a job runs, and after it."""
        problem = self.problem
        use = kept + problem.made[job]
        after = use - problem.unread[job]
        missing = self.all & ~done
        for number in problem.reads[job]:
            if self.readers[number] & missing == 1 << job and not problem.claims[number].stays:
                after -= problem.claims[number].size
        return use, after

    def _bound_change(self, job: int, done: int, following: int) -> int:
        """The change of the lower bound of all later steps when a job runs."""
        claims = self.problem.claims
        change = -self.base[job]
        for number in self.covers[job]:
            if done >> self.maker[number] & 1:
                change -= claims[number].size
        for number in self.problem.makes[job]:
            change += claims[number].size * (self.extra[number] & ~following).bit_count()
        return change

    def _path(self, parents: dict[int, int], done: int) -> tuple[int, ...]:
        order: list[int] = []
        while done:
            order.append(parents[done])
            done ^= 1 << parents[done]
        return tuple(reversed(order))


def _twins(problem: OrderProblem) -> Iterator[tuple[int, int]]:
    """Pairs of jobs that wait for, read, make and serve the same, each with the next one like it."""
    last: dict[object, int] = {}
    for job in range(len(problem)):
        claims = (problem.claims[number] for number in problem.makes[job])
        own = sorted((claim.readers, claim.size, claim.stays) for claim in claims)
        # A claim's readers are told apart only by which of them runs last: twins that read it are alike.
        kind = (problem.sources[job], problem.users[job], problem.reads[job], problem.made[job], tuple(own))
        if kind in last:
            yield last[kind], job
        last[kind] = job


def _below(problem: OrderProblem) -> list[int]:
    """Per job, the bit set of all that run after it in every order."""
    below = [0] * len(problem)
    for job in range(len(problem) - 1, -1, -1):
        for source in problem.sources[job]:
            below[source] |= below[job] | 1 << job
    return below
