"""A program for the accelerator: instructions with explicit byte addresses in DDR, GB and LB.

The memories are those of GraphTurbo's figure 1: one DDR, a global buffer (GB) in each cluster, a local buffer (LB) in
each core. An engine runs its instructions in program order, one after another; engines run concurrently. What one
engine needs from another is ordered by `waits` (point to point) or by a `Barrier`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property, total_ordering
from typing import Any, ClassVar

import msgspec
import numpy as np

from ....costmodels.systolic import Product
from ...base.errors import LoweringError


class ProgramError(LoweringError):
    """A program that cannot be read or run; the message names the instruction, the level and the addresses."""


@total_ordering
class Level(Enum):
    """A level of the memory hierarchy. A faster level is less than a slower one."""

    DDR = "DDR"
    GB = "GB"
    LB = "LB"
    __hash__ = object.__hash__  # members are unique; Enum's own hashes the name, in Python

    def __lt__(self, other: Level) -> bool:
        return _SLOWNESS[self] < _SLOWNESS[other]


_SLOWNESS = {Level.LB: 0, Level.GB: 1, Level.DDR: 2}


class Unit(Enum):
    """The kinds of engines: the three compute units of a core, and DMA engines of a core or of a cluster."""

    VECTOR = "vector"
    VME = "vme"
    MME = "mme"
    DMA = "dma"
    __hash__ = object.__hash__


COMPUTE_UNITS = (Unit.VECTOR, Unit.VME, Unit.MME)


class Role(Enum):
    """How the bytes of a buffer come about: inputs and constants are there before the program starts."""

    INPUT = "input"
    CONSTANT = "constant"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"


INITIAL = frozenset({Role.INPUT, Role.CONSTANT})


class TransferKind(Enum):
    """Why bytes move: between DDR and GB, weights from GB to LB, activations between GB and LB, or between cores."""

    DMA = "dma"
    HOIST = "hoist"
    COPY = "copy"
    REDISTRIBUTE = "redistribute"


class _Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a program, which its file holds as a JSON object without the fields that have their default. Programs
    have millions of them, none of which is part of a cycle, so that the collector of cycles leaves them out."""


class _Unique(type):
    """Makes equal parts one object: programs compare and hash them by identity, millions of times."""

    made: ClassVar[dict[tuple[object, ...], Any]] = {}
    """By class and arguments, and by class and text."""

    def __call__(cls, *arguments: Any) -> Any:
        key = cls, *arguments
        if key not in cls.made:
            part = super().__call__(*arguments)
            cls.made[key] = cls.made.setdefault((cls, part.text), part)
        return cls.made[key]


class _MachinePart(metaclass=_Unique):
    """A part of the machine, which files and messages name by its `text`. (No record: msgspec leaves it to hooks.)"""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class Memory(_MachinePart):
    """One memory. `cluster` is 0 for DDR, `core` is 0 for DDR and GB. Written ``DDR``, ``GB[0]``, ``LB[0.3]``."""

    def __init__(self, level: Level, cluster: int = 0, core: int = 0) -> None:
        self.level, self.cluster, self.core = level, cluster, core
        place = {Level.DDR: "", Level.GB: f"[{cluster}]", Level.LB: f"[{cluster}.{core}]"}
        super().__init__(level.value + place[level])


DDR = Memory(Level.DDR)


@cache
def global_buffer(cluster: int) -> Memory:
    """The GB of a cluster."""
    return Memory(Level.GB, cluster)


@cache
def local_buffer(cluster: int, core: int) -> Memory:
    """The LB of a core."""
    return Memory(Level.LB, cluster, core)


class Engine(_MachinePart):
    """One engine; `core` is None for what belongs to the cluster. Written ``0.3.mme``, ``0.dma1``, ``0.3.dma0``."""

    def __init__(self, cluster: int, core: int | None, unit: Unit, channel: int = 0) -> None:
        self.cluster, self.core, self.unit, self.channel = cluster, core, unit, channel
        place = f"{cluster}." if core is None else f"{cluster}.{core}."
        super().__init__(place + unit.value + (str(channel) if unit is Unit.DMA else ""))

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Sorts engines by cluster, its own channels before its cores', and units as declared."""
        return self.cluster, -1 if self.core is None else self.core, list(Unit).index(self.unit), self.channel


