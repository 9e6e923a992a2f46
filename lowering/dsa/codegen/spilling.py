"""Which tensors leave a buffer that cannot hold all that is live (GraphTurbo, OSDI 2023, section 4.3).

The text spills what lives longest. The cheapest choice is a multi-dimensional knapsack, solved with HiGHS. Its work
is bounded by the sizes of programs and of their search trees, not by seconds, so that all machines choose the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy
import numpy.typing

from ....support.solvers import IntegerProgram, Row
from ...base.errors import DsaError

_ENTRIES = 50_000
"""Factors of one integer program, for which HiGHS takes a quarter of a second: one with more is solved in pieces."""
_EFFORT = 500_000
"""Factors of all integer programs of one choice: beyond that the simple choices count."""
_NODES = 20
"""Of the search tree of an integer program: those of networks end at the root, nearly all."""


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
    residents: Sequence[Resident], room: Sequence[Sequence[int]], *, gap: float = 0.01, effort: int = _EFFORT
) -> SpillChoice:
    """The cheapest choice, within `gap` of the optimum if that takes little effort; no costlier than
    `longest_liveness`.

    Stretches of steps that share no resident are solved one by one, as far as the `effort` in factors of rows allows.
    `room` is the bytes per step and core. Raises DsaError if the fixed residents do not fit.
    """
    buffer = _Buffer(residents, room)
    simple = [buffer.without_needless(choice) for choice in (buffer.with_longest(()), buffer.with_cheapest())]
    spilled: set[int] = set()
    bound = 0.0
    for rows in _stretches(residents, buffer.rows()):
        members, choices = _members(rows), list(simple)
        entries = sum(len(row.sizes) for row in rows)
        if entries <= effort:
            effort -= entries
            cheapest, least = _cheapest(residents, rows, gap)
            choices.append(cheapest)
            bound += least
        spilled |= min((choice & members for choice in choices), key=buffer.cost)
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

    def without(self, spilled: Collection[int]) -> _Row:
        """What is left to be done once some are spilled."""
        sizes = frozenset(each for each in self.sizes if each[0] not in spilled)
        return replace(self, sizes=sizes, excess=self.excess - sum(size for _, size in self.sizes - sizes))


_Integers = numpy.typing.NDArray[numpy.int64]


class _Buffer:
    """The room, per step and core, that the fixed residents leave."""

    def __init__(self, residents: Sequence[Resident], room: Sequence[Sequence[int]]) -> None:
        self.residents = residents
        columns = len(room[0]) if room else 0
        sizes = [resident.sizes for resident in residents]
        self.sizes: _Integers = numpy.array(sizes, dtype=numpy.int64).reshape(len(residents), columns)
        self.room: _Integers = numpy.array(room, dtype=numpy.int64).reshape(len(room), columns)
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
        left = self._free_room(set())
        _, first = numpy.unique(numpy.vstack([left, self.sizes]), axis=1, return_index=True)  # cores are mostly alike
        columns = (self._column(core, left[:, core]) for core in sorted(map(int, first)))
        rows = dict.fromkeys(row for column in columns for row in _leading(reversed(list(_leading(column)))))
        return sorted(rows, key=lambda row: row.step)

    def _column(self, core: int, left: _Integers) -> Iterator[_Row]:
        sizes = self.sizes[:, core].tolist()
        for step in map(int, numpy.flatnonzero(left < 0)):
            used = ((index, sizes[index]) for index in self.live[step])
            yield _Row(step, frozenset((index, size) for index, size in used if size), -int(left[step]))


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


def _cheapest(residents: Sequence[Resident], rows: Sequence[_Row], gap: float) -> tuple[frozenset[int], float]:
    """The cheapest choice found under some rows, piece after piece, and a lower bound.

    What is left of a piece after the choices for earlier ones costs no more than the piece by itself, so its bound
    holds for all of them.
    """
    spilled: frozenset[int] = frozenset()
    bound = 0.0
    for piece in _pieces(rows):
        left = [row for row in (each.without(spilled) for each in piece) if row.excess > 0]
        if left:
            choice, least = _solve(residents, left, gap)
            spilled, bound = spilled | choice, max(bound, least)
    return spilled, bound


def _pieces(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Rows one after another, as many as make an integer program of at most `_ENTRIES` factors, or one."""
    piece: list[_Row] = []
    entries = 0
    for row in rows:
        entries += len(row.sizes)
        if piece and entries > _ENTRIES:
            yield piece
            piece, entries = [], len(row.sizes)
        piece.append(row)
    yield piece


def _solve(residents: Sequence[Resident], rows: Sequence[_Row], gap: float) -> tuple[frozenset[int], float]:
    """The cheapest choice found under some rows, all of their members if none is found, and a lower bound: a binary
    variable per resident, rows without common factors."""
    members = sorted(_members(rows))
    column = {index: number for number, index in enumerate(members)}
    scale = max(residents[index].cost for index in members) or 1.0
    program = IntegerProgram([residents[index].cost / scale for index in members])
    for row in rows:
        relieved = [(column[index], min(size, row.excess)) for index, size in sorted(row.sizes)]
        unit = math.gcd(row.excess, *(size for _, size in relieved))
        program.rows.append(Row([(place, size // unit) for place, size in relieved], lower=row.excess / unit))
    values, bound = program.minimise(math.inf, _NODES, gap)
    chosen = members if values is None else [i for i, value in zip(members, values, strict=True) if value > 0.5]
    return frozenset(chosen), max(0.0, bound) * scale
