"""Improves an order by moving a job, or a job and those before it that serve it alone, to where it just may run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .order_problem import Effort, OrderProblem

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
        """Where the jobs begin that stand right before a job and are of use to it and each other only."""
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
