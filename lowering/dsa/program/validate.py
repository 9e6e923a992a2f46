"""Checks a program against a device, whatever order the engines run in.

Beyond what each instruction needs by itself, every byte that is read must have been written, as a part of the same
buffer, by an instruction that certainly ended before; and bytes that are overwritten must have been read and written by
instructions that certainly ended before. So live buffers overlap nowhere, and no engine runs ahead of another.

While a program is checked, each memory knows of its bytes who wrote them last, for which buffer, and who has read them
since. Bytes that no instruction tells apart share a cell: cells end where a region begins or ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import NamedTuple

import numpy as np

from ....costmodels.dsa_device import DsaDevice
from .cost import Cost
from .happens_before import Ordering
from .instructions import (
    INITIAL,
    Barrier,
    Buffer,
    Compute,
    Engine,
    IndexedTransfer,
    Instruction,
    Level,
    Memory,
    Movement,
    Operand,
    Program,
    ProgramError,
    Region,
    Role,
    Transfer,
    Unit,
    describe,
    item_size,
)

INDEX_TYPES = ("int32", "int64")
"""The element types that the indices of an IndexedTransfer may have."""


def structure_problems(program: Program, device: DsaDevice) -> Iterator[str]:
    """A message for each instruction or buffer that the device cannot hold or execute."""
    checker = _Structure(program, Cost(device))
    if program.batch < 1:
        yield f"program {program.name!r}: batch {program.batch} is less than 1"
    if len(program.buffers_by_name) < len(program.buffers):
        yield f"program {program.name!r}: two buffers have the same name"
    for buffer in program.buffers:
        yield from checker.buffer(buffer)
    for index, instruction in enumerate(program.instructions):
        for problem in checker.instruction(instruction):
            yield f"{describe(index, instruction)}: {problem}"


class _Structure:
    def __init__(self, program: Program, cost: Cost) -> None:
        self.cost, self.device = cost, cost.device
        self.buffers = program.buffers_by_name
        self.engines: dict[Engine, list[str]] = {}
        """The problems of each engine that was asked for."""

    def buffer(self, buffer: Buffer) -> Iterator[str]:
        for problem in self._buffer(buffer):
            place = f"{buffer.memory}:{buffer.address:#x}..{buffer.address + buffer.size:#x}"
            yield f"buffer {buffer.name!r} at {place}: {problem}"

    def _buffer(self, buffer: Buffer) -> Iterator[str]:
        if not self._exists(buffer.memory):
            yield f"{self.device.name} has no {buffer.memory}"
            return
        capacity = self.cost.capacity(buffer.memory)
        if buffer.size < 1 or buffer.address < 0 or buffer.address + buffer.size > capacity:
            yield f"{buffer.size} bytes do not fit in the {capacity} bytes of {buffer.memory}"
        if buffer.address % self.device.alignment:
            yield f"the address is not a multiple of {self.device.alignment}"
        if any(extent < 1 for extent in buffer.shape) or not _is_dtype(buffer.dtype):
            yield f"no tensor of type {buffer.dtype!r} and shape {list(buffer.shape)}"
        elif (size := buffer.value.size) > buffer.size:
            yield f"its value needs {size} bytes"

    def _exists(self, memory: Memory) -> bool:
        cores = self.device.cores if memory.level is Level.LB else 1
        clusters = 1 if memory.level is Level.DDR else self.device.clusters
        return 0 <= memory.cluster < clusters and 0 <= memory.core < cores

    def instruction(self, instruction: Instruction) -> Iterator[str]:
        engines = instruction.engines
        for engine in engines:
            if engine not in self.engines:
                self.engines[engine] = list(self._engine(engine))
            yield from self.engines[engine]
        if len(engines) != 1 and len(set(engines)) != max(1, len(engines)):
            yield "needs at least one engine, each once"
        for region in (*instruction.reads, *instruction.writes):
            if problem := self._region(region):
                yield f"{region}: {problem}"
        match instruction:
            case Transfer():
                yield from self._transfer(instruction)
            case IndexedTransfer():
                yield from self._indexed_transfer(instruction)
            case Compute():
                yield from self._compute(instruction)
            case Barrier():
                pass

    def _engine(self, engine: Engine) -> Iterator[str]:
        core = engine.core or 0
        exists = 0 <= engine.cluster < self.device.clusters and 0 <= core < self.device.cores
        if not exists or (engine.unit is not Unit.DMA and self.cost.unit(engine) is None):
            yield f"{self.device.name} has no engine {engine}"
        elif engine.unit is Unit.DMA and not 0 <= engine.channel < self._channels(engine):
            place = "cluster" if engine.core is None else "core"
            channels = f"a {place} has {self._channels(engine)} DMA channels"
            yield f"{self.device.name} has no engine {engine}: {channels}"

    def _channels(self, engine: Engine) -> int:
        return self.device.dma_channels if engine.core is None else self.device.core_dma_channels

    def _region(self, region: Region) -> str | None:
        buffer = self.buffers.get(region.buffer)
        if buffer is None:
            return "no buffer of this name"
        if region.rows < 1 or region.row_bytes < 1 or (region.rows > 1 and region.stride < region.row_bytes):
            return "rows are empty or overlap"
        if region.planes < 1 or (region.planes > 1 and region.plane_stride < region.span):
            return "there are no planes, or they overlap"
        if region.memory != buffer.memory:
            return f"the buffer is in {buffer.memory}"
        if region.address < buffer.address or region.end > buffer.address + buffer.size:
            return f"outside of its buffer, {buffer.address:#x}..{buffer.address + buffer.size:#x}"
        return None

    def _transfer(self, transfer: Transfer) -> Iterator[str]:
        if not transfer.targets:
            yield "no target"
        for target in transfer.targets:
            if target.size != transfer.source.size:
                yield f"{transfer.source.size} bytes of {transfer.source} to {target.size} bytes of {target}"
        yield from _path(transfer)

    def _indexed_transfer(self, gather: IndexedTransfer) -> Iterator[str]:
        indices, table, target = gather.indices, gather.table, gather.target
        yield from _operand(indices)
        if indices.dtype not in INDEX_TYPES or indices.region.memory.level is Level.DDR:
            yield f"{indices.dtype} indices {indices.region}; they must be {' or '.join(INDEX_TYPES)}, in LB or GB"
        if gather.row_bytes < 1 or not table.is_contiguous or table.size % gather.row_bytes:
            yield f"{table} is no table of contiguous rows of {gather.row_bytes} bytes"
        if target.size != gather.count * gather.row_bytes:
            yield f"{gather.count} rows of {gather.row_bytes} bytes to {target.size} bytes of {target}"
        yield from _path(gather)

    def _compute(self, compute: Compute) -> Iterator[str]:
        if compute.core is None:
            home = Memory(Level.GB, compute.cluster)
        else:
            home = Memory(Level.LB, compute.cluster, compute.core)
        for work in compute.work:
            if work.unit is Unit.DMA or bool(work.products) != (work.unit is Unit.MME) or work.total < 0:
                yield f"work of {work.unit.value} needs {'products' if work.unit is Unit.MME else 'operations'}"
        for operand in (*compute.inputs, *compute.outputs):
            if operand.region.memory != home:
                yield f"{operand.region} is not in {home}, where the kernel's operands are"
            yield from _operand(operand)


def _path(movement: Movement) -> Iterator[str]:
    """Whether the engine can move bytes, to and from where they are."""
    if movement.engine.unit is not Unit.DMA:
        yield f"a transfer needs a DMA channel, not {movement.engine}"
    for region in (*movement.reads, *movement.writes):
        # A channel reaches its own cluster; one of a core reaches other cores' LBs too, through the GB's ports.
        if region.memory.level is not Level.DDR and movement.engine.cluster != region.memory.cluster:
            yield f"channel {movement.engine} does not reach {region.memory}"


def _operand(operand: Operand) -> Iterator[str]:
    if not _is_dtype(operand.dtype):
        yield f"{operand.region}: no type {operand.dtype!r}"
        return
    if operand.size != operand.region.size:
        yield f"{operand.region} has {operand.region.size} bytes, {operand.dtype}{list(operand.shape)} {operand.size}"
        return
    region = operand.region
    item = item_size(operand.dtype)
    if any(place % item for place in (region.address, region.stride, region.plane_stride, region.row_bytes)):
        yield f"{region}: not aligned for {operand.dtype}"
    elif operand.leading is None:
        yield f"{region}: its {region.planes * region.rows} rows are no leading extents of {list(operand.shape)}"


@cache
def _is_dtype(name: str) -> bool:
    try:
        return item_size(name) > 0
    except TypeError:
        return False


NOBODY = -2
INITIALLY = -1
"""The writer of inputs and constants."""


_FEW_CELLS = 32
"""So few numbers are compared faster by Python than by numpy."""
Cells = slice | np.ndarray
"""The numbers of the cells of a region."""


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `end` that `writer` last wrote as a part of the buffer numbered `buffer`."""

    start: int
    end: int
    writer: int
    buffer: int


