"""The memory of one run of a compiled model, and how arrays get into it and out of it.

A call of a small model takes microseconds, so small inputs and outputs have memory of their own here, whose addresses
are passed once: copying a few kilobytes takes less time than asking numpy for the address of an array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...support.errors import UsageError
from ..base.errors import BundleError, LoweringError
from ..base.ports import Port
from ..bundle.loaded import Array, fit_input
from .native import CALLBACK, WATCHER, NativeLibrary, address, allocate, is_aligned

SMALL = 1 << 14
"""Bytes that are copied in about the time in which numpy tells the address of an array."""
_UNBOUNDED = ctypes.c_size_t(-1).value
"""EQFUSE_UNBOUNDED: the bytes of an output whose size nothing bounds."""
_REFUSED = 1
"""EQFUSE_REFUSED: what a run returns if a branch cannot run on these shapes of the inputs."""
Fallback = tuple[int, Callable[[list[Array], list[Array]], Callable[[], None]]]
"""Operators that this process runs for the library: the number of their inputs, and a function that binds arrays of
these and others to fill, to which the function that it returns may be called as often as they are there."""


class Context:
    """One context of the library's. One run at a time."""

    def __init__(
        self,
        library: NativeLibrary,
        weights: Array,
        threads: int,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        fallbacks: Sequence[Fallback],
    ) -> None:
        """Raises BundleError if there is no memory for it."""
        self._library = library
        self._weights = weights  # which the context reads
        self._inputs = tuple(_Slot(number, port) for number, port in enumerate(inputs))
        self._is_static = all(port.is_static for port in (*inputs, *outputs))
        self._failure: BaseException | None = None
        self._fallbacks = fallbacks
        self._bound: dict[int, tuple[object, Callable[[], None]]] = {}
        functions = library.functions
        create: Any = functions.eqfuse_create
        create.restype, create.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        network = ctypes.addressof(ctypes.c_char.in_dll(functions, "eqfuse_network"))
        self._handle = ctypes.c_void_p(create(network, address(weights) if weights.size else None, threads))
        if not self._handle:
            raise BundleError(library.message)
        self._given = (ctypes.c_void_p * max(len(inputs), 1))()
        self._taken = (ctypes.c_void_p * max(len(outputs), 1))()
        self._run: Any = functions.eqfuse_run
        output_shape: Any = functions.eqfuse_output_shape
        self._output: Any = functions.eqfuse_output
        self._output_bytes: Any = functions.eqfuse_output_bytes
        output_shape.restype, self._output.restype, self._output_bytes.restype = (
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
        )
        self._outputs = tuple(
            _OutputSlot(number, port, output_shape(self._handle, number)) for number, port in enumerate(outputs)
        )
        given = {name for port in inputs for name in port.names}
        self._measured = tuple(slot for slot in self._outputs if not slot.port.names <= given)
        self._arguments = (self._handle, ctypes.byref(self._given), ctypes.byref(self._taken))
        if fallbacks:
            self._callback = CALLBACK(self._call_back)
            functions.eqfuse_set_callback(self._handle, self._callback, None)
        if self._is_static:
            self._set_shapes([port.static_shape for port in inputs])

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.functions.eqfuse_destroy(self._handle)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out. Raises UsageError if an input does not fit."""
        kept = []  # until the run has ended
        for slot in self._inputs:
            array = inputs[slot.name]
            if type(array) is not np.ndarray or array.dtype != slot.dtype or array.shape != slot.shape:
                return self.run(self._fit(inputs))
            if slot.is_small or not is_aligned(array):
                slot.own[...] = array
                self._given[slot.number] = slot.address
            else:
                self._given[slot.number] = address(array)
                kept.append(array)
        results = {}
        for slot in self._outputs:
            results[slot.name] = slot.own
            if not slot.is_small:
                results[slot.name], self._taken[slot.number] = allocate(slot.own.shape, slot.dtype)
        self.run_bound()
        for slot in self._measured:
            results[slot.name] = self._cut(results[slot.name], slot)
        return {slot.name: own.copy() if (own := results[slot.name]) is slot.own else own for slot in self._outputs}

    def bind(self, inputs: Mapping[str, Any]) -> None:
        """Copy the inputs, on which `run_bound` and others run from now on."""
        arrays = self._fit(inputs)
        for slot in self._inputs:
            slot.own[...] = arrays[slot.name]
            self._given[slot.number] = slot.address
        for slot in self._outputs:
            self._taken[slot.number] = slot.address

    def _fit(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Arrays of the ports' types, for whose shapes memory is laid out. Raises UsageError if they do not fit."""
        arrays = {slot.name: fit_input(slot.port, inputs[slot.name]) for slot in self._inputs}
        if not self._is_static:
            self._set_shapes([arrays[slot.name].shape for slot in self._inputs])
        return arrays

    def _set_shapes(self, shapes: Sequence[tuple[int, ...]]) -> None:
        rows = [(ctypes.c_int64 * max(len(shape), 1))(*shape) for shape in shapes]
        pointers = (ctypes.c_void_p * max(len(rows), 1))(*map(ctypes.addressof, rows))
        if self._library.functions.eqfuse_set_shapes(self._handle, pointers):
            for slot in self._inputs:
                slot.forget()
            raise UsageError(self._library.message)
        for slot, shape in zip(self._inputs, shapes, strict=True):
            slot.resize(shape)
            self._given[slot.number] = slot.address
        for slot in self._outputs:
            slot.resize(slot.extents)
            slot.is_unbounded = self._output_bytes(self._handle, slot.number) == _UNBOUNDED
            self._taken[slot.number] = slot.address

    def _cut(self, memory: Array, slot: _OutputSlot) -> Array:
        """The output in its memory, which may be larger, or is the context's if nothing bounds its size."""
        if slot.is_unbounded:
            own, place = allocate(slot.extents, slot.dtype)
            if own.size:
                ctypes.memmove(place, self._output(self._handle, slot.number), own.nbytes)
            return own
        result: Array = np.ndarray(slot.extents, slot.dtype, memory)
        return result.copy() if slot.is_small or 2 * result.nbytes < memory.nbytes else result

    def run_bound(self) -> None:
        """Run on the inputs that were given last."""
        if status := self._run(*self._arguments):
            self._raise_failure(status)

    def time_steps(self, clock: int, nanoseconds: Array) -> None:
        """Run as `run_bound` does, and add the time of each step, by a clock of the module `time`, to those so far."""
        taken = nanoseconds.ctypes.data_as(ctypes.c_void_p)
        if status := self._library.functions.eqfuse_time_steps(*self._arguments, clock, taken):
            self._raise_failure(status)

    def watch(self, watcher: Callable[[int], None]) -> None:
        """Have a function told the number of each step before it runs, and -1 behind the last."""
        self._watcher = WATCHER(lambda _, step: watcher(step))
        self._library.functions.eqfuse_watch(self._handle, self._watcher, None)

    def _call_back(self, _: Any, number: int, arguments: Any, count: int) -> int:
        tensors = [arguments[place].tensor.contents for place in range(count)]
        places = [(tensor.data, tensor.shape[: tensor.rank]) for tensor in tensors]
        try:
            known, run = self._bound.get(number, (None, None))
            if run is None or known != places:
                arrays, (inputs, bind) = [tensor.array() for tensor in tensors], self._fallbacks[number]
                run = bind(arrays[:inputs], arrays[inputs:])
                self._bound[number] = places, run
            run()
        except BaseException as error:  # it cannot pass through the library; `run_bound` raises it
            self._failure = error
            return -1
        return 0

    def _raise_failure(self, status: int) -> None:
        """UsageError for sizes that a branch refused, else what a function of the host or a kernel failed with."""
        failure, self._failure = self._failure, None
        raise failure or (UsageError if status == _REFUSED else LoweringError)(self._library.message)


