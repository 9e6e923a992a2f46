"""Rules for each instruction and buffer by itself: places, sizes, alignment, and paths that exist."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ....costmodels.dsa_device import DsaDevice
from .cost import Cost
from .instructions import (
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
    Region,
    Transfer,
    Unit,
    describe,
    item_size,
)

INDEX_TYPES = ("int32", "int64")
"""Of the indices of an IndexedTransfer."""


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
        if gather.row_bytes < 1 or table.rows != 1 or table.size % gather.row_bytes:
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
    if region.address % item or region.stride % item or region.row_bytes % item:
        yield f"{region}: not aligned for {operand.dtype}"
    elif operand.leading is None:
        yield f"{region}: its {region.rows} rows are no leading extents of {list(operand.shape)}"


@cache
def _is_dtype(name: str) -> bool:
    try:
        return item_size(name) > 0
    except TypeError:
        return False
