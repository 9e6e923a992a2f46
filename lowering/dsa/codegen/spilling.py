"""Which tensors leave a buffer that cannot hold all that is live (GraphTurbo, OSDI 2023, section 4.3).

The text spills what lives longest. The cheapest choice is a multi-dimensional knapsack, solved with HiGHS.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any

import numpy
import numpy.typing

from ....support.solvers import interruptible, sparse_matrix
from ...base.errors import DsaError


@dataclass(frozen=True)
class Resident:
    """A candidate for a buffer during steps `start` to `end`, both included.

    `sizes` are the bytes that it takes in the LB of each core (one entry for GB), `cost` is what it takes
    to have it at the next slower level instead: bytes moved or any other unit, not negative. A `fixed` one must stay.
    """

    start: int
    end: int
    sizes: tuple[int, ...]
    cost: float
    fixed: bool = False


@dataclass(frozen=True)
class SpillChoice:
    """Indices of spilled residents, the sum of their costs, and a lower bound on that of any choice."""

    spilled: frozenset[int]
    cost: float
    bound: float


def longest_liveness(residents: Sequence[Resident], room: Sequence[Sequence[int]]) -> frozenset[int]:
    """Section 4.3: step after step, while more is live than there is room, what lives longest is spilled.

    Only residents that take some of the memory that is short count; of equals the cheapest is spilled. Those that fit
    back after all, costliest first, are not spilled. `room` is the bytes per step and core. Raises DsaError if the
    fixed residents do not fit.
    """
    buffer = _Buffer(residents, room)
    return buffer.without_needless(buffer.with_longest(()))


def least_traffic(
    residents: Sequence[Resident], room: Sequence[Sequence[int]], *, gap: float = 0.01, seconds: float = 5.0
) -> SpillChoice:
    """The cheapest choice, within `gap` of the optimum unless `seconds` run out; no costlier than `longest_liveness`.

    Stretches of steps that share no resident are solved one by one. `room` is the bytes per step and core. Raises
    DsaError if the fixed residents do not fit.
    """
    buffer = _Buffer(residents, room)
    deadline = time.monotonic() + seconds
    simple = [buffer.without_needless(choice) for choice in (buffer.with_longest(()), buffer.with_cheapest())]
    spilled: set[int] = set()
    bound = 0.0
    stretches = list(_stretches(residents, buffer.rows()))
    for number, rows in enumerate(stretches):
        members = _members(rows)
        budget = (deadline - time.monotonic()) / (len(stretches) - number)
        cheapest, least = _cheapest(residents, rows, gap, budget)
        spilled |= min([*(choice & members for choice in simple), *cheapest], key=buffer.cost)
        bound += least
    # The solver's tolerance may leave a few bytes too many.
    complete = buffer.without_needless(buffer.with_longest(spilled))
    best = min(complete, *simple, key=buffer.cost)
    return SpillChoice(best, buffer.cost(best), min(bound, buffer.cost(best)))


@dataclass(frozen=True)
class _Row:
    """Of residents, which do not all fit at `step`, `excess` bytes have to go; `sizes` are (resident, bytes) pairs."""

    step: int
    sizes: frozenset[tuple[int, int]]
    excess: int

    @cached_property
    def members(self) -> frozenset[int]:
        return frozenset(index for index, _ in self.sizes)

    def implies(self, other: _Row) -> bool:
        """Whether spilling enough for this row, which has all members of the other, is enough for the other too."""
        if self.excess < other.excess or not other.sizes <= self.sizes:
            return False
        return self.excess - sum(size for _, size in self.sizes - other.sizes) >= other.excess


_Integers = numpy.typing.NDArray[numpy.int64]


class _Buffer:
    """The room, per step and core, that the fixed residents leave."""

    def __init__(self, residents: Sequence[Resident], room: Sequence[Sequence[int]]) -> None:
        self.residents = residents
        self.sizes: _Integers = numpy.array([resident.sizes for resident in residents], dtype=numpy.int64)
        self.room: _Integers = numpy.array(room, dtype=numpy.int64).reshape(len(room), len(room[0]) if room else 0)
        self.free = [index for index, resident in enumerate(residents) if not resident.fixed]
        self.live: list[list[int]] = [[] for _ in room]
        self._place(self.room, (index for index, resident in enumerate(residents) if resident.fixed))
        for step in numpy.flatnonzero((self.room < 0).any(axis=1))[:1]:
            short = -int(self.room[step].min())
            raise DsaError(f"step {step}: what has to stay in the buffer exceeds it by {short} bytes; split further")
        for index in self.free:
            for step in range(residents[index].start, residents[index].end + 1):
                self.live[step].append(index)

    def cost(self, spilled: Iterable[int]) -> float:
        """The cost of a choice."""
        return math.fsum(self.residents[index].cost for index in spilled)

    def _steps(self, index: int) -> slice:
        return slice(self.residents[index].start, self.residents[index].end + 1)

    def _place(self, left: _Integers, indices: Iterable[int]) -> None:
        for index in indices:
            left[self._steps(index)] -= self.sizes[index]

    def _free_room(self, spilled: set[int]) -> _Integers:
        left = self.room.copy()
        self._place(left, (index for index in self.free if index not in spilled))
        return left

    def with_longest(self, spilled: Iterable[int]) -> set[int]:
        """Spill more until all else fits, step after step the longest-lived that takes some of the short memory."""
        gone = set(spilled)
        left = self._free_room(gone)
        for step in range(len(left)):
            while (left[step] < 0).any():
                core = int(numpy.argmax(left[step] < 0))
                victim = max((i for i in self.live[step] if i not in gone and self.sizes[i, core]), key=self._liveness)
                gone.add(victim)
                left[self._steps(victim)] += self.sizes[victim]
        return gone

    def with_cheapest(self) -> set[int]:
        """Spill until all fits, first those that cost least per excess byte, over all steps and cores."""
        gone: set[int] = set()
        left = self._free_room(gone)
        heap = [(ratio, index) for index in self.free if (ratio := self._cost_per_byte(left, index)) < math.inf]
        heapify(heap)
        while heap:
            before, index = heappop(heap)
            # Others that were spilled since can only have made it costlier.
            ratio = self._cost_per_byte(left, index)
            if before < ratio < math.inf:
                heappush(heap, (ratio, index))
            elif ratio < math.inf:
                gone.add(index)
                left[self._steps(index)] += self.sizes[index]
        return gone

    def _cost_per_byte(self, left: _Integers, index: int) -> float:
        relieved = int(numpy.minimum(self.sizes[index], numpy.maximum(-left[self._steps(index)], 0)).sum())
        return self.residents[index].cost / relieved if relieved else math.inf

    def _liveness(self, index: int) -> tuple[int, float, int]:
        resident = self.residents[index]
        return resident.end - resident.start, -resident.cost, -index

    def without_needless(self, spilled: set[int]) -> frozenset[int]:
        """Spill less: residents that fit back, costliest first, stay."""
        gone = set(spilled)
        left = self._free_room(gone)
        for index in sorted(gone, key=lambda i: (-self.residents[i].cost, i)):
            if (left[self._steps(index)] >= self.sizes[index]).all():
                gone.discard(index)
                self._place(left, [index])
        return frozenset(gone)

    def rows(self) -> list[_Row]:
        """The rows of all steps and cores, without those that follow from the step before or after."""
        columns = (self._column(core) for core in range(self.room.shape[1]))
        rows = dict.fromkeys(row for column in columns for row in _leading(reversed(list(_leading(column)))))
        return sorted(rows, key=lambda row: row.step)

    def _column(self, core: int) -> Iterator[_Row]:
        short = self._free_room(set())[:, core]
        for step in map(int, numpy.flatnonzero(short < 0)):
            used = ((index, int(self.sizes[index, core])) for index in self.live[step])
            yield _Row(step, frozenset((index, size) for index, size in used if size), -int(short[step]))


def _leading(rows: Iterable[_Row]) -> Iterator[_Row]:
    """Rows that the last one kept does not imply."""
    last: _Row | None = None
    for row in rows:
        if last is None or not last.implies(row):
            yield row
            last = row


def _members(rows: Iterable[_Row]) -> frozenset[int]:
    return frozenset().union(*(row.members for row in rows))


def _stretches(residents: Sequence[Resident], rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Rows, in order of time, that share residents directly or by others."""
    stretch: list[_Row] = []
    last = -1
    for row in rows:
        if stretch and last < row.step:
            yield stretch
            stretch = []
        stretch.append(row)
        last = max(last, *(residents[index].end for index in row.members))
    if stretch:
        yield stretch


