"""ONNX Runtime has a kernel for each operator on each element type that rewritten graphs may hold."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import settings
from onnx import helper, numpy_helper

import eqfuse
from eqfuse.engine.egraph.emit import Emission, emit_node
from eqfuse.engine.egraph.graph import ENode
from eqfuse.engine.onnx.typing import dtype_of
from eqfuse.ir.operators import OPERATORS
from eqfuse.ir.types import TensorType

from ...ir.onnx_cases import cases

OPSETS = (14, 21, 24)
DTYPES = (
    "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool", "string", "int4", "uint4", "int2", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
)  # fmt: skip
OTHER_OPERANDS = {
    ("Where", 0): "bool", ("Gather", 1): "int64", ("QuantizeLinear", 2): "int8", ("DequantizeLinear", 1): "float32",
}  # fmt: skip
NOT_DRAWN = {"If", "Resize"}
"""An If is written in another way; the settings of a Resize are texts."""


def load(emitted: Emission, types: list[TensorType | None], opset: int) -> None:
    """Raises what ONNX Runtime raises where it has no kernel."""
    names, constants = [], []
    for place, source in enumerate(emitted.inputs):
        names.append(f"x{source}" if isinstance(source, int) else "" if source is None else f"c{place}")
        if isinstance(source, np.ndarray):
            constants.append(numpy_helper.from_array(source, names[-1]))
    outputs = [f"y{number}" for number in range(emitted.outputs)]
    inputs = [
        helper.make_tensor_value_info(f"x{place}", int(dtype_of(type_.dtype)), type_.shape)
        for place, type_ in enumerate(types)
        if type_ is not None
    ]
    node = helper.make_node(emitted.op_type, names, outputs, **emitted.attributes)
    graph = helper.make_graph([node], "one", inputs, list(map(helper.make_empty_tensor_value_info, outputs)), constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.representatives(2)
@pytest.mark.parametrize("op", [name for name, o in OPERATORS.items() if not o.domain and name not in NOT_DRAWN])
def test_what_is_let_through_has_a_kernel(op: str) -> None:
    case = hypothesis.find(cases(op), lambda _: True, settings=settings(database=None, max_examples=5))
    literals = tuple(case.literals[attribute.name] for attribute in OPERATORS[op].attributes)
    node = ENode(op, literals, tuple(-1 if shape is None else place for place, shape in enumerate(case.shapes)))
    for dtype in DTYPES:
        types = [
            None if shape is None else TensorType(OTHER_OPERANDS.get((op, place), dtype), shape)
            for place, shape in enumerate(case.shapes)
        ]
        for opset in OPSETS:
            emitted = emit_node(node, types, types[0], opset, {}, runs=True)
            if emitted is not None:
                try:
                    load(emitted, types, opset)
                except Exception as error:
                    raise AssertionError(f"{op} of {dtype} at opset {opset}: {error}") from error


@pytest.mark.representatives(3)
@pytest.mark.parametrize("element_type", ["INT4", "UINT4", "FLOAT8E4M3FN", "BFLOAT16", "STRING", "INT64"])
def test_an_output_that_becomes_an_input_is_copied_by_what_the_runtime_has(element_type: str) -> None:
    kind: Any = getattr(onnx.TensorProto, element_type)
    x, y = (helper.make_tensor_value_info(name, kind, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=kind)], "copy", [x], [y])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    result = eqfuse.optimize(source)
    assert [node.op_type for node in result.graph.node] == ["Cast" if "INT4" in element_type else "Identity"]
    onnxruntime.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_node_of_many_operands_stays_where_the_runtime_has_no_kernel() -> None:
    names = ["a", "b", "c"]
    *inputs, output = (helper.make_tensor_value_info(name, onnx.TensorProto.INT16, [2]) for name in [*names, "y"])
    graph = helper.make_graph([helper.make_node("Max", names, ["y"])], "largest", inputs, [output])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (node,) = eqfuse.optimize(source).graph.node
    assert (node.op_type, list(node.input)) == ("Max", names)
