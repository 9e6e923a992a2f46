"""Weights on their way to the units: DDR -> GB -> LB (GraphTurbo, OSDI 2023, sections 2.2, 4.1 and 4.4).

LB has a small buffer for them that is used as a ring, so that the next tile's weights arrive while this one's are read.
The GB keeps those that are needed again soonest (Belady, "A study of replacement algorithms", 1966), for all uses are
known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from ..network.boxes import Box
from ..network.graph import Network

Blob = tuple[tuple[int, Box], ...]
"""The parts of constants that one tile reads, packed one after another."""


@dataclass(frozen=True)
class Packed:
    """Where each part of a blob begins, and the bytes of it all."""

    offsets: tuple[int, ...]
    size: int


def packed(network: Network, blob: Blob, alignment: int) -> Packed:
    """A blob, each part of it aligned."""
    offsets, end = [], 0
    for value, box in blob:
        offsets.append(end)
        end += -(-network.bytes(value, box) // alignment) * alignment
    return Packed(tuple(offsets), max(end, alignment))


@dataclass
class Ring:
    """A buffer that is used round and round. What is still in it need not be brought again."""

    capacity: int
    at: int = 0
    held: dict[Hashable, tuple[int, int]] = field(default_factory=dict)

    def find(self, key: Hashable) -> int | None:
        """Where something is."""
        return self.held[key][0] if key in self.held else None

    def take(self, key: Hashable, size: int) -> int:
        """The next bytes; whatever was there is gone."""
        start = self.at if self.at + size <= self.capacity else 0
        self.held = {k: (a, b) for k, (a, b) in self.held.items() if b <= start or start + size <= a}
        self.held[key] = start, start + size
        self.at = start + size
        return start


class Staging:
    """The part of a GB that weights pass through."""

    def __init__(self, base: int, capacity: int, uses: Sequence[Hashable]) -> None:
        self.base, self.capacity = base, capacity
        self.uses: dict[Hashable, list[int]] = {}
        for time, key in enumerate(uses):
            self.uses.setdefault(key, []).append(time)
        self.held: dict[Hashable, tuple[int, int]] = {}
        self.touched: dict[Hashable, int] = {}

    def fetch(self, key: Hashable, size: int, time: int) -> tuple[int, bool]:
        """The address for use number `time`, and whether it is there already."""
        self.touched[key] = time
        if key in self.held:
            return self.held[key][0], True
        while (address := self._gap(size)) is None:
            del self.held[max(self._old(), key=lambda k: (self._next(k, time), -self.touched[k]))]
        self.held[key] = address, address + size
        return address, False

    def _old(self) -> list[Hashable]:
        """What may go: not the latest, up to half of the room. It may not have been hoisted yet, and what replaces it
        could not be loaded ahead."""
        recent = sorted(self.held, key=lambda key: -self.touched[key])
        total = 0
        for index, key in enumerate(recent):
            total += self.held[key][1] - self.held[key][0]
            if 2 * total > self.capacity:
                return recent[index + 1 :] or recent[-1:]
        return recent[-1:]

    def _next(self, key: Hashable, time: int) -> float:
        uses = self.uses[key]
        index = bisect_right(uses, time)
        return uses[index] if index < len(uses) else float("inf")

    def _gap(self, size: int) -> int | None:
        """Behind what was put there last, as long as there is room: what was read last is overwritten last."""
        end = self.base
        gaps: list[tuple[int, int]] = []
        for start, stop in sorted(self.held.values()):
            gaps.append((end, start))
            end = max(end, stop)
        gaps.append((end, self.base + self.capacity))
        fitting = [start for start, stop in gaps if stop - start >= size]
        return fitting[0] if fitting else None


def blob_of(constants: Iterable[tuple[int, Box]]) -> Blob:
    """The blob of these parts."""
    return tuple(sorted(constants))