def _cheapest(
    residents: Sequence[Resident], rows: Sequence[_Row], gap: float, seconds: float
) -> tuple[list[frozenset[int]], float]:
    """The cheapest choice found under some rows, if any, and a lower bound: a binary variable per resident."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    if seconds <= 0:
        return [], 0.0
    members = sorted(_members(rows))
    scale = max(residents[index].cost for index in members) or 1.0
    costs = numpy.array([residents[index].cost / scale for index in members])
    limits = LinearConstraint(*_matrix(rows, members), numpy.inf)
    options = {"time_limit": seconds, "mip_rel_gap": gap}
    integral = numpy.ones(len(members))
    result = interruptible(
        lambda: milp(costs, constraints=limits, integrality=integral, bounds=Bounds(0, 1), options=options)
    )
    bound = 0.0 if result.mip_dual_bound is None else max(0.0, float(result.mip_dual_bound)) * scale
    if result.x is None:
        return [], bound
    return [frozenset(index for index, value in zip(members, result.x, strict=True) if value > 0.5)], bound


def _matrix(rows: Sequence[_Row], members: Sequence[int]) -> tuple[Any, list[float]]:
    """Per row, what spilling a member relieves, at most all of the excess; and the excess. Without common factors."""
    column = {index: number for number, index in enumerate(members)}
    places: list[tuple[int, int, int]] = []
    excesses: list[float] = []
    for number, row in enumerate(rows):
        relieved = [(column[index], min(size, row.excess)) for index, size in sorted(row.sizes)]
        unit = math.gcd(row.excess, *(size for _, size in relieved))
        places += [(number, place, size // unit) for place, size in relieved]
        excesses.append(row.excess / unit)
    row_of, column_of, factors = zip(*places, strict=True)
    return sparse_matrix(factors, row_of, column_of, (len(rows), len(members))), excesses
