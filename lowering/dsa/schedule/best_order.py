"""Orders beyond those of the text: heaviest footprints first, on demand, and the best that is found or exists.

GraphTurbo (OSDI 2023) names priorities for heavier footprints (section 3.6) and integer programming (section 3.3) as
future work. Here a best-first search over the sets of jobs that have run finds the best order, after the graph is
divided wherever all that is left waits for all that has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush, merge
from itertools import accumulate, chain
from typing import NamedTuple

from ....support.bitsets import bits
from .instances import InstanceGraph
from .order_problem import Effort, OrderProblem, problem_of, series
from .orders import MemoryUse, Order, bfs_order, dfs_order

_LONGEST = 400
"""Positions that a move passes at most: those that pay are short."""


def improve_by_moves(problem: OrderProblem, order: Sequence[int], cap: int, effort: Effort) -> tuple[int, ...]:
    """An order with a smaller sum of bytes over its steps, or fewer at once while that is more than `cap`."""
    line = _Line(problem, order)
    reads = sum(map(len, problem.reads)) // max(1, len(problem))
    moved = True
    while moved:
        moved = False
        for job in order:
            for first, last, target in tuple(line.moves(job)):
                if not effort.spend((4 + 2 * reads) * (max(last, target) - min(first, target) + 1)):
                    return tuple(line.order)
                if line.move(first, last, target, cap):
                    moved = True
                    break
    return tuple(line.order)


class _Line:
    """The order, the position of each job, and bytes before and while the job at each position runs."""

    def __init__(self, problem: OrderProblem, order: Sequence[int]) -> None:
        self.problem = problem
        self.order = list(order)
        self.place = [0] * len(order)
        self.use = [0] * len(order)
        self.before = [problem.start] * (len(order) + 1)
        for position, job in enumerate(order):
            self.place[job] = position
        self._keep(0, self.order)

    def moves(self, job: int) -> Iterator[tuple[int, int, int]]:
        """Runs first..last and the positions that their first (last) job would move to, earlier (later)."""
        last = self.place[job]
        latest = min((self.place[user] for user in self.problem.users[job]), default=len(self.order)) - 1
        for first in sorted({last, self._run_start(job)}):
            members = self.order[first : last + 1]
            sources = (self.place[s] for member in members for s in self.problem.sources[member])
            earliest = max((place for place in sources if place < first), default=-1) + 1
            for target in (earliest, latest):
                if not first <= target <= last and abs(target - first) < _LONGEST:
                    yield first, last, target

    def _run_start(self, job: int) -> int:
        """The place from which on the jobs right before a job are of use to it and each other only."""
        last = first = self.place[job]
        while first and last - first < _LONGEST:
            users = self.problem.users[self.order[first - 1]]
            if not users or any(self.place[user] > last for user in users):
                break
            first -= 1
        return first

    def move(self, first: int, last: int, target: int, cap: int) -> bool:
        """Move a run if that is an improvement, and say whether it was."""
        run = self.order[first : last + 1]
        if target < first:
            start, jobs = target, run + self.order[target:first]
        else:
            start, jobs = first, self.order[last + 1 : target + 1] + run
        old = self.use[start : start + len(jobs)]
        new = [use for use, _ in self._simulate(start, jobs)]
        if (max(cap, max(new)), sum(new)) >= (max(cap, max(old)), sum(old)):
            return False
        self._keep(start, jobs)
        return True

    def _simulate(self, start: int, jobs: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Bytes while, and after, each job runs when these jobs stand from `start` on."""
        problem = self.problem
        left: dict[int, int] = {}
        now = self.before[start]
        for job in jobs:
            use = now + problem.made[job]
            now = use - problem.unread[job]
            for number in problem.reads[job]:
                if number not in left:
                    readers = problem.claims[number].readers
                    left[number] = sum(self.place[reader] >= start for reader in readers)
                left[number] -= 1
                if not left[number] and not problem.claims[number].stays:
                    now -= problem.claims[number].size
            yield use, now

    def _keep(self, start: int, jobs: Sequence[int]) -> None:
        for position, (use, after) in enumerate(tuple(self._simulate(start, jobs)), start):
            self.use[position], self.before[position + 1] = use, after
        for position, job in enumerate(jobs, start):
            self.order[position] = job
            self.place[job] = position


_EFFORT = 1_500_000
"""Steps of about a microsecond for searches that cannot be proven to end soon."""
_LARGEST_SEARCH = 400
"""Pieces of more instances are not searched: they have far too many sets of instances."""


def footprint_order(graph: InstanceGraph) -> Order:
    """Of the instances that are ready, first the one with the heaviest claim (section 3.6).

    The claim of an instance is the bytes of inputs that it is the last to read, which are freed, less the bytes of the
    outputs that are kept for others. Of equal claims the deepest in the graph is first, then the last.
    """
    return _footprint_order(problem_of(graph))


