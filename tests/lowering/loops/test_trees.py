"""Ensembles of trees give what ONNX Runtime gives: any comparison, NaN, ties with thresholds, few rows and many."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from eqfuse.lowering.base.errors import LoweringError

from .in_c import InC, LoopError

FEATURES = 5
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE")


def ensemble(random: np.random.Generator, is_classifier: bool) -> dict[str, Any]:
    """The attributes of an ensemble of random trees, whose thresholds are few so that features meet them."""
    stem, scores = ("class" if is_classifier else "target"), int(random.integers(2 if is_classifier else 1, 4))
    columns = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
               "missing_value_tracks_true")  # fmt: skip
    nodes: dict[str, list[Any]] = {name: [] for name in columns}
    weights: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    modes = MODES if random.random() < 0.5 else (random.choice(MODES),)
    own = [int(random.integers(scores))] if random.random() < 0.5 else list(range(scores))
    lowest = 0.0 if random.random() < 0.5 else -1.0
    for tree in range(int(random.integers(1, 12))):
        splits = int(random.integers(0, 9))
        for number in range(2 * splits + 1):
            is_leaf = number >= splits
            first = 2 * number + 1
            row = (tree, number, int(random.integers(FEATURES)), "LEAF" if is_leaf else str(random.choice(modes)),
                   float(random.integers(-2, 3)) / 2, 0 if is_leaf else first, 0 if is_leaf else first + 1,
                   int(random.integers(2)))  # fmt: skip
            for name, value in zip(columns, row, strict=True):
                nodes[name].append(value)
            for each in own if is_leaf else ():
                for name, value in zip(weights, (tree, number, each, float(random.uniform(lowest, 1))), strict=True):
                    weights[name].append(value)
    attributes: dict[str, Any] = {f"nodes_{name}": values for name, values in nodes.items()}
    attributes |= {f"{stem}_{name}": values for name, values in weights.items()}
    attributes["post_transform"] = str(random.choice(["NONE", "LOGISTIC", "SOFTMAX"]))
    if random.random() < 0.5:
        attributes["base_values"] = [float(each) for each in random.uniform(-1, 1, scores)]
    attributes |= {"classlabels_int64s": [7, 3, 5][:scores]} if is_classifier else {"n_targets": scores}
    return attributes


def model_of(operator: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    names = ["label", "scores"] if operator.endswith("Classifier") else ["y"]
    node = helper.make_node(operator, ["x"], names, domain="ai.onnx.ml", **attributes)
    kinds = {"label": onnx.TensorProto.INT64, "scores": 1, "y": 1}
    outputs = [helper.make_tensor_value_info(n, kinds[n], ["N"] if n == "label" else ["N", "K"]) for n in names]
    graph = helper.make_graph([node], "trees", [helper.make_tensor_value_info("x", 1, ["N", FEATURES])], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.representatives(3)
@pytest.mark.parametrize("is_classifier", [False, True])
@pytest.mark.parametrize("seed", range(32))
def test_as_onnx_runtime(seed: int, is_classifier: bool) -> None:
    random = np.random.default_rng(seed)
    operator = "TreeEnsembleClassifier" if is_classifier else "TreeEnsembleRegressor"
    model = model_of(operator, ensemble(random, is_classifier))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    in_c = InC(model)
    for rows in (0, 1, 5, 9, 131):
        x = (random.integers(-4, 5, (rows, FEATURES)) / 2).astype(np.float32)
        x[random.random(x.shape) < 0.1] = np.nan
        for result, wanted in zip(in_c([x]), session.run(None, {"x": x}), strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_a_row_of_too_few_columns_is_refused() -> None:
    model = model_of("TreeEnsembleRegressor", {**ensemble(np.random.default_rng(5), False)})
    with pytest.raises(LoopError, match="fewer columns than the trees read"):
        InC(model)([np.zeros((3, 0), np.float32)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_modes": ["BRANCH_EQ", "LEAF", "LEAF"]}, "BRANCH_EQ"),
        ({"nodes_truenodeids": [5, 0, 0]}, "no node 5"),
        ({"nodes_truenodeids": [0, 0, 0]}, "no tree"),
        ({"post_transform": "PROBIT"}, "PROBIT"),
        ({"target_ids": [1, 0]}, "of 1 scores"),
    ],
    ids=str,
)
def test_other_ensembles_have_no_loop(change: dict[str, Any], message: str) -> None:
    stump = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0],
        "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0], "n_targets": 1,
    }  # fmt: skip
    with pytest.raises(LoweringError, match=message):
        InC(model_of("TreeEnsembleRegressor", {**stump, **change}))
