"""Models in ONNX Runtime without changes, and arrays into it and out of it: those of the element types that its
numpy bridge lacks pass as raw bytes."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ...support.custom_operators import register
from .exact_products import make_products_exact
from .model import graph_protos
from .nodes import RANDOM_OPERATORS

if TYPE_CHECKING:
    import onnxruntime

Value = Any
"""An array, or a list of arrays for a sequence."""


_SEEDED = RANDOM_OPERATORS | {"Dropout"}
_WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_SEED_BITS = 24
"""A seed is a float32, which holds all whole numbers of 24 bits."""
_FATAL_ONLY = 4
"""ONNX Runtime's level of messages."""
_THREADS = 1
"""More threads spin while they wait for each other, which costs more than most of these runs."""


def session_options() -> onnxruntime.SessionOptions:
    """The options under which ONNX Runtime changes nothing in a model, with the libraries of custom operators."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = _FATAL_ONLY
    options.intra_op_num_threads = _THREADS
    options.inter_op_num_threads = 1
    # Each session runs a handful of times: packed weights and an arena would cost memory and time and not pay back.
    # Packed weights take another kernel, too, which rounds otherwise; the runtime's own constant folding does not pack.
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.disable_prepacking", "1")
    register(options)
    return options


def open_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A model in ONNX Runtime under these options, its products of bytes without saturation. Raises what the runtime
    raises."""
    import onnxruntime

    content = make_products_exact(model).SerializeToString()
    return onnxruntime.InferenceSession(content, session_options(), providers=["CPUExecutionProvider"])


def may_draw(operators: Iterable[str]) -> bool:
    """Whether any of these operators, or one of a body of theirs, may draw random numbers."""
    return not (_SEEDED | _WITH_BODIES).isdisjoint(operators)


def draw_seeds(content: bytes) -> bytes:
    """A model whose random operators have a seed each.

    Without one ONNX Runtime seeds an operator by its place in the model: two that run as models of their own would draw
    the same numbers.
    """
    model = onnx.ModelProto.FromString(content)
    for node in (node for graph in graph_protos(model.graph) for node in graph.node):
        names = {attribute.name for attribute in node.attribute}
        if node.op_type in _SEEDED and not node.domain and "seed" not in names:
            number = secrets.randbits(_SEED_BITS)
            seed = number if node.op_type == "Dropout" else float(number)
            node.attribute.append(onnx.helper.make_attribute("seed", seed))
    return bytes(model.SerializeToString())


def run_on_arrays(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, Value], options: onnxruntime.RunOptions | None = None
) -> list[Value]:
    """The outputs of a session, in order. Raises what the session raises."""
    return list(map(_from_runtime, bind_arrays(session, feeds, options)()))


def bind_arrays(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, Value], options: onnxruntime.RunOptions | None = None
) -> Callable[[], list[Value | onnxruntime.OrtValue]]:
    """A function that runs a session on these arrays. Outputs of types that the bridge lacks stay the runtime's."""
    kinds = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    if not any(map(_lacks_numpy, kinds)):
        fed = dict(feeds)
        return lambda: list(session.run(None, fed, options))
    values = {name: _to_runtime(value) for name, value in feeds.items()}
    return lambda: list(session.run_with_ort_values(None, values, options))


def bind_filled(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray[Any, Any]],
    outputs: Sequence[np.ndarray[Any, Any]],
) -> Callable[[], None]:
    """A function that runs a session on these arrays, in rows one after the other, and fills those of its outputs.

    The runtime reads and writes them where they are; where it cannot, or there is nothing in one, results are copied.
    """
    kinds = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    if any(map(_lacks_numpy, kinds)) or not all(array.size for array in (*feeds.values(), *outputs)):
        run = bind_arrays(session, feeds)

        def fill() -> None:
            for output, result in zip(outputs, run(), strict=True):
                output[...] = _from_runtime(result)

        return fill
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for value, array in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_output(value.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return partial(session.run_with_iobinding, binding)


def _lacks_numpy(kind: str) -> bool:
    return kind.startswith(("tensor(bfloat16", "tensor(float8", "tensor(float4"))


def _to_runtime(value: Value) -> onnxruntime.OrtValue:
    import onnxruntime

    array = np.ascontiguousarray(value).reshape(np.shape(value))  # the former makes vectors of numbers
    if not _lacks_numpy(f"tensor({array.dtype.name})"):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    raw = array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
    element_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, element_type)


def _from_runtime(value: Value | onnxruntime.OrtValue) -> Value:
    import onnxruntime

    if not isinstance(value, onnxruntime.OrtValue):
        return value
    if not _lacks_numpy(value.data_type()):
        return value.numpy()
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.element_type()))
    shape = tuple(value.shape())
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size), dtype=dtype).reshape(shape)