class Shadow:
    """`regions`: all that are read, written or initially there; `readers`: how many engines touch the memory."""

    def __init__(self, regions: Iterable[Region], readers: int) -> None:
        distinct = {rows_of(region): region for region in regions}.values()
        edges = [edge for region in distinct if region.is_contiguous for edge in (region.address, region.end)]
        strided = [each.starts + end for each in distinct if not each.is_contiguous for end in (0, each.row_bytes)]
        self._bounds = np.unique(np.concatenate([np.array(edges, np.int64), *strided]))
        self._cell = {bound: cell for cell, bound in enumerate(self._bounds.tolist())}
        self._owner = np.full(len(self._bounds), _owner(NOBODY, 0), np.int64)
        self._readers = np.full((readers, len(self._bounds)), -1, np.int32)
        self._cells: dict[Rows, Cells] = {}

    def owners(self, cells: Cells) -> list[tuple[int, int]]:
        """The writers and buffers of `pieces`, in any order."""
        owners = self._owner[cells]
        if len(owners) <= _FEW_CELLS:
            return [_pair(owner) for owner in set(owners.tolist())]
        others = owners[1:][owners[1:] != owners[:-1]]
        return [_pair(owner) for owner in {int(owners[0]), *others.tolist()}]

    def pieces(self, region: Region) -> Iterator[Piece]:
        """The contents of a region: for each writer and buffer, the first run of bytes."""
        cells = self._numbers(region)
        owners = self._owner[cells]
        new = (owners[1:] != owners[:-1]) | (cells[1:] != cells[:-1] + 1)
        firsts = [0, *(np.flatnonzero(new) + 1).tolist()]
        lasts = [first - 1 for first in (*firsts[1:], len(cells))]
        seen: set[int] = set()
        for first, last in zip(firsts, lasts, strict=True):
            owner = int(owners[first])
            if owner not in seen:
                seen.add(owner)
                yield Piece(int(self._bounds[cells[first]]), int(self._bounds[cells[last] + 1]), *_pair(owner))

    def readers(self, cells: Cells) -> list[int]:
        """Per engine, the last instruction that read these bytes since they were written."""
        latest = np.maximum.reduce(self._readers[:, cells], axis=1)
        return [each for each in latest.tolist() if each >= 0]

    def read(self, cells: Cells, index: int, engine: int) -> None:
        """Instruction `index` on an engine of this memory reads them."""
        self._readers[engine, cells] = index

    def write(self, cells: Cells, index: int, buffer: int) -> None:
        """Instruction `index` (or INITIALLY) writes them."""
        self._owner[cells] = _owner(index, buffer)
        self._readers[:, cells] = -1

    def _numbers(self, region: Region) -> np.ndarray:
        cells = self.cells(region)
        return np.arange(cells.start, cells.stop) if isinstance(cells, slice) else cells

    def cells(self, region: Region) -> Cells:
        """The cells of a region, by which the other methods know its bytes."""
        place = rows_of(region)
        cells = self._cells.get(place)
        if cells is None:
            cells = self._cells[place] = self._find(region)
        return cells

    def _find(self, region: Region) -> Cells:
        if region.is_contiguous:
            return slice(self._cell[region.address], self._cell[region.end])
        firsts = np.searchsorted(self._bounds, region.starts)
        lasts = np.searchsorted(self._bounds, region.starts + region.row_bytes)
        counts = lasts - firsts
        before = np.cumsum(counts) - counts
        return np.repeat(firsts - before, counts) + np.arange(int(counts.sum()))


