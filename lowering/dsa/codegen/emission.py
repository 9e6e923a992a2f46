"""Instructions one after another, each with the waits that it needs.

An instruction waits for reads and writes of the same part of a value, and of the same bytes before it. Within a buffer,
parts are compared as boxes, not as bytes: rows that interleave are no conflict. A buffer inherits all that was done to
the bytes that it takes over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ....costmodels.dsa_device import DsaDevice
from ..network.alignment import round_up
from ..network.boxes import Box, enclose, size
from ..program.instructions import (
    Barrier,
    Buffer,
    Compute,
    Engine,
    IndexedTransfer,
    Instruction,
    Memory,
    Operand,
    Region,
    Role,
    Transfer,
    TransferKind,
    Unit,
    Work,
    item_size,
    units_of,
)
from .layout import extents_of, region, regions_of_both

LastByEngine = dict[Engine, int]
"""The latest instruction on each engine: it ends after all earlier ones there."""


def _note(last: LastByEngine, others: LastByEngine) -> None:
    for engine, index in others.items():
        if last.get(engine, -1) < index:
            last[engine] = index


class _Uses:
    """What one engine did to parts of a buffer."""

    __slots__ = ("_found", "hull", "last", "latest")

    def __init__(self, box: Box) -> None:
        """To `box` first."""
        self.hull = box
        """Of these parts."""
        self.last: dict[Box, int] = {}
        """The latest instruction for each part, the latest of all last."""
        self.latest = -1
        self._found: dict[Box, int] = {}
        """What was asked for since the latest instruction, which many instructions after it ask for."""

    def note(self, box: Box, index: int) -> None:
        """Add the latest instruction."""
        if box != self.hull:
            self.hull = enclose(self.hull, box)
        self.last.pop(box, None)
        self.last[box] = self.latest = index
        if self._found:
            self._found = {}

    def latest_at(self, box: Box) -> int:
        """The latest instruction that touched a part; -1 if there is none."""
        found = self._found.get(box)
        if found is None:
            found = self._found[box] = self._latest_at(box)
        return found

    def _latest_at(self, box: Box) -> int:
        if not _touch(self.hull, box):
            return -1
        return next((self.last[other] for other in reversed(self.last) if _touch(other, box)), -1)


class Contents:
    """A buffer, the part of its value that it holds, and the instructions that read or wrote it so far."""

    __slots__ = ("_operands", "_regions", "box", "buffer", "inherited", "reads", "width", "writes")

    def __init__(self, buffer: Buffer, box: Box, inherited: LastByEngine) -> None:
        """It is made on bytes whose latest instructions are `inherited`."""
        self.buffer, self.box, self.inherited = buffer, box, inherited
        self.width = item_size(buffer.dtype)
        """Bytes of an element."""
        self.writes: dict[Engine, _Uses] = {}
        self.reads: dict[Engine, _Uses] = {}
        self._regions: dict[Box, Region] = {}
        self._operands: dict[Box, Operand] = {}

    def region(self, box: Box) -> Region:
        """Where a part is: one object, however many instructions name it."""
        found = self._regions.get(box)
        if found is None:
            found = self._regions[box] = region(self.buffer, self.box, box, self.width)
        return found

    def operand(self, box: Box) -> Operand:
        """A part as a tensor."""
        found = self._operands.get(box)
        if found is None:
            found = self._operands[box] = Operand(self.region(box), self.buffer.dtype, extents_of(box))
        return found

    def note_before_read(self, last: LastByEngine, box: Box, own: Collection[Engine]) -> None:
        """Add the writes by other engines than one's `own` that a read of a part has to follow."""
        _note_touching(last, self.writes, box, own)

    def note_before_write(self, last: LastByEngine, box: Box, own: Collection[Engine]) -> None:
        """Add the instructions on other engines that a write to a part has to follow."""
        _note(last, self.inherited)
        _note_touching(last, self.writes, box, own)
        _note_touching(last, self.reads, box, own)

    def note_all(self, last: LastByEngine) -> None:
        """Add the latest of all instructions."""
        _note(last, self.inherited)
        for done in (self.writes, self.reads):
            for engine, uses in done.items():
                if last.get(engine, -1) < uses.latest:
                    last[engine] = uses.latest


def _note_touching(last: LastByEngine, done: Mapping[Engine, _Uses], box: Box, own: Collection[Engine]) -> None:
    for engine, uses in done.items():
        if engine in own:
            continue
        known = last.get(engine, -1)
        if known < uses.latest:
            index = uses.latest_at(box)
            if known < index:
                last[engine] = index


def _touch(first: Box, second: Box) -> bool:
    for (start, stop), (low, high) in zip(first, second, strict=True):  # faster than all(), and called most
        if stop <= low or high <= start:
            break
    else:
        return True
    return False


def _note_use(done: dict[Engine, _Uses], engine: Engine, box: Box, index: int) -> None:
    uses = done.get(engine)
    if uses is None:
        uses = done[engine] = _Uses(box)
    uses.note(box, index)


class View(NamedTuple):
    """A part of the contents of a buffer."""

    contents: Contents
    box: Box

    def operand(self) -> Operand:
        """The part as a tensor."""
        return self.contents.operand(self.box)


