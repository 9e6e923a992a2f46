"""What an instruction has to wait for: reads and writes of the same part of a value, and of the same bytes before it.

Within a buffer, parts are compared as boxes, not as bytes: rows that interleave are no conflict. A buffer inherits all
that was done to the bytes that it takes over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..network.boxes import Box
from ..program.instructions import Buffer, Engine, Memory

Last = dict[Engine, int]
"""The latest instruction on each engine: it ends after all earlier ones there."""


def latest(found: Last, engine: Engine, index: int) -> None:
    """Note an instruction."""
    if found.get(engine, -1) < index:
        found[engine] = index


@dataclass
class Contents:
    """What was done to a buffer. `box` is the part of its value that it holds; None for plain bytes, taken whole."""

    buffer: Buffer
    box: Box
    inherited: Last
    writes: dict[tuple[Box, Engine], int] = field(default_factory=dict)
    reads: dict[tuple[Box, Engine], int] = field(default_factory=dict)
    """Per part and engine, the latest instruction."""

    def before_read(self, box: Box) -> Iterator[tuple[Engine, int]]:
        """The writes that a read of a part has to follow."""
        yield from _touching(self.writes, box)

    def before_write(self, box: Box) -> Iterator[tuple[Engine, int]]:
        """What a write to a part has to follow."""
        yield from self.inherited.items()
        yield from _touching(self.writes, box)
        yield from _touching(self.reads, box)

    def all(self) -> Last:
        """The latest of everything."""
        found = dict(self.inherited)
        for done in (self.writes, self.reads):
            for (_, engine), index in done.items():
                latest(found, engine, index)
        return found


def _touching(done: Mapping[tuple[Box, Engine], int], box: Box) -> Iterator[tuple[Engine, int]]:
    for (other, engine), index in done.items():
        for (start, stop), (first, last) in zip(other, box, strict=True):
            if stop <= first or last <= start:
                break
        else:
            yield engine, index


@dataclass
class Space:
    """The bytes of one memory, and who has them."""

    memory: Memory
    owners: list[tuple[int, int, Contents]] = field(default_factory=list)

    def take(self, buffer: Buffer, box: Box) -> Contents:
        """Hand bytes over to a new buffer."""
        first, last = buffer.address, buffer.address + buffer.size
        found: Last = {}
        kept: list[tuple[int, int, Contents]] = []
        for start, stop, owner in self.owners:
            if stop <= first or last <= start:
                kept.append((start, stop, owner))
                continue
            for engine, index in owner.all().items():
                latest(found, engine, index)
            if start < first:
                kept.append((start, first, owner))
            if last < stop:
                kept.append((last, stop, owner))
        made = Contents(buffer, box, found)
        self.owners = [*kept, (first, last, made)]
        return made