def best_order(graph: InstanceGraph, *, effort: int = _EFFORT) -> tuple[Order, bool]:
    """The order found with the smallest peak, and of those the smallest sum (MemoryUse), and whether none is better.

    It is never worse than breadth first, depth first, `footprint_order` and `demand_order`. `effort` is the number of
    steps, of about a microsecond each, for searches that cannot be proven to end soon, so that the result is the same
    on every machine.
    """
    return best_order_of_jobs(problem_of(graph), (dfs_order(graph), bfs_order(graph)), Effort(effort))


def best_order_of_jobs(problem: OrderProblem, known: Sequence[Order], effort: Effort) -> tuple[Order, bool]:
    """`best_order` of any jobs, no worse than the orders known; and whether none is better."""
    orders = [*known, _footprint_order(problem), demand_order(problem), demand_order(problem, last_first=True)]
    problems = series(problem)
    starts = [0, *accumulate(map(len, problems))]
    pieces = [  # every order runs piece after piece
        _Piece(piece, [tuple(job - start for job in order[start : start + len(piece)]) for order in orders])
        for piece, start in zip(problems, starts, strict=False)
    ]
    proven = _solve(pieces, effort)
    return tuple(job + s for piece, s in zip(pieces, starts, strict=False) for job in piece.best), proven