@dataclass
class _Tenants:
    """The owners of the bytes of a memory, by their addresses: from which on each has them, and to which."""

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    contents: list[Contents] = field(default_factory=list)

    def take_over(self, buffer: Buffer, held: Box) -> Contents:
        """The bytes of a buffer are its own from now on."""
        first, last, inherited = buffer.address, buffer.address + buffer.size, dict[Engine, int]()
        begin, end = bisect_right(self.stops, first), bisect_left(self.starts, last)
        new = Contents(buffer, held, inherited)
        starts, stops, contents = [first], [last], [new]
        for place in range(begin, end):
            self.contents[place].note_all(inherited)
        if begin < end and self.starts[begin] < first:
            starts.insert(0, self.starts[begin])
            stops.insert(0, first)
            contents.insert(0, self.contents[begin])
        if begin < end and last < self.stops[end - 1]:
            starts.append(last)
            stops.append(self.stops[end - 1])
            contents.append(self.contents[end - 1])
        self.starts[begin:end], self.stops[begin:end], self.contents[begin:end] = starts, stops, contents
        return new


@dataclass
class Emission:
    """A program that grows. Buffers are known from when they are first written."""

    alignment: int
    instructions: list[Instruction] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    tenants: dict[Memory, _Tenants] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    engines: set[Engine] = field(default_factory=set)
    ddr_end: int = 0
    """The address after the last byte that is taken in DDR."""

    def buffer(
        self, name: str, memory: Memory, address: int, held: Box, dtype: str, role: Role = Role.INTERMEDIATE
    ) -> Contents:
        """A new buffer for the part `held` of a value; it takes its bytes from whoever had them."""
        count = self.names[name] = self.names.get(name, 0) + 1
        unique = name if count == 1 else f"{name}#{count}"
        aligned = round_up(max(1, size(held)) * item_size(dtype), self.alignment)
        buffer = Buffer(unique, memory, address, aligned, dtype, extents_of(held), role)
        self.buffers.append(buffer)
        return self.tenants.setdefault(memory, _Tenants()).take_over(buffer, held)

    def reserve_ddr(self, size: int) -> int:
        """The address of `size` more bytes in DDR."""
        address = self.ddr_end
        self.ddr_end += round_up(size, self.alignment)
        return address

    def copy(
        self, engine: Engine, source: View, targets: Sequence[View], kind: TransferKind, label: str = ""
    ) -> None:
        """Move a part of a value, in as few transfers as its layout allows."""

        for piece in regions_of_both(source.contents.box, targets[0].contents.box, source.box):
            views = [View(target.contents, piece) for target in targets]
            written = tuple([contents.region(piece) for contents, _ in views])
            waits = self._note((engine,), [View(source.contents, piece)], views)
            self.instructions.append(Transfer(engine, source.contents.region(piece), written, kind, waits, label))

    def look_up(self, engine: Engine, table: View, indices: View, row_bytes: int, target: View, label: str) -> None:
        """Move the rows of a table that some indices name."""
        waits = self._note((engine,), [table, indices], [target])
        self.instructions.append(IndexedTransfer(
            engine, table.operand().region, indices.operand(), row_bytes, target.operand().region, waits, label
        ))  # fmt: skip

    def compute(
        self, core: int, kernel: str, inputs: Sequence[tuple[Operand, View]], outputs: Sequence[View],
        work: tuple[Work, ...], label: str, *, in_place: bool = False,
    ) -> None:  # fmt: skip
        """Run a kernel; `in_place`: it reads what it replaces."""
        waits = self._note(units_of(0, core, work), [view for _, view in inputs], outputs)
        operands = tuple([each for each, _ in inputs])
        made = tuple([view.operand() for view in outputs])
        self.instructions.append(Compute(0, core, kernel, operands, made, work, in_place, waits, label))

    def barrier(self) -> None:
        """Make all engines so far wait for each other."""
        engines = tuple(sorted(self.engines, key=lambda engine: engine.order))
        if engines:
            self.instructions.append(Barrier(engines))

    def _note(self, own: tuple[Engine, ...], reads: Sequence[View], writes: Sequence[View]) -> tuple[int, ...]:
        """What the next instruction has to wait for, if it occupies these engines; from now on others wait for it."""
        index, first = len(self.instructions), own[0]
        waits: LastByEngine = {}
        for contents, box in reads:
            contents.note_before_read(waits, box, own)
        for contents, box in writes:
            contents.note_before_write(waits, box, own)
        for contents, box in reads:
            _note_use(contents.reads, first, box, index)
        for contents, box in writes:
            _note_use(contents.writes, first, box, index)
        self.engines.update(own)
        return tuple(sorted([other for engine, other in waits.items() if engine not in own]))


class CoreChannel(IntEnum):
    """What each DMA channel of a core moves: for each place that it fetches from there is one, and one for results."""

    FROM_LB = 0
    """Also weights from the GB that not all cores need."""
    FROM_GB = 1
    FROM_DDR = 2
    OUT = 3


def core_channel(device: DsaDevice, core: int, channel: CoreChannel) -> Engine:
    """A DMA channel of a core; one that has fewer than there are kinds of movements shares them."""
    return Engine(0, core, Unit.DMA, channel % device.core_dma_channels)


def cluster_channel(channel: int) -> Engine:
    """A DMA channel of the cluster."""
    return Engine(0, None, Unit.DMA, channel)