def _owner(writer: int, buffer: int) -> int:
    """Both in one number."""
    return writer << 32 | buffer


def _pair(owner: int) -> tuple[int, int]:
    """The writer and the buffer of an owner."""
    return owner >> 32, owner & 0xFFFFFFFF


class Rows(NamedTuple):
    """Where a region is in its memory, whatever its buffer."""

    address: int
    row_bytes: int
    rows: int
    stride: int
    planes: int
    plane_stride: int


def rows_of(region: Region) -> Rows:
    """Where a region is."""
    return Rows(region.address, region.row_bytes, region.rows, region.stride, region.planes, region.plane_stride)


def validate(program: Program, device: DsaDevice) -> None:
    """Raises ProgramError with the first problem: instruction, level and addresses."""
    for problem in islice(problems(program, device), 1):
        raise ProgramError(problem)


def problems(program: Program, device: DsaDevice) -> Iterator[str]:
    """All that is wrong with a program; data is followed only if each instruction is right by itself."""
    is_sound = True
    for problem in structure_problems(program, device):
        is_sound = False
        yield problem
    try:
        ordering = Ordering(program)
    except ProgramError as error:
        yield str(error)
        return
    if is_sound:
        yield from _DataFlow(program, ordering).problems()


class _DataFlow:
    def __init__(self, program: Program, ordering: Ordering) -> None:
        self.program = program
        self.ordering = ordering
        self.numbers = {buffer.name: number for number, buffer in enumerate(program.buffers)}
        self.columns = _engines_of(program, ordering.column)
        whole = [_whole(buffer) for buffer in program.buffers if buffer.role is not Role.INTERMEDIATE]
        whole += [buffer.value.region for buffer in program.buffers if buffer.role is Role.OUTPUT]
        regions: dict[Memory, list[Region]] = {}
        for region in (*program.regions(), *whole):
            regions.setdefault(region.memory, []).append(region)
        engines = {memory: max(1, len(columns)) for memory, columns in self.columns.items()}
        self.shadows = {memory: Shadow(each, engines.get(memory, 1)) for memory, each in regions.items()}

    def problems(self) -> Iterator[str]:
        for buffer in self.program.buffers:
            if buffer.role in INITIAL:
                yield from self._initial(buffer)
        for index, instruction in enumerate(self.program.instructions):
            for problem in self._instruction(index, instruction):
                yield f"{describe(index, instruction)} {problem}"
        for buffer in self.program.buffers:
            if buffer.role is Role.OUTPUT:
                yield from self._output(buffer)

    def _initial(self, buffer: Buffer) -> Iterator[str]:
        region, shadow = _whole(buffer), self.shadows[buffer.memory]
        for piece in shadow.pieces(region):
            if piece.writer == INITIALLY:
                other = self.program.buffers[piece.buffer].name
                what = f"{buffer.role.value} {_bytes(region, piece)}"
                yield f"{what} overlaps {other!r}, which is there from the start too"
        shadow.write(shadow.cells(region), INITIALLY, self.numbers[buffer.name])

    def _instruction(self, index: int, instruction: Instruction) -> Iterator[str]:
        reads, writes = instruction.reads, instruction.writes
        if len(reads) + len(writes) > 1:
            yield from _overlaps(instruction, reads, writes)
        read = [(region, *self._cells(region)) for region in reads]
        for region, shadow, cells in read:
            if not self._readable(index, self.numbers[region.buffer], shadow.owners(cells)):
                yield from self._reads(index, region)
        for region, shadow, cells in read:
            shadow.read(cells, index, self.columns[region.memory][self.ordering.column[index]])
        written = [(region, *self._cells(region)) for region in writes]
        for region, shadow, cells in written:
            if not self._writable(index, shadow.owners(cells), shadow.readers(cells)):
                yield from self._writes(index, region)
        for region, shadow, cells in written:
            shadow.write(cells, index, self.numbers[region.buffer])

    def _cells(self, region: Region) -> tuple[Shadow, Cells]:
        shadow = self.shadows[region.memory]
        return shadow, shadow.cells(region)

    def _readable(self, index: int, number: int, owners: list[tuple[int, int]]) -> bool:
        """Whether `_reads` has nothing to say, in less time."""
        for writer, buffer in owners:
            if buffer != number or writer == NOBODY:
                return False
            if writer != INITIALLY and not self.ordering.before(writer, index):
                return False
        return True

    def _writable(self, index: int, owners: list[tuple[int, int]], readers: list[int]) -> bool:
        """Whether `_writes` has nothing to say, in less time."""
        for earlier in (*[writer for writer, _ in owners if writer >= 0], *readers):
            if earlier != index and not self.ordering.before(earlier, index):
                return False
        return True

    def _reads(self, index: int, region: Region) -> Iterator[str]:
        for piece in self.shadows[region.memory].pieces(region):
            what = _bytes(region, piece)
            if piece.writer == NOBODY:
                yield f"reads {what} before anything is written there"
            elif piece.buffer != self.numbers[region.buffer]:
                yield f"reads {what}, overwritten {self._by(piece)}: two live buffers overlap"
            elif piece.writer != INITIALLY and not self.ordering.before(piece.writer, index):
                yield f"reads {what}, which {self._name(piece.writer)} writes: not ordered by a wait or barrier"

    def _writes(self, index: int, region: Region) -> Iterator[str]:
        shadow = self.shadows[region.memory]
        for piece in shadow.pieces(region):
            if piece.writer >= 0 and piece.writer != index and not self.ordering.before(piece.writer, index):
                what = _bytes(region, piece)
                yield f"writes {what}, which {self._name(piece.writer)} writes too: not ordered by a wait or barrier"
        for reader in shadow.readers(shadow.cells(region)):
            if reader != index and not self.ordering.before(reader, index):
                yield f"writes {region}, which {self._name(reader)} reads: not ordered by a wait or barrier"

    def _output(self, buffer: Buffer) -> Iterator[str]:
        region = buffer.value.region
        for piece in self.shadows[buffer.memory].pieces(region):
            if piece.writer == NOBODY:
                yield f"output {_bytes(region, piece)} is never written"
            elif piece.buffer != self.numbers[buffer.name]:
                yield f"output {_bytes(region, piece)} is overwritten {self._by(piece)}"

    def _by(self, piece: Piece) -> str:
        buffer = self.program.buffers[piece.buffer].name
        return f"as {buffer!r}" + (f" by {self._name(piece.writer)}" if piece.writer >= 0 else " from the start")

    def _name(self, index: int) -> str:
        return describe(index, self.program.instructions[index])


