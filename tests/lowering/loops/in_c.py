"""Models run as plain loops, compiled by the C compiler of this machine and called through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from eqfuse.lowering.base.linking import LANGUAGE
from eqfuse.lowering.loops.program import CONSTANTS, loop_program

Array = np.ndarray[Any, Any]
MAXIMUM_RANK = 12
OWN_TENSOR = 4
"""The type of arguments whose shapes the loops know, see packed.h."""

ERRORS = """
#include <string.h>
char message[300];
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int count) {
    (void)kind, (void)count;
    strncpy(message, parts[0], sizeof message - 1);
}
"""


class Tensor(ctypes.Structure):
    """`tensor` of tensor.h."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("rank", ctypes.c_int64), ("shape", ctypes.c_int64 * MAXIMUM_RANK),
        ("capacity", ctypes.c_int64), ("is_owned", ctypes.c_int64),
    )  # fmt: skip


class Argument(ctypes.Structure):
    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("pointer", ctypes.c_void_p))


class LoopError(Exception):
    """What a loop says is wrong."""


class InC:
    """A model as loops."""

    def __init__(self, model: onnx.ModelProto, *flags: str) -> None:
        self.program = loop_program(model, "model")
        self.flags = flags

    @cached_property
    def library(self) -> ctypes.CDLL:
        with TemporaryDirectory() as folder:
            source, library = Path(folder, "model.c"), Path(folder, "model.so")
            source.write_text(ERRORS + self.program.text, encoding="utf-8")
            Path(folder, CONSTANTS).write_bytes(self.program.constants)
            flags = ("-O1", "-w", *LANGUAGE, "-shared", "-fPIC", "-Wl,-Bsymbolic", *self.flags)
            subprocess.run(["gcc", *flags, "-o", library, source, "-lm"], check=True, cwd=folder, timeout=60)
            return ctypes.CDLL(str(library))

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs. Raises LoopError."""
        given = [np.array(array, order="C", ndmin=0) for array in inputs]
        tensors = [*map(_tensor, given), *(Tensor() for _ in self.program.outputs)]
        arguments = (Argument * len(tensors))(
            *(Argument(OWN_TENSOR, 0, ctypes.addressof(tensor)) for tensor in tensors)
        )
        status = self.library.__getattr__("__tvm_ffi_model")(None, arguments, len(tensors), None)
        results = [
            _array(tensor, dtype) for tensor, dtype in zip(tensors[len(given) :], self.program.outputs, strict=True)
        ]
        if status:
            raise LoopError((ctypes.c_char * 300).in_dll(self.library, "message").value.decode())
        return results


def _tensor(array: Array) -> Tensor:
    shape = (ctypes.c_int64 * MAXIMUM_RANK)(*array.shape)
    return Tensor(array.ctypes.data, array.ndim, shape, array.nbytes, 0)


_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]


def _array(tensor: Tensor, dtype: str) -> Array:
    shape = tuple(tensor.shape[: tensor.rank])
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    content = ctypes.string_at(tensor.data, count) if tensor.data and count else b""
    if tensor.is_owned:
        _free(tensor.data)
    return np.frombuffer(content, dtype).reshape(shape) if tensor.data else np.empty(0, dtype)
