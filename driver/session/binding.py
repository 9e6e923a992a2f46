"""Inputs and outputs that are bound to a session, as arrays that compiled code reads and writes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import onnxruntime

from .verdicts import Array

DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(bool)": "bool",
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""numpy's names of the element types that inputs of compiled code may have."""
PROCESSOR = "cpu"


class IOBinding(onnxruntime.IOBinding):  # type: ignore[misc]
    """ONNX Runtime's, which also knows the memory of what is bound.

    `feeds` are the inputs by their names, None for one that compiled code cannot read; `outputs` the devices of the
    outputs by theirs. As in ONNX Runtime, outputs without memory get it in the first call, and later calls write into
    the same.
    """

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.runtime_session = session._sess
        self.feeds: dict[str, Array | None] = {}
        self.outputs: dict[str, str] = {}
        self._values: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """As ONNX Runtime's, which copies an array that is not contiguous here and now."""
        super().bind_cpu_input(name, arr_on_cpu)
        is_shared = type(arr_on_cpu) is np.ndarray and arr_on_cpu.flags.c_contiguous
        self.feeds[name] = arr_on_cpu if is_shared else None

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Any, buffer_ptr: int
    ) -> None:
        """As ONNX Runtime's."""
        super().bind_input(name, device_type, device_id, element_type, shape, buffer_ptr)
        is_plain = device_type == PROCESSOR and not isinstance(element_type, int)
        self.feeds[name] = _view_memory(buffer_ptr, shape, np.dtype(element_type)) if is_plain else None

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """As ONNX Runtime's."""
        super().bind_ortvalue_input(name, ortvalue)
        self.feeds[name], self._values[name] = _view(ortvalue), ortvalue

    def bind_output(self, name: str, device_type: str = PROCESSOR, *args: Any, **kwargs: Any) -> None:
        """As ONNX Runtime's."""
        super().bind_output(name, device_type, *args, **kwargs)
        self.outputs[name] = device_type

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """As ONNX Runtime's."""
        super().bind_ortvalue_output(name, ortvalue)
        self.outputs[name] = ortvalue.device_name()

    def clear_binding_inputs(self) -> None:
        """As ONNX Runtime's."""
        super().clear_binding_inputs()
        self.feeds.clear()
        self._values.clear()

    def clear_binding_outputs(self) -> None:
        """As ONNX Runtime's."""
        super().clear_binding_outputs()
        self.outputs.clear()

    def store(self, results: Sequence[Array]) -> bool:
        """Give the outputs these values; False, and nothing is changed, where the memory of one is of another size."""
        views = [_view(value) if value.has_value() else None for value in self.get_outputs()]
        for value, view, result in zip(self.get_outputs(), views, results, strict=True):
            if value.has_value() and (view is None or (view.shape, view.dtype) != (result.shape, result.dtype)):
                return False
        for name, view, result in zip([*self.outputs], views, results, strict=True):
            if view is None:
                value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(result.shape, result.dtype.type, PROCESSOR)
                view = _view(value)
                assert view is not None
                super().bind_ortvalue_output(name, value)
            np.copyto(view, result)
        return True


def _view(value: Any) -> Array | None:
    """The memory of a tensor as an array, which does not keep it; None for anything else, and on other devices."""
    if not value.is_tensor() or value.device_name() != PROCESSOR or value.data_type() not in DTYPES:
        return None
    return _view_memory(value.data_ptr(), value.shape(), np.dtype(DTYPES[value.data_type()]))


def _view_memory(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    size = prod(shape) * dtype.itemsize
    memory = memoryview((ctypes.c_byte * size).from_address(address)) if size else None
    return np.ndarray(tuple(shape), dtype, memory)