def _engines_of(program: Program, column: Sequence[int]) -> dict[Memory, dict[int, int]]:
    """Per memory, the engines (by column) that read or write it, numbered; an instruction counts for its first."""
    engines: dict[Memory, dict[int, int]] = {}
    for engine, instruction in zip(column, program.instructions, strict=True):
        for region in (*instruction.reads, *instruction.writes):
            columns = engines.setdefault(region.memory, {})
            if engine not in columns:
                columns[engine] = len(columns)
    return engines


def _whole(buffer: Buffer) -> Region:
    return Region(buffer.name, buffer.memory, buffer.address, buffer.size)


def _bytes(region: Region, piece: Piece) -> str:
    return f"{region.buffer!r} at {region.memory}:{piece.start:#x}..{piece.end:#x}"


def _overlaps(instruction: Instruction, reads: Sequence[Region], writes: Sequence[Region]) -> Iterator[str]:
    """An instruction must not write what it reads (but see `Compute.in_place`), or write anything twice."""
    in_place = isinstance(instruction, Compute) and instruction.in_place
    for position, written in enumerate(writes):
        for read in reads:
            if overlap(written, read) and not (in_place and rows_of(written) == rows_of(read)):
                yield f"writes {written} while it reads {read}"
        for other in writes[:position]:
            if overlap(written, other):
                yield f"writes {written} and {other}, which overlap"


def overlap(first: Region, second: Region) -> bool:
    """Whether two regions have a byte in common."""
    if first.memory != second.memory or first.end <= second.address or second.end <= first.address:
        return False
    if first.is_contiguous and second.is_contiguous:
        return True
    many, few = sorted((first, second), key=lambda region: region.planes * region.rows, reverse=True)
    positions = many.starts.searchsorted(few.starts + few.row_bytes) - 1
    return bool(((positions >= 0) & (many.starts[positions] + many.row_bytes > few.starts)).any())
