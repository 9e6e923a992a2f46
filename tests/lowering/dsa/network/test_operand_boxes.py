"""What operators need of their operands, against what ONNX Runtime reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.lowering.dsa.network.boxes import whole
from eqfuse.lowering.dsa.network.graph import Network

IMAGE = (2, 4, 9, 8)
Stored = dict[str, Any]
CASES: dict[str, tuple[str, list[tuple[int, ...]], Stored, Stored]] = {
    "Conv": ("Conv", [IMAGE, (6, 4, 3, 3)], {"pads": [1, 1, 1, 1], "strides": [2, 1]}, {}),
    "dilated": ("Conv", [IMAGE, (6, 4, 3, 3)], {"dilations": [2, 2]}, {}),
    "grouped": ("Conv", [IMAGE, (6, 2, 3, 3)], {"group": 2, "pads": [0, 1, 2, 1]}, {}),
    "depthwise": ("Conv", [IMAGE, (4, 1, 3, 3)], {"group": 4}, {}),
    "ConvTranspose": ("ConvTranspose", [IMAGE, (4, 6, 3, 3)], {"strides": [2, 2]}, {}),
    "windows side by side": ("ConvTranspose", [IMAGE, (4, 6, 2, 3), (6,)], {"strides": [2, 3]}, {}),
    "grouped ConvTranspose": ("ConvTranspose", [IMAGE, (4, 3, 2, 2)], {"strides": [2, 2], "group": 2}, {}),
    "MaxPool": ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, {}),
    "ceil": ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, {}),
    "AveragePool": ("AveragePool", [IMAGE], {"kernel_shape": [2, 3]}, {}),
    "GlobalAveragePool": ("GlobalAveragePool", [IMAGE], {}, {}),
    "MatMul": ("MatMul", [(2, 3, 5, 6), (3, 6, 4)], {}, {}),
    "broadcast MatMul": ("MatMul", [(1, 3, 5, 6), (2, 1, 6, 4)], {}, {}),
    "vector": ("MatMul", [(3, 5, 6), (6,)], {}, {}),
    "Gemm": ("Gemm", [(5, 6), (6, 4), (4,)], {}, {}),
    "transposed Gemm": ("Gemm", [(6, 5), (4, 6), (5, 1)], {"transA": 1, "transB": 1}, {}),
    "Add": ("Add", [(2, 3, 4), (3, 1)], {}, {}),
    "Where-like": ("Max", [(4,), (2, 3, 1)], {}, {}),
    "ReduceMean": ("ReduceMean", [(2, 3, 4, 5)], {"axes": [1, 3], "keepdims": 0}, {}),
    "kept": ("ReduceMax", [(2, 3, 4, 5)], {"axes": [-1]}, {}),
    "Softmax": ("Softmax", [(2, 3, 4)], {"axis": 1}, {}),
    "LayerNormalization": ("LayerNormalization", [(2, 3, 4), (4,)], {}, {}),
    "InstanceNormalization": ("InstanceNormalization", [(2, 3, 4, 4), (3,), (3,)], {}, {}),
    "BatchNormalization": ("BatchNormalization", [(2, 3, 4, 4), (3,), (3,), (3,), (3,)], {}, {}),
    "Transpose": ("Transpose", [(2, 3, 4, 5)], {"perm": [2, 0, 3, 1]}, {}),
    "Reshape": ("Reshape", [(4, 6, 5)], {}, {"shape": [2, 12, 5]}),
    "Flatten": ("Flatten", [(2, 3, 4)], {"axis": 2}, {}),
    "Unsqueeze": ("Unsqueeze", [(2, 3)], {}, {"axes": [1]}),
    "Expand": ("Expand", [(3, 1)], {}, {"shape": [2, 3, 4]}),
    "Slice": ("Slice", [(6, 9)], {}, {"starts": [1, -2], "ends": [5, 0], "axes": [0, 1], "steps": [2, -3]}),
    "Split": ("Split", [(6, 9)], {"axis": 1}, {"split": [4, 5]}),
    "Concat": ("Concat", [(2, 3), (2, 4), (2, 1)], {"axis": 1}, {}),
    "Pad": ("Pad", [(3, 4)], {}, {"pads": [1, 0, 2, 1]}),
    "reflected": ("Pad", [(5, 4)], {"mode": "reflect"}, {"pads": [2, 0, 1, 1]}),
    "DepthToSpace": ("DepthToSpace", [(2, 8, 3, 4)], {"blocksize": 2}, {}),
    "SpaceToDepth": ("SpaceToDepth", [(2, 2, 4, 6)], {"blocksize": 2}, {}),
    "up": ("Resize", [(1, 2, 4, 5)], {"mode": "linear"}, {"": [], "scales": [1.0, 1.0, 2.0, 3.0]}),
    "down": ("Resize", [(1, 2, 9, 8)], {"mode": "cubic"}, {"": [], "scales": [1.0, 1.0, 0.5, 0.5]}),
    "unknown": ("CumSum", [(3, 4)], {}, {"axis": 1}),
}


def model_of(name: str) -> onnx.ModelProto:
    op, shapes, attributes, stored = CASES[name]
    inputs = [f"x{i}" for i in range(len(shapes))]
    outputs = ["y", "z"] if op == "Split" else ["y"]
    node = helper.make_node(op, [*inputs, *stored], outputs, **attributes)
    ports = [helper.make_tensor_value_info(i, TensorProto.FLOAT, s) for i, s in zip(inputs, shapes, strict=True)]
    constants = [helper.make_tensor(n, *_constant(v)) for n, v in stored.items() if n]
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    graph = helper.make_graph([node], "one", ports, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _constant(values: Any) -> tuple[int, tuple[int, ...], list[Any]]:
    items = values if isinstance(values, list) else [values]
    kind = TensorProto.FLOAT if items and isinstance(items[0], float) else TensorProto.INT64
    return kind, () if not isinstance(values, list) else (len(items),), items


@pytest.mark.representatives(7)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", CASES)
def test_nothing_else_is_read(name: str, data: st.DataObject) -> None:
    """Other operands outside the boxes leave the result's box as it is."""
    proto = model_of(name)
    model = read(proto)
    network = Network(operator_graph(model, infer(model)))
    (operator,) = network.graph.operators
    number = data.draw(st.sampled_from(range(len(operator.outputs))))
    result = operator.outputs[number]
    shape = network.shapes[result]
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))) for n in shape]
    box = tuple((a, b + 1) for a, b in bounds)
    random = np.random.default_rng(0)
    feeds, garbled = {}, {}
    for value, needed in zip(operator.inputs, network.operands(0, result, box), strict=True):
        if value is None or network.graph.values[value].is_constant:
            continue
        label, extents = network.graph.values[value].name, network.shapes[value]
        assert needed is None or all(0 <= a < b <= n for (a, b), n in zip(needed, extents, strict=True))
        feeds[label] = random.random(extents, np.float32) + 0.5
        garbled[label] = np.full(extents, 1e6, np.float32)
        if needed is not None:
            part = tuple(slice(*i) for i in needed)
            garbled[label][part] = feeds[label][part]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    part = tuple(slice(*i) for i in box)
    expected, found = session.run(None, feeds)[number][part], session.run(None, garbled)[number][part]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["Conv", "MatMul", "Softmax", "Reshape", "MaxPool"])
def test_a_whole_result_needs_all(name: str) -> None:
    model = read(model_of(name))
    network = Network(operator_graph(model, infer(model)))
    operator = network.graph.operators[0]
    needed = network.operands(0, operator.outputs[0], whole(network.shapes[operator.outputs[0]]))
    for value, box in zip(operator.inputs, needed, strict=True):
        if value is not None and name != "MaxPool":
            assert box == whole(network.shapes[value])


def test_a_batch_needs_its_own_rows_only() -> None:
    model = read(model_of("Conv"))
    network = Network(operator_graph(model, infer(model)))
    output = network.graph.operators[0].outputs[0]
    box = ((1, 2), *whole(network.shapes[output][1:]))
    assert network.operands(0, output, box)[0] == ((1, 2), *whole(IMAGE[1:]))
