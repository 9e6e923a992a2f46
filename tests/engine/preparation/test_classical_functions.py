"""Operators of classical machine learning compute the same once they are taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_ir import serde

from eqfuse.engine.onnx.model import read
from eqfuse.engine.preparation.schema_functions import expand_operators, list_expandable
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.annotations.local_functions import inline_functions

from ...onnx_runtime import outputs_of

X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
WEIGHTS = [0.5, -1.0, 2.0, 0.25, 1.5, -0.75]
KEYS = np.array([[3, -2, 5, 4], [-9, 2**60, 0, -(2**63)]])
HOLES = np.where(X > 1, np.float32(np.nan), X)


def model_of(operator: str, inputs: list[np.ndarray[Any, Any]], **attributes: Any) -> Any:
    x, *others = inputs
    port = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), [None, *x.shape[1:]][: x.ndim])
    outputs = ["label", "y"] if operator.endswith("Classifier") else ["y"]
    names = [f"x{number}" for number in range(len(others))]
    node = helper.make_node(operator, ["x", *names], outputs, domain="ai.onnx.ml", **attributes)
    integers = "label", *(["y"] if "values_int64s" in attributes else [])
    results = [
        helper.make_tensor_value_info(name, TensorProto.INT64 if name in integers else TensorProto.FLOAT, None)
        for name in outputs
    ]
    stored = [numpy_helper.from_array(array, name) for array, name in zip(others, names, strict=True)]
    graph = helper.make_graph([node], "one", [port], results, stored)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("ArrayFeatureExtractor", [X, np.array([2, 0])], {}),
        ("ArrayFeatureExtractor", [X[0], np.array([[1], [1]])], {}),
        ("LinearRegressor", [X], {"coefficients": WEIGHTS, "intercepts": [0.1, 0.2], "targets": 2}),
        ("LinearRegressor", [X], {"coefficients": WEIGHTS[:3]}),
        ("LinearClassifier", [X], {"coefficients": WEIGHTS, "intercepts": [0.1, 0.2], "classlabels_ints": [7, 3]}),
        ("LinearClassifier", [X], {
            "coefficients": [*WEIGHTS, 1.0, 2.0, 3.0], "intercepts": [0.1, 0.2, 0.0], "classlabels_ints": [0, 1, 2],
            "post_transform": "SOFTMAX",
        }),
        ("LinearClassifier", [X], {
            "coefficients": WEIGHTS, "intercepts": [0.1, 0.2], "classlabels_ints": [0, 1], "post_transform": "LOGISTIC",
        }),
        ("OneHotEncoder", [np.round(X)], {"cats_int64s": [-1, 0, 1]}),
        ("Imputer", [HOLES], {"imputed_value_floats": [9.0, 8.0, 7.0], "replaced_value_float": float("nan")}),
        ("Imputer", [np.round(X)], {"imputed_value_floats": [9.0], "replaced_value_float": 1.0}),
        ("LabelEncoder", [KEYS], {"keys_int64s": [3, -2, 5, 3], "values_floats": [0.5, 1.5, 2.5, 3.5]}),
        ("LabelEncoder", [KEYS[0]], {"keys_int64s": [0, 1], "values_floats": [7.0, 8.0], "default_float": 9.0}),
        ("LabelEncoder", [KEYS], {"keys_int64s": [3, 4], "values_int64s": [10, 20]}),
    ],
)  # fmt: skip
def test_the_parts_compute_the_same(operator: str, inputs: Any, attributes: Any) -> None:
    proto = model_of(operator, inputs, **attributes)
    model = read(proto)
    assert list_expandable(model)
    parts = serde.serialize_model(inline_functions(expand_operators(model, infer(model).types)).ir)
    assert operator not in {node.op_type for node in parts.graph.node}
    feeds = {"x": inputs[0]}
    for part, whole in zip(outputs_of(parts, feeds), outputs_of(proto, feeds), strict=True):
        assert part.dtype == whole.dtype
        np.testing.assert_allclose(part, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("LinearClassifier", {"coefficients": WEIGHTS[:3], "classlabels_ints": [0, 1]}),
        ("LinearClassifier", {"coefficients": WEIGHTS, "classlabels_strings": ["a", "b"]}),
        ("LinearRegressor", {"coefficients": WEIGHTS[:3], "post_transform": "LOGISTIC"}),
        ("OneHotEncoder", {"cats_strings": ["a"]}),
        ("OneHotEncoder", {"cats_int64s": [1], "zeros": 0}),
        ("Imputer", {"imputed_value_int64s": [1]}),
        ("LabelEncoder", {"keys_int64s": [0, 2**40], "values_floats": [1.0, 2.0]}),
    ],
)
def test_what_has_a_meaning_of_its_own_stays(operator: str, attributes: Any) -> None:
    assert not list_expandable(read(model_of(operator, [X], **attributes)))
