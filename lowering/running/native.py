"""Libraries of compiled models through ctypes: their memory, and kernels by themselves."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  since then numpy knows bfloat16 and the types of 8 bits by name
import numpy as np

from ...support.scratch import scratch_folder
from ..base.elements import ELEMENT_TYPES
from ..base.errors import LoweringError

Array = np.ndarray[Any, Any]
ALIGNMENT = 64
"""Bytes. Kernels read and write tensors that begin at a multiple of it."""
_CPU, _TENSOR = 1, 7
"""DLPack's number of the device, and TVM's of an argument that is a tensor."""
_DTYPES = {(element.code, element.bits): np.dtype(name) for name, element in ELEMENT_TYPES.items()}


class Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_index", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip

    @staticmethod
    def of(array: Array) -> Tensor:
        """The tensor of an array, which has to outlive it: row by row, and aligned."""
        element = ELEMENT_TYPES[array.dtype.name]
        shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        return Tensor(address(array), _CPU, 0, array.ndim, element.code, element.bits, 1, shape)

    def array(self) -> Array:
        """The memory of the tensor as an array, for as long as that is there."""
        shape, dtype = tuple(self.shape[: self.rank]), _DTYPES[self.code, self.bits]
        size = dtype.itemsize * prod(shape)
        if not size:
            return np.empty(shape, dtype)
        memory: Any = (ctypes.c_char * size).from_address(self.data)
        return np.ndarray(shape, dtype, memory)


class Argument(ctypes.Structure):
    """TVM's TVMFFIAny with a tensor in it."""

    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("tensor", ctypes.POINTER(Tensor)))


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Argument), ctypes.c_int32)
WATCHER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)


def address(array: Array) -> int:
    """Where the elements of an array begin."""
    return int(array.__array_interface__["data"][0])


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Array, int]:
    """An array of that type whose elements begin at a multiple of ALIGNMENT, and where they begin."""
    memory = np.empty(dtype.itemsize * prod(shape) + ALIGNMENT, np.uint8)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory.data))  # asking numpy takes several times as long
    offset = -begin % ALIGNMENT
    return np.ndarray(shape, dtype, memory, offset), begin + offset


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of that type whose elements begin at a multiple of ALIGNMENT."""
    return allocate(shape, dtype)[0]


def is_aligned(array: Array) -> bool:
    """Whether the array is row by row, its elements beginning at a multiple of ALIGNMENT."""
    return bool(array.flags.c_contiguous) and address(array) % ALIGNMENT == 0


def aligned(array: Array) -> Array:
    """The array row by row, its elements beginning at a multiple of ALIGNMENT: itself, or a copy."""
    if is_aligned(array):
        return array
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


class NativeLibrary:
    """A library with kernels and the runtime in it."""

    def __init__(self, path: Path) -> None:
        """Load the file as it is. Raises OSError."""
        self.functions = ctypes.CDLL(str(path))
        self._message: Any = self.functions.eqfuse_message
        self._message.restype = ctypes.c_char_p

    @property
    def message(self) -> str:
        """Why the last call in this thread failed."""
        return str(self._message().decode("utf-8", "replace"))

    def use_threads(self, threads: int) -> None:
        """Share the loops of kernels that the calling thread runs among that many threads."""
        self.functions.eqfuse_use_threads(threads)

    def bind_kernel(self, symbol: str, arrays: Sequence[Array]) -> Callable[[], None]:
        """A function that calls a kernel with arrays that are `aligned`: its inputs, then its outputs.

        Raises LoweringError if there is no such kernel; the function does if the kernel refuses the arrays.
        """
        try:
            kernel: Any = self.functions[f"__tvm_ffi_{symbol}"]
        except AttributeError:
            raise LoweringError(f"{symbol}: no kernel of this name in the library") from None
        tensors = [Tensor.of(array) for array in arrays]
        arguments = (Argument * max(len(tensors), 1))(
            *(Argument(_TENSOR, 0, ctypes.pointer(tensor)) for tensor in tensors)
        )
        called = (None, arguments, ctypes.c_int32(len(tensors)), ctypes.byref(Argument()))

        def call(kept: object = (arrays, tensors)) -> None:
            if kernel(*called):
                raise LoweringError(f"{symbol}: {self.message}")

        return call


def load_library(path: Path) -> NativeLibrary:
    """The library as it is now. Raises OSError."""
    with own_path(path) as own:
        return NativeLibrary(own)


@contextmanager
def own_path(library: Path) -> Iterator[Path]:
    """A path to load a library by: at one that was loaded before, the system takes what was there.

    It is a hard link if the file system has them: a library that replaces the first one meanwhile does not change the
    link.
    """
    with scratch_folder("load") as folder:
        own = Path(folder) / library.name
        try:
            os.link(library, own)
        except OSError:  # another file system, one without links, or somebody else's file
            shutil.copyfile(library, own)
        yield own
