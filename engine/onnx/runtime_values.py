"""Arrays into ONNX Runtime and out of it, of the element types that its numpy bridge lacks too: as raw bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

if TYPE_CHECKING:
    import onnxruntime

Value = Any
"""An array, or a list of arrays for a sequence."""


def run_on_arrays(session: onnxruntime.InferenceSession, feeds: Mapping[str, Value]) -> list[Value]:
    """The outputs of a session, in order. Raises what the session raises."""
    kinds = {value.name: value.type for value in session.get_inputs()}
    if not any(map(_lacks_numpy, (*kinds.values(), *(value.type for value in session.get_outputs())))):
        return list(session.run(None, dict(feeds)))
    values = {name: _to_runtime(value) for name, value in feeds.items()}
    return [_from_runtime(value) for value in session.run_with_ort_values(None, values)]


def _lacks_numpy(kind: str) -> bool:
    return kind.startswith(("tensor(bfloat16", "tensor(float8", "tensor(float4"))


def _to_runtime(value: Value) -> onnxruntime.OrtValue:
    import onnxruntime

    array = np.ascontiguousarray(value).reshape(np.shape(value))  # the former makes vectors of numbers
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    raw = array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
    element_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, element_type)


def _from_runtime(value: onnxruntime.OrtValue) -> Value:
    if not _lacks_numpy(value.data_type()):
        return value.numpy()
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.element_type()))
    shape = tuple(value.shape())
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size), dtype=dtype).reshape(shape)
