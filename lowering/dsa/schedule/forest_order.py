"""Optimal orders if each result has one reader: least sum (Horn, 1972), least peak (Abdel-Wahab and Kameda, 1978).

Both make blocks of jobs that run in one go. The blocks of independent jobs are merged by a priority; a job comes after
all of those it reads from, and joins the blocks before it that would rather come later than it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from heapq import merge

from .order_problem import OrderProblem


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