class Buffer(_Record, frozen=True):
    """`size` bytes from `address` on that hold one value. Every value has its own buffer, even in a shared place.

    `dtype` (numpy's name) and `shape` describe the value, and fit in `size` bytes.
    """

    name: str
    memory: Memory
    address: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    role: Role = Role.INTERMEDIATE

    @property
    def value(self) -> Operand:
        """The value as an operand: without the bytes that fill the buffer up to a multiple of the alignment."""
        size = math.prod(self.shape) * item_size(self.dtype)
        return Operand(Region(self.name, self.memory, self.address, size), self.dtype, self.shape)


class Region(_Record, frozen=True):
    """`planes` planes of `rows` rows of `row_bytes` bytes each, within a buffer.

    Rows of a plane are `stride` bytes apart, planes `plane_stride` bytes; either is 0 if there is only one.
    """

    buffer: str
    memory: Memory
    address: int
    row_bytes: int
    rows: int = 1
    stride: int = 0
    planes: int = 1
    plane_stride: int = 0

    @property
    def size(self) -> int:
        """The bytes in the rows."""
        return self.planes * self.rows * self.row_bytes

    @property
    def is_contiguous(self) -> bool:
        """Whether it is one row."""
        return self.rows == self.planes == 1

    @property
    def span(self) -> int:
        """The bytes from the first one of a plane to the last."""
        return (self.rows - 1) * self.stride + self.row_bytes

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.address + (self.planes - 1) * self.plane_stride + self.span

    @property
    def starts(self) -> np.ndarray:
        """The address of each row, plane after plane."""
        rows = self.stride * np.arange(self.rows, dtype=np.int64)
        planes = self.plane_stride * np.arange(self.planes, dtype=np.int64)
        return self.address + (planes[:, None] + rows).reshape(-1)

    def __str__(self) -> str:
        rows = "" if self.is_contiguous else f" {self.rows} rows of {self.row_bytes} every {self.stride}"
        planes = "" if self.planes == 1 else f", {self.planes} planes every {self.plane_stride}"
        return f"{self.buffer}@{self.memory}:{self.address:#x}..{self.end:#x}{rows}{planes}"


@cache
def item_size(dtype: str) -> int:
    """Bytes of an element of a numpy type. Raises TypeError if there is none of that name."""
    return np.dtype(dtype).itemsize


def _extents_of(shape: Sequence[int], number: int) -> int | None:
    """How many leading extents have that many indices together; None if no number of them has."""
    indices = 1
    for count, extent in enumerate((*shape, 1)):
        if indices == number:
            return count
        indices *= extent
    return None


class Operand(_Record, frozen=True):
    """A region read as a tensor: `shape` elements of numpy's `dtype`, row after row."""

    region: Region
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The bytes of the tensor."""
        return math.prod(self.shape) * item_size(self.dtype)

    @property
    def leading(self) -> tuple[int, int] | None:
        """How many leading extents the planes of the region are, and how many its planes and rows; None if they cut an
        extent. One row: both 0.
        """
        planes = _extents_of(self.shape, self.region.planes)
        rows = None if planes is None else _extents_of(self.shape[planes:], self.region.rows)
        return None if planes is None or rows is None else (planes, planes + rows)


class Work(_Record, frozen=True):
    """The work of one unit: products on the MME, `operations` multiply-accumulates (VME) or element operations."""

    unit: Unit
    operations: int = 0
    products: tuple[Product, ...] = ()

    @property
    def total(self) -> int:
        """Multiply-accumulates or element operations."""
        return self.total_at(1)

    def total_at(self, int8: int) -> int:
        """The same, if a unit does `int8` multiply-accumulates of integers of 8 bits in the time of another one."""
        return self.operations + sum(-(-each.macs // (int8 if each.eight_bits else 1)) for each in self.products)


class _OfChannel(_Record, frozen=True):
    engine: Engine

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The channel that the transfer occupies."""
        return (self.engine,)


class Transfer(_OfChannel, frozen=True, tag_field="op", tag="transfer"):
    """Bytes of `source`, row after row, to each of `targets` (one read, several writes: a multicast)."""

    source: Region
    targets: tuple[Region, ...]
    kind: TransferKind = TransferKind.DMA
    waits: tuple[int, ...] = ()
    label: str = ""

    @property
    def reads(self) -> tuple[Region, ...]:
        """The regions read."""
        return (self.source,)

    @property
    def writes(self) -> tuple[Region, ...]:
        """The regions written."""
        return self.targets


