"""The memory of one run of a compiled model, and how arrays get into it and out of it.

A call of a small model takes microseconds, so small inputs and outputs have memory of their own here, whose addresses
are passed once: copying a few kilobytes takes less time than asking numpy for the address of an array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import UsageError
from ..bundle.loaded import Array, fit_input
from ..errors import BundleError, LoweringError
from ..ports import Port
from .native import CALLBACK, WATCHER, NativeLibrary, address, aligned, empty

SMALL = 1 << 14
"""Bytes that are copied in about the time in which numpy tells the address of an array."""
Fallback = tuple[int, Callable[[list[Array], list[Array]], None]]
"""Operators that this process runs for the library: the number of their inputs, and a function of the arrays of these
and of those to fill."""


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
        """Raises BundleError where there is no memory for it."""
        self._library = library
        self._weights = weights  # which the context reads
        self._inputs = tuple(_Slot(number, port) for number, port in enumerate(inputs))
        self._outputs = tuple(_Slot(number, port) for number, port in enumerate(outputs))
        self._is_static = all(port.is_static for port in (*inputs, *outputs))
        self._shapes: tuple[tuple[int, ...], ...] | None = None
        self._kept: list[Array] = []
        self._failure: BaseException | None = None
        self._fallbacks = fallbacks
        functions = library.functions
        create: Any = functions.eqfuse_create
        create.restype, create.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        network = ctypes.addressof(ctypes.c_char.in_dll(functions, "eqfuse_network"))
        self._handle = ctypes.c_void_p(create(network, address(weights) if weights.size else None, threads))
        if not self._handle:
            raise BundleError(library.message)
        self._given = (ctypes.c_void_p * max(len(inputs), 1))(*(address(slot.own) for slot in self._inputs))
        self._taken = (ctypes.c_void_p * max(len(outputs), 1))(*(address(slot.own) for slot in self._outputs))
        self._run: Any = functions.eqfuse_run
        self._output_bytes: Any = functions.eqfuse_output_bytes
        self._output_bytes.restype = ctypes.c_size_t
        self._output_shape: Any = functions.eqfuse_output_shape
        self._output_shape.restype = ctypes.POINTER(ctypes.c_int64)
        self._arguments = (self._handle, ctypes.byref(self._given), ctypes.byref(self._taken))
        if fallbacks:
            self._callback = CALLBACK(self._call_back)
            functions.eqfuse_set_callback(self._handle, self._callback, None)
        if self._is_static:
            self._set_shapes([slot.own for slot in self._inputs])

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.functions.eqfuse_destroy(self._handle)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out. Raises UsageError where an input does not fit."""
        if not self._is_static:
            self.bind(inputs)
            self.run_bound()
            memory, self._kept = self._kept[len(self._inputs) :], []
            return {slot.name: self._output(slot, memory[slot.number]) for slot in self._outputs}
        kept = []  # until the run has ended
        for slot in self._inputs:
            array = slot.fit(inputs[slot.name])
            if slot.is_small:
                slot.own[...] = array
            else:
                array = aligned(array)
                self._given[slot.number] = address(array)
                kept.append(array)
        results = {}
        for slot in self._outputs:
            results[slot.name] = slot.own
            if not slot.is_small:
                results[slot.name] = fresh = empty(slot.own.shape, slot.dtype)
                self._taken[slot.number] = address(fresh)
        self.run_bound()
        return {slot.name: own.copy() if (own := results[slot.name]) is slot.own else own for slot in self._outputs}

    def bind(self, inputs: Mapping[str, Any]) -> None:
        """Take the inputs, on which `run_bound` and others run from now on."""
        arrays = [slot.fit(inputs[slot.name]) for slot in self._inputs]
        if self._is_static:
            for slot, array in zip(self._inputs, arrays, strict=True):
                slot.own[...] = array
                self._given[slot.number] = address(slot.own)
            for slot in self._outputs:
                self._taken[slot.number] = address(slot.own)
            return
        self._set_shapes(arrays)
        self._kept = list(map(aligned, arrays))
        for number, array in enumerate(self._kept):
            self._given[number] = address(array)
        self._kept += self._take_outputs()

    def _set_shapes(self, arrays: Sequence[Array]) -> None:
        """Have memory laid out for inputs of these shapes. Raises UsageError where they do not fit each other."""
        shapes = tuple(array.shape for array in arrays)
        if shapes == self._shapes:
            return
        rows = [(ctypes.c_int64 * max(len(shape), 1))(*shape) for shape in shapes]
        pointers = (ctypes.c_void_p * max(len(rows), 1))(*map(ctypes.addressof, rows))
        self._shapes = None
        if self._library.functions.eqfuse_set_shapes(self._handle, pointers):
            raise UsageError(self._library.message)
        self._shapes = shapes

    def _take_outputs(self) -> list[Array]:
        """Memory for outputs of the shapes that they have now."""
        memory = []
        for slot in self._outputs:
            memory.append(empty((self._output_bytes(self._handle, slot.number),), np.dtype(np.uint8)))
            self._taken[slot.number] = address(memory[-1])
        return memory

    def _output(self, slot: _Slot, memory: Array) -> Array:
        """The output in its memory, which may be larger: where the size follows from values, it is known now."""
        shape = tuple(self._output_shape(self._handle, slot.number)[: len(slot.shape)])
        result: Array = np.ndarray(shape, slot.dtype, memory)
        return result.copy() if 2 * result.nbytes < memory.nbytes else result

    def run_bound(self) -> None:
        """Run on the inputs that were given last."""
        if self._run(*self._arguments):
            self._raise_failure()

    def time_steps(self, clock: int, nanoseconds: Array) -> None:
        """Run as `run_bound` does, and add the time of each step, by a clock of the module `time`, to those so far."""
        taken = nanoseconds.ctypes.data_as(ctypes.c_void_p)
        if self._library.functions.eqfuse_time_steps(*self._arguments, clock, taken):
            self._raise_failure()

    def watch(self, watcher: Callable[[int], None]) -> None:
        """Have a function told the number of each step before it runs, and -1 behind the last."""
        self._watcher = WATCHER(lambda _, step: watcher(step))
        self._library.functions.eqfuse_watch(self._handle, self._watcher, None)

    def _call_back(self, _: Any, number: int, arguments: Any, count: int) -> int:
        arrays = [arguments[place].tensor.contents.array() for place in range(count)]
        inputs, run = self._fallbacks[number]
        try:
            run(arrays[:inputs], arrays[inputs:])
        except BaseException as error:  # it cannot pass through the library; `run_bound` raises it
            self._failure = error
            return -1
        return 0

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        raise failure or LoweringError(self._library.message)


class _Slot:
    """An input or output. A static one has memory of its `own`, in which it is passed if it is small."""

    def __init__(self, number: int, port: Port) -> None:
        self.number, self.port, self.name = number, port, port.name
        self.dtype, self.shape = np.dtype(port.dtype), port.shape
        self.own = empty(port.static_shape if port.is_static else (0,), self.dtype)
        self.is_small = self.own.nbytes <= SMALL

    def fit(self, value: Any) -> Array:
        """The value as an array of the port. Raises UsageError where it does not fit."""
        if type(value) is np.ndarray and value.dtype == self.dtype and value.shape == self.shape:
            return value
        return fit_input(self.port, value)