class _Slot:
    """An input or output, and memory of its `own` for a tensor of its shape, in which it is passed if it is small."""

    def __init__(self, number: int, port: Port) -> None:
        self.number, self.port, self.name, self.dtype = number, port, port.name, np.dtype(port.dtype)
        self._memory, self.address = allocate((0,), np.dtype(np.uint8))
        self.forget()

    def forget(self) -> None:
        """Have no shape, so that no array fits."""
        self.shape: tuple[int, ...] | None = None

    def resize(self, shape: tuple[int, ...]) -> None:
        """Have this shape from now on. Small tensors of all shapes have the same memory."""
        if shape == self.shape:
            return
        size = self.dtype.itemsize * prod(shape)
        if self._memory.nbytes != (wanted := max(size, SMALL)):
            self._memory, self.address = allocate((wanted,), self._memory.dtype)
        self.shape, self.own, self.is_small = shape, np.ndarray(shape, self.dtype, self._memory), size <= SMALL


class _OutputSlot(_Slot):
    """An output."""

    is_unbounded = False
    """Whether its content is in memory of the context's, which grows as it needs to."""

    def __init__(self, number: int, port: Port, extents: int | None) -> None:
        """`extents`: the address of its shape in the context."""
        super().__init__(number, port)
        self._extents = (ctypes.c_int64 * len(port.shape)).from_address(extents or 0)

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape that it has now: before a run the largest, if it follows from values."""
        return tuple(self._extents[:])