class IndexedTransfer(_OfChannel, frozen=True, tag_field="op", tag="indexed_transfer"):
    """Rows of a table, one for each index, to consecutive rows of the target: an embedding's lookup.

    Row i of the table is the `row_bytes` bytes from ``i * row_bytes`` on; negative indices count from its end, as
    ONNX's Gather has it. The channel reads the indices, int32 or int64, in LB or GB.
    """

    table: Region
    indices: Operand
    row_bytes: int
    target: Region
    waits: tuple[int, ...] = ()
    label: str = ""

    @property
    def count(self) -> int:
        """How many rows are moved."""
        return math.prod(self.indices.shape)

    @property
    def reads(self) -> tuple[Region, ...]:
        """The table, any row of which may be read, and the indices."""
        return (self.table, self.indices.region)

    @property
    def writes(self) -> tuple[Region, ...]:
        """The target."""
        return (self.target,)


@cache
def units_of(cluster: int, core: int | None, work: tuple[Work, ...]) -> tuple[Engine, ...]:
    """The units that do some work."""
    return tuple(Engine(cluster, core, each.unit) for each in work)


class Compute(_Record, frozen=True, tag_field="op", tag="compute"):
    """A kernel on one core; the units of `work` run it together, as a pipeline.

    The first unit is occupied until it ends; the others, which an epilogue needs for less, for their own cycles only:
    in between they work for other kernels.

    Operands are in the LB of the core. Without a core the units are the cluster's own, and operands are in its GB.
    `in_place` allows outputs at exactly the addresses of inputs.
    """

    cluster: int
    core: int | None
    kernel: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    work: tuple[Work, ...]
    in_place: bool = False
    waits: tuple[int, ...] = ()
    label: str = ""

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The units that the kernel occupies."""
        return units_of(self.cluster, self.core, self.work)

    @property
    def reads(self) -> tuple[Region, ...]:
        """The regions read."""
        return tuple(operand.region for operand in self.inputs)

    @property
    def writes(self) -> tuple[Region, ...]:
        """The regions written."""
        return tuple(operand.region for operand in self.outputs)


class Barrier(_Record, frozen=True, tag_field="op", tag="barrier"):
    """The engines go on only when all of them have arrived here."""

    engines: tuple[Engine, ...]
    waits: tuple[int, ...] = ()
    label: str = ""
    reads: ClassVar[tuple[Region, ...]] = ()
    writes: ClassVar[tuple[Region, ...]] = ()


Kernel = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]
"""The function of a `Compute`, which fills its outputs, the second arrays, from its inputs: views of memory."""

Movement = Transfer | IndexedTransfer
Instruction = Transfer | IndexedTransfer | Compute | Barrier


class ScopeCounts(_Record, frozen=True):
    """How many tensors the scheduler declared at each level (the text's table 3)."""

    ddr: int = 0
    gb: int = 0
    lb: int = 0


class Program(_Record, frozen=True, gc=True, dict=True):
    """Instructions for `device`, numbered by position, that process `batch` samples. `waits` name earlier positions."""

    name: str
    device: str
    batch: int
    buffers: tuple[Buffer, ...]
    instructions: tuple[Instruction, ...]
    scopes: ScopeCounts = ScopeCounts()

    def engines(self) -> list[Engine]:
        """Every engine that has an instruction, in order of cluster, core and unit."""
        engines = {engine for instruction in self.instructions for engine in instruction.engines}
        return sorted(engines, key=lambda engine: engine.order)

    @cached_property
    def buffers_by_name(self) -> Mapping[str, Buffer]:
        """The buffers."""
        return {buffer.name: buffer for buffer in self.buffers}

    def regions(self) -> Iterator[Region]:
        """Every region that an instruction reads or writes."""
        for instruction in self.instructions:
            yield from instruction.reads
            yield from instruction.writes


def describe(index: int, instruction: Instruction) -> str:
    """How messages name an instruction: number, kind, label and engines."""
    label = f" {instruction.label!r}" if instruction.label else ""
    kind = str(instruction.__struct_config__.tag).replace("_", " ")
    return f"#{index} {kind}{label} on {join_engines(instruction.engines)}"


def join_engines(engines: Iterable[Engine]) -> str:
    """``0.3.mme+0.3.vector``."""
    return "+".join(map(str, engines))
