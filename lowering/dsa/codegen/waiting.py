"""Parts that wait in DDR for their next reader, since the GB has no room for all that is live meanwhile.

A tile that reads from DDR, or writes to it, waits for its latency. A part that waits there is in the GB again whenever
tiles make or read it: all of it leaves in one transfer, and comes back ahead of its next reader, while cores compute.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple


class Span(NamedTuple):
    """Steps, both inclusive."""

    first: int
    last: int


class Timetable:
    """About when steps begin, in cycles, if each takes these `cycles`."""

    def __init__(self, cycles: Iterable[float]) -> None:
        self.starts = list(accumulate(cycles, initial=0.0))

    def gap(self, before: int, after: int, moving: float) -> Span | None:
        """The steps between two others in which something is neither used nor moved, if each move takes `moving`
        cycles; None if there are none."""
        first = bisect_left(self.starts, self.starts[before + 1] + moving)
        last = self.ahead(after, moving) - 1
        return Span(first, last) if before < first <= last < after else None

    def ahead(self, step: int, moving: float) -> int:
        """The step with which something has to begin that takes `moving` cycles, to be there before a step."""
        return max(0, bisect_right(self.starts, self.starts[step] - moving) - 1)


def stays_between(whole: Span, gaps: Sequence[Span]) -> Iterator[Span]:
    """What is left of some steps without gaps inside of them, which ascend."""
    first = whole.first
    for gap in gaps:
        yield Span(first, gap.first - 1)
        first = gap.last + 1
    yield Span(first, whole.last)
