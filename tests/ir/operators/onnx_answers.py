"""What ONNX says an operator computes: by ONNX Runtime, and by ONNX's reference where the runtime has no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from eqfuse.engine.egraph.emit import Emission, emit_node
from eqfuse.engine.egraph.graph import ENode
from eqfuse.engine.onnx.runtime_values import open_session
from eqfuse.ir.operators import OPERATORS, Array, Attribute, Operand, evaluate
from eqfuse.ir.types import TensorType

OPSET = 24
Argument = Array | Attribute | None
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-9}


def random_array(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> Array:
    """Small numbers: floats between -2 and 2, signed integers between -5 and 5, truth values."""
    random = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return np.asarray(random.random(shape) < 0.5)
    if dtype.startswith(("int", "uint")):
        return random.integers(0 if dtype.startswith("uint") else -5, 6, shape).astype(dtype)
    return np.asarray(random.uniform(-2, 2, shape)).astype(dtype)


def assert_as_onnx(head: str, *arguments: Argument) -> None:
    """The meaning of a call has the types, shapes and, within rounding, the elements that ONNX gives it."""
    found = evaluate(head, arguments)
    expected = onnx_outputs(head, arguments)
    results = found if isinstance(found, tuple) else (found,)
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert isinstance(result, np.ndarray)
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        tolerance = TOLERANCE.get(wanted.dtype.name, 0)
        if wanted.dtype.name in TOLERANCE:
            result, wanted = result.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance)


def onnx_outputs(head: str, arguments: Sequence[Argument]) -> list[Array]:
    """The outputs of the one operator."""
    operands = [a for a, s in zip(arguments, OPERATORS[head].arguments, strict=True) if isinstance(s, Operand)]
    model = _model(_emission(head, arguments, operands), operands)
    feeds = {f"x{i}": a for i, a in enumerate(operands) if a is not None}
    try:
        session = open_session(model)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return list(ReferenceEvaluator(model).run(None, feeds))
    return list(session.run(None, feeds))


def _emission(head: str, arguments: Sequence[Argument], operands: Sequence[Any]) -> Emission:
    signature = OPERATORS[head].arguments
    literals = tuple(a for a, s in zip(arguments, signature, strict=True) if not isinstance(s, Operand))
    children = tuple(-1 if a is None else i for i, a in enumerate(operands))
    types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
    node = ENode(head, literals, children)
    found = emit_node(node, types, types[0], OPSET, {})
    assert found is not None, f"ONNX cannot say {node} on {types}"
    return found


def _model(emitted: Emission, operands: Sequence[Any]) -> onnx.ModelProto:
    names, constants = [], []
    for position, source in enumerate(emitted.inputs):
        if isinstance(source, int):
            names.append(f"x{source}")
        elif source is None:
            names.append("")
        else:
            names.append(f"c{position}")
            constants.append(numpy_helper.from_array(source, names[-1]))
    outputs = [f"y{i}" for i in range(emitted.outputs)]
    node = helper.make_node(emitted.op_type, names, outputs, **emitted.attributes)
    inputs = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for i, a in enumerate(operands)
        if a is not None
    ]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    graph = helper.make_graph([node], "call", inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
