"""Operators of classical machine learning, of which ONNX infers little, have the types that ONNX Runtime gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer

from ...onnx_runtime import outputs_of

LINEAR = {"coefficients": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "intercepts": [0.5, -0.5]}
STUMP = {
    "nodes_falsenodeids": [2, 0, 0], "nodes_featureids": [0, 0, 0], "nodes_hitrates": [1.0, 1.0, 1.0],
    "nodes_missing_value_tracks_true": [0, 0, 0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_nodeids": [0, 1, 2], "nodes_treeids": [0, 0, 0], "nodes_truenodeids": [1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
}  # fmt: skip
LEAVES = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 1], "weights": [1.0, 2.0]}
MACHINE = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], "rho": [0.1]}


def machine(classes: int) -> dict[str, Any]:
    """A support vector machine with two vectors of each class."""
    pairs, vectors = classes * (classes - 1) // 2, 2 * classes
    return {
        **MACHINE, "rho": [0.1] * pairs, "classlabels_ints": list(range(classes)), "vectors_per_class": [2] * classes,
        "support_vectors": [0.5] * (3 * vectors), "coefficients": [1.0] * ((classes - 1) * vectors),
    }  # fmt: skip


NODES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "Scaler": (1, {"offset": [1.0], "scale": [2.0]}),
    "Normalizer": (1, {"norm": "L1"}),
    "Imputer": (1, {"imputed_value_floats": [1.0], "replaced_value_float": float("nan")}),
    "LabelEncoder": (1, {"keys_floats": [1.0], "values_int64s": [3]}),
    "OneHotEncoder": (1, {"cats_int64s": [0, 1, 2, 3]}),
    "LinearRegressor": (1, {**LINEAR, "targets": 2}),
    "LinearClassifier": (2, {**LINEAR, "classlabels_ints": [4, 5]}),
    "SVMRegressor": (1, {**MACHINE, "coefficients": [1.0, 2.0], "support_vectors": [0.5] * 6, "n_supports": 2}),
    "SVMClassifier": (2, machine(4)),
    "SVMClassifier of two": (2, machine(2)),
    "SVMClassifier of chances": (2, {**machine(4), "prob_a": [-1.0] * 6, "prob_b": [0.5] * 6}),
    "SVMClassifier of one product": (
        2, {"kernel_params": [0.0] * 3, "coefficients": [1.0] * 12, "rho": [0.5], "classlabels_ints": [4, 5, 6, 7]},
    ),
    "TreeEnsembleRegressor": (1, {**STUMP, **{f"target_{k}": v for k, v in LEAVES.items()}, "n_targets": 2}),
    "TreeEnsembleClassifier": (
        2, {**STUMP, **{f"class_{k}": v for k, v in LEAVES.items()}, "classlabels_int64s": [7, 8]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", NODES)
def test_types_are_those_of_onnx_runtime(operator: str) -> None:
    count, attributes = NODES[operator]
    inner = [f"inner_{i}" for i in range(count)]
    node = helper.make_node(operator.partition(" ")[0], ["x"], inner, domain="ai.onnx.ml", **attributes)
    copies = [helper.make_node("Identity", [name], [f"y_{i}"]) for i, name in enumerate(inner)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    outputs = [helper.make_empty_tensor_value_info(f"y_{i}") for i in range(count)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node, *copies], "classical", [x], outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    results = outputs_of(model, {"x": np.ones((5, 3), np.float32)})
    for port, result in zip(model.graph.output, results, strict=True):
        port.CopyFrom(helper.make_tensor_value_info(port.name, helper.np_dtype_to_tensor_dtype(result.dtype), None))
    types = infer(read(model)).types
    for name, result in zip(inner, results, strict=True):
        shape = tuple(5 if size == "N" else size for size in types[name].shape or ())
        assert (types[name].dtype, shape) == (result.dtype.name, result.shape)