def _solve(pieces: Sequence[_Piece], effort: Effort) -> bool:
    """Lower the peaks of the pieces, the highest first, then the sums under the highest; whether all is proven."""
    floor = max((piece.least for piece in pieces), default=0)
    peaks_proven = True
    by_peak = sorted(pieces, key=lambda piece: -piece.peak)
    for number, piece in enumerate(by_peak):
        if piece.peak > floor:
            peaks_proven &= piece.lower_peak(floor, effort.part(_share(by_peak[number:], piece, effort.left // 2)))
            floor = max(floor, piece.peak)
    totals_proven = [
        piece.lower_total(floor, effort.part(_share(pieces[number:], piece, effort.left)))
        for number, piece in enumerate(pieces)
    ]
    return peaks_proven and all(totals_proven)


def _share(pieces: Sequence[_Piece], piece: _Piece, effort: int) -> int:
    """A piece's part of the effort, by the number of its instances."""
    return effort * len(piece.problem) // max(1, sum(len(other.problem) for other in pieces))


class _Piece:
    """A piece of the graph, and the orders known of it."""

    def __init__(self, problem: OrderProblem, orders: Sequence[tuple[int, ...]]) -> None:
        self.problem = problem
        self.forest = is_forest(problem)
        self.orders = {order: problem.use(order) for order in dict.fromkeys(orders)}
        self.least = max(problem.own)
        if self.forest:
            self.least = self._add(least_peak_of_forest(problem)).peak
            self.least_total = self._add(least_total_of_forest(problem)).total
        self.best = min(self.orders, key=self.orders.__getitem__)

    def _add(self, order: tuple[int, ...]) -> MemoryUse:
        self.orders[order] = self.problem.use(order)
        return self.orders[order]

    @property
    def peak(self) -> int:
        """The smallest peak of an order known."""
        return min(use.peak for use in self.orders.values())

    def lower_peak(self, floor: int, effort: Effort) -> bool:
        """Look for a smaller peak, which need not be below `floor`; whether there is none left to be found."""
        if len(self.problem) <= _LARGEST_SEARCH:
            result = OrderSearch(self.problem).least_peak(self.peak, floor, effort.part(effort.left * 2 // 3))
            if result.order is not None:
                self._add(result.order)
            if result.is_proven:
                return True
        self._improve(floor, effort)
        return self.peak <= floor

    def lower_total(self, cap: int, effort: Effort) -> bool:
        """Choose the order with the smallest sum and a peak of at most `cap`; whether there is none better."""
        self._choose(cap)
        bound = self.least_total if self.forest else sum(self.problem.own)
        if self.orders[self.best].total == bound:
            return True
        if len(self.problem) <= _LARGEST_SEARCH:
            # Cheap moves first: the search leaves out orders that are no better than the best so far.
            self._improve(cap, effort.part(effort.left // 4))
            self._choose(cap)
            search, below = OrderSearch(self.problem), self.orders[self.best].total
            result = search.least_total(cap, below, effort.part(effort.left * 2 // 3))
            if result.order is not None:
                self._add(result.order)
                self._choose(cap)
            if result.is_proven:
                return True
        self._improve(cap, effort)
        self._choose(cap)
        return False

    def _choose(self, cap: int) -> None:
        fitting = [order for order, use in self.orders.items() if use.peak <= cap] or list(self.orders)
        self.best = min(fitting, key=lambda order: (max(cap, self.orders[order].peak), self.orders[order].total))

    def _improve(self, cap: int, effort: Effort) -> None:
        best = min(self.orders, key=lambda order: (max(cap, self.orders[order].peak), self.orders[order].total))
        self._add(improve_by_moves(self.problem, best, cap, effort))


def _footprint_order(problem: OrderProblem) -> Order:
    claims = _Ready(problem)
    order: list[int] = []
    while claims.heap:
        job = claims.heaviest()
        if job is not None:
            order.append(job)
            claims.run(job)
    return tuple(order)


class _Ready:
    """The jobs that are ready, in a heap, by what they would add to memory; outdated entries are passed over."""

    def __init__(self, problem: OrderProblem) -> None:
        self.problem = problem
        self.left = [len(claim.readers) for claim in problem.claims]
        self.waiting = [len(sources) for sources in problem.sources]
        self.growth = [made - unread for made, unread in zip(problem.made, problem.unread, strict=True)]
        self.depth: list[int] = []
        for sources in problem.sources:
            self.depth.append(1 + max((self.depth[source] for source in sources), default=0))
        for claim in problem.claims:
            if len(claim.readers) == 1:
                self.growth[claim.readers[0]] -= claim.size
        self.done = [False] * len(problem)
        self.heap: list[tuple[int, int, int]] = []
        for job, count in enumerate(self.waiting):
            self._push(job, count)

    def _push(self, job: int, waiting: int) -> None:
        if not waiting:
            heappush(self.heap, (self.growth[job], -self.depth[job], -job))

    def heaviest(self) -> int | None:
        growth, _, negative = heappop(self.heap)
        return None if self.done[-negative] or growth != self.growth[-negative] else -negative

    def run(self, job: int) -> None:
        self.done[job] = True
        for number in self.problem.reads[job]:
            self.left[number] -= 1
            if self.left[number] == 1:
                claim = self.problem.claims[number]
                last = next(reader for reader in claim.readers if not self.done[reader])
                self.growth[last] -= claim.size
                self._push(last, self.waiting[last])
        for user in self.problem.users[job]:
            self.waiting[user] -= 1
            self._push(user, self.waiting[user])


def demand_order(problem: OrderProblem, *, last_first: bool = False) -> Order:
    """Result after result, each right after what it needs and no result before it needed; so with what these need.

    Results and inputs come in the order of the jobs, or the last of them first.
    """
    seen: set[int] = set()
    results = [job for job, users in enumerate(problem.users) if not users]
    step = -1 if last_first else 1
    return tuple(chain.from_iterable(_run_on_demand(problem, job, seen, step) for job in results[::step]))


def _run_on_demand(problem: OrderProblem, result: int, seen: set[int], step: int) -> Iterator[int]:
    """A result after all that it needs and is not in `seen` yet, to which they are added."""
    seen.add(result)
    stack = [(result, iter(problem.sources[result][::step]))]
    while stack:
        source = next((source for source in stack[-1][1] if source not in seen), None)
        if source is None:
            yield stack.pop()[0]
        else:
            seen.add(source)
            stack.append((source, iter(problem.sources[source][::step])))


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


# Optimal orders if each result has one reader: least sum (Horn, 1972), least peak (Abdel-Wahab and Kameda, 1978).
#
# Both make blocks of jobs that run in one go. The blocks of independent jobs are merged by a priority; a job comes
# after all of those it reads from, and joins the blocks before it that would rather come later than it.

@dataclass(frozen=True)
class _Block:
    """Jobs after which `growth` bytes more are kept than before, and at most `hill` more at once."""

    jobs: tuple[int, ...]
    growth: int
    hill: int

    def then(self, other: _Block) -> _Block:
        hill = max(self.hill, self.growth + other.hill)
        return _Block(self.jobs + other.jobs, self.growth + other.growth, hill)


_Priority = Callable[[_Block], tuple[int, Fraction]]


def is_forest(problem: OrderProblem) -> bool:
    """Whether every claim has at most one reader, and every job one user, so that the orders here apply."""
    readers = [{r for claim in claims for r in problem.claims[claim].readers} for claims in problem.makes]
    single = all(len(claim.readers) + claim.stays <= 1 for claim in problem.claims)
    return single and all(len(own | set(users)) <= 1 for own, users in zip(readers, problem.users, strict=True))


def least_total_of_forest(problem: OrderProblem) -> tuple[int, ...]:
    """An order with the least sum of bytes over its steps."""
    return _merge_blocks(problem, lambda block: (0, Fraction(block.growth, len(block.jobs))))


def least_peak_of_forest(problem: OrderProblem) -> tuple[int, ...]:
    """An order with the fewest bytes at once: first what shrinks, low hills first; then what falls most from a hill."""

    def by_hill(block: _Block) -> tuple[int, Fraction]:
        return (0, Fraction(block.hill)) if block.growth <= 0 else (1, Fraction(block.growth - block.hill))

    return _merge_blocks(problem, by_hill)


def _merge_blocks(problem: OrderProblem, priority: _Priority) -> tuple[int, ...]:
    blocks: dict[int, list[_Block]] = {}
    for job, sources in enumerate(problem.sources):
        lists = [blocks.pop(source) for source in sources]
        before = lists[0] if len(lists) == 1 else list(merge(*lists, key=priority))
        block = _block(problem, job)
        while before and priority(block) < priority(before[-1]):
            block = before.pop().then(block)
        before.append(block)
        blocks[job] = before
    return tuple(job for block in merge(*blocks.values(), key=priority) for job in block.jobs)


def _block(problem: OrderProblem, job: int) -> _Block:
    freed = sum(problem.claims[c].size for c in problem.reads[job] if not problem.claims[c].stays)
    return _Block((job,), problem.made[job] - problem.unread[job] - freed, problem.made[job])
