"""The kernels of a model run one after another, each tensor of them in memory that tells of every access beside it.

A tensor ends at a page that nobody may touch. The bytes in front of it, and the few that its alignment leaves behind,
make NaN. So do, during a call, all elements of the kernel's tensors that it has no reason to read; after the call
nothing but its results may have changed.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from eqfuse.ir.sizes import dimension_size
from eqfuse.ir.types import Dimension
from eqfuse.lowering.base.interface import inputs_of, known_type
from eqfuse.lowering.bundle.isolation import call_isolated
from eqfuse.lowering.kernels.channels_last import from_last
from eqfuse.lowering.kernels.compilation import CompiledKernels
from eqfuse.lowering.kernels.fallback import LoopCall, is_constant
from eqfuse.lowering.kernels.prim_funcs import KernelCall
from eqfuse.lowering.kernels.steps import InPlace, View
from eqfuse.lowering.running.native import ALIGNMENT, NativeLibrary, load_library

from ..small_models import Array

SECONDS = 120.0
"""Of a run: a generous limit for what hangs."""
POISON = 0xFF
"""Of each byte: NaN in every float, -1 in every integer, and no value of a bool."""
Region = tuple[slice, ...]
Key = tuple[str, int]
"""A value of the graph, or a constant as kernels read it."""


@dataclass(frozen=True)
class Access:
    """A tensor that a kernel is given, and the part of it that it reads or writes."""

    tensor: Key
    region: Region


@dataclass(frozen=True)
class GuardedCall:
    """A kernel, and where its parameters are."""

    symbol: str
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]


@dataclass(frozen=True)
class Reshaped:
    """A tensor that is another one under another shape."""

    tensor: Key
    of: Key
    shape: tuple[int, ...]


@dataclass(frozen=True)
class GuardedProgram:
    """What runs, on tensors of these `types`; those that are given, and where the outputs are, by their names."""

    steps: tuple[GuardedCall | Reshaped, ...]
    types: Mapping[Key, tuple[str, tuple[int, ...]]]
    given: Mapping[Key, Array]
    outputs: Mapping[str, Access]


def run_guarded(
    compiled: CompiledKernels, library: Path, feeds: Mapping[str, Array], sizes: Mapping[str, int], threads: int
) -> dict[str, Array]:
    """The outputs that steps compute, at these sizes of dynamic dimensions. What crashes is a CrashError, and a kernel
    that writes where it should not is a LoweringError."""
    writer = _Writer(compiled, feeds, sizes)
    results = call_isolated(SECONDS, _run, library, threads, writer.program())
    numbers = {value.name: number for number, value in enumerate(compiled.graph.values)}
    return {
        name: from_last(array) if numbers[name] in compiled.channels_last else array
        for name, array in results.items()
    }  # fmt: skip


class _Writer:
    """Writes the program of compiled kernels."""

    def __init__(self, compiled: CompiledKernels, feeds: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        self.compiled, self.sizes = compiled, sizes
        self.types: dict[Key, tuple[str, tuple[int, ...]]] = {}
        self.given: dict[Key, Array] = {}
        names = {port.name for port in inputs_of(compiled.weights.model)}
        self.feeds = {n: feeds[v.name] for n, v in enumerate(compiled.graph.values) if v.name in names}

    def program(self) -> GuardedProgram:
        compiled = self.compiled
        steps = [self._step(step) for step in compiled.steps if not isinstance(step, InPlace)]
        values = enumerate(compiled.graph.values)
        outputs = {v.name: self._access(n) for n, v in values if v.is_output and v.producer is not None}
        return GuardedProgram(tuple(steps), self.types, self.given, outputs)

    def _step(self, step: Any) -> GuardedCall | Reshaped:
        if isinstance(step, View):
            source = self._access(step.source).tensor
            return Reshaped(("value", step.result), source, self._shape(self.compiled.stored_shape(step.result)))
        assert isinstance(step, KernelCall | LoopCall), f"{step}: is not run by a kernel"
        reads = [self._argument(step, n) for n in range(len(step.inputs))]
        return GuardedCall(step.symbol, tuple(reads), tuple(map(self._access, step.outputs)))

    def _argument(self, step: KernelCall | LoopCall, position: int) -> Access:
        value, compiled = step.inputs[position], self.compiled
        is_packed = isinstance(step, KernelCall) and bool(compiled.packing(step, position))
        if not is_packed or not is_constant(compiled.graph, value, compiled.weights.model):
            return self._access(value)
        assert isinstance(step, KernelCall)
        array = compiled.constant(step, position)
        key = (f"packed for {step.symbol} {position}", value)
        self._give(key, array)
        return Access(key, tuple(slice(0, extent) for extent in array.shape))

    def _access(self, value: int) -> Access:
        """A value where it is: in its own tensor, or in that which it is a part of."""
        compiled = self.compiled
        place, shape = compiled.places.get(value), self._shape(compiled.stored_shape(value))
        whole = value if place is None else place.whole
        key = ("value", whole)
        self.types[key] = known_type(compiled.graph, value).dtype, self._shape(compiled.whole_shape(value))
        if whole in self.feeds:
            self._give(key, self.feeds[whole])
        elif is_constant(compiled.graph, whole, compiled.weights.model):
            self._give(key, compiled.weights[compiled.graph.values[whole].name])
        firsts = [place.first if place is not None and place.axis == axis else 0 for axis in range(len(shape))]
        return Access(key, tuple(slice(first, first + extent) for first, extent in zip(firsts, shape, strict=True)))

    def _give(self, key: Key, array: Array) -> None:
        self.given[key], self.types[key] = array, (array.dtype.name, array.shape)

    def _shape(self, shape: Iterable[Dimension]) -> tuple[int, ...]:
        return tuple(dimension_size(extent, self.sizes) for extent in shape)


# --- in a process of its own, which may crash


def _run(library: Path, threads: int, program: GuardedProgram) -> dict[str, Array]:
    kernels = load_library(library)
    kernels.use_threads(threads)
    memories: dict[Key, Memory] = {}
    for key, (dtype, shape) in program.types.items():
        memories[key] = Memory.of(np.dtype(dtype), shape)
        if key in program.given:
            memories[key].array[...] = program.given[key]
    for step in program.steps:
        if isinstance(step, Reshaped):
            memories[step.tensor] = memories[step.of].reshaped(step.shape)
        else:
            _call(kernels, step, memories)
    return {name: memories[access.tensor].array[access.region].copy() for name, access in program.outputs.items()}


def _call(kernels: NativeLibrary, call: GuardedCall, memories: Mapping[Key, Memory]) -> None:
    """Call a kernel with all that it has not to read poisoned, and check that it writes what it has to alone."""
    accesses = (*call.reads, *call.writes)
    touched = {memories[access.tensor].identity: memories[access.tensor] for access in accesses}
    saved = {identity: memory.bytes.copy() for identity, memory in touched.items()}
    reads = [(memories[access.tensor], access.region) for access in call.reads]
    contents = [memory.array[region].copy() for memory, region in reads]
    for memory in touched.values():
        memory.bytes[...] = POISON
    for (memory, region), content in zip(reads, contents, strict=True):
        memory.array[region] = content
    before = {identity: memory.bytes.copy() for identity, memory in touched.items()}
    kernels.bind_kernel(call.symbol, [memories[access.tensor].array for access in accesses])()
    results = [memories[access.tensor].array[access.region].copy() for access in call.writes]
    for access in call.writes:
        Memory.poison(memories[access.tensor].array[access.region])
    for identity, memory in touched.items():
        if not np.array_equal(memory.bytes, before[identity]):
            raise RuntimeError(f"{call.symbol}: writes beside its results")
        memory.bytes[...] = saved[identity]
    for access, result in zip(call.writes, results, strict=True):
        memories[access.tensor].array[access.region] = result


@dataclass(frozen=True)
class Memory:
    """An array, and the `bytes` around it that may be touched, up to a page on both sides that may not."""

    bytes: Array
    array: Array

    @staticmethod
    def of(dtype: np.dtype[Any], shape: Sequence[int]) -> Memory:
        """An aligned array, poisoned as all around it is."""
        size, page = dtype.itemsize * prod(shape), mmap.PAGESIZE
        inner = (size + page - 1) // page * page + page
        pages = np.frombuffer(mmap.mmap(-1, inner + 2 * page), np.uint8)
        begin, protect = pages.ctypes.data, ctypes.CDLL(None).mprotect
        for forbidden in (begin, begin + page + inner):
            assert protect(ctypes.c_void_p(forbidden), ctypes.c_size_t(page), 0) == 0
        touched = pages[page : page + inner]
        touched[...] = POISON
        start = (inner - size) // ALIGNMENT * ALIGNMENT
        return Memory(touched, touched[start : start + size].view(dtype).reshape(shape))

    @property
    def identity(self) -> int:
        """Where the bytes are: tensors of one memory have the same."""
        return int(self.bytes.ctypes.data)

    def reshaped(self, shape: Sequence[int]) -> Memory:
        return Memory(self.bytes, self.array.reshape(shape))

    @staticmethod
    def poison(array: Array) -> None:
        """Poison the elements of an array in place."""
        array[...] = np.frombuffer(bytes([POISON]) * array.dtype.itemsize, array.dtype)[0]
