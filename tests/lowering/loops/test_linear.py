"""Linear models and support vector machines give what ONNX Runtime gives."""

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


def model_of(operator: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    names = ["label", "scores"] if operator.endswith("Classifier") else ["y"]
    node = helper.make_node(operator, ["x"], names, domain="ai.onnx.ml", **attributes)
    kinds = {"label": onnx.TensorProto.INT64, "scores": 1, "y": 1}
    outputs = [helper.make_tensor_value_info(n, kinds[n], ["N"] if n == "label" else ["N", "K"]) for n in names]
    graph = helper.make_graph([node], "linear", [helper.make_tensor_value_info("x", 1, ["N", FEATURES])], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def drawn(random: np.random.Generator, operator: str) -> dict[str, Any]:
    """The attributes of a model with random numbers."""

    def floats(count: int) -> list[float]:
        return [float(each) for each in random.standard_normal(count)]

    if operator == "SVMRegressor":
        supports = int(random.choice([0, 1, 3, 16, 21]))
        if not supports:
            linear = {"kernel_type": "LINEAR", "n_supports": 0, "kernel_params": [0.0, 0.0, 0.0]}
            return {"coefficients": floats(FEATURES), "rho": floats(1), **linear}
        return {
            "coefficients": floats(supports), "support_vectors": floats(supports * FEATURES), "rho": floats(1),
            "kernel_type": str(random.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])), "n_supports": supports,
            "kernel_params": [0.3, 0.5, 3.0], "one_class": int(random.integers(2)),
        }  # fmt: skip
    if operator == "SVMClassifier":
        classes = int(random.integers(2, 5))
        per_class = [int(each) for each in random.integers(1, 9, classes)]
        pairs, has_probabilities = classes * (classes - 1) // 2, bool(random.integers(2))
        probabilities = {"prob_a": floats(pairs), "prob_b": floats(pairs)} if has_probabilities else {}
        return {
            "coefficients": floats((classes - 1) * sum(per_class)), "vectors_per_class": per_class,
            "support_vectors": floats(sum(per_class) * FEATURES), "rho": floats(pairs),
            "kernel_type": str(random.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])), "kernel_params": [0.3, 0.5, 3.0],
            "classlabels_ints": [7, 3, 5, 2][:classes], **probabilities,
        }  # fmt: skip
    scores = int(random.integers(2 if operator == "LinearClassifier" else 1, 5))
    attributes: dict[str, Any] = {"coefficients": floats(scores * FEATURES), "intercepts": floats(scores)}
    if operator == "LinearRegressor":
        return {**attributes, "targets": scores}
    transform = str(random.choice(["NONE", "LOGISTIC", "SOFTMAX"]))
    return {**attributes, "classlabels_ints": [7, 3, 5, 2][:scores], "post_transform": transform, "multi_class": 1}


@pytest.mark.representatives(3)
@pytest.mark.parametrize("operator", ["LinearRegressor", "LinearClassifier", "SVMRegressor", "SVMClassifier"])
@pytest.mark.parametrize("seed", range(16))
def test_as_onnx_runtime(seed: int, operator: str) -> None:
    random = np.random.default_rng(seed)
    attributes = drawn(random, operator)
    model = model_of(operator, attributes)
    session, in_c = onnxruntime.InferenceSession(model.SerializeToString()), InC(model)
    for rows, has_nan in ((1, False), (4, False), (1, True)):
        x = random.standard_normal((rows, FEATURES)).astype(np.float32)
        if has_nan and operator.startswith("SVM") and "prob_a" not in attributes:
            x[0, 0] = np.nan
        for result, wanted in zip(in_c([x]), session.run(None, {"x": x}), strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_a_row_of_other_columns_is_refused() -> None:
    model = model_of("LinearRegressor", {"coefficients": [1.0, 2.0], "intercepts": [0.0]})
    with pytest.raises(LoopError, match="LinearRegressor has other columns than its input"):
        InC(model)([np.zeros((3, FEATURES), np.float32)])


@pytest.mark.parametrize(
    ("operator", "change", "message"),
    [
        ("LinearRegressor", {"post_transform": "SOFTMAX"}, "SOFTMAX"),
        ("LinearRegressor", {"targets": 2}, "one intercept for each target"),
        ("LinearClassifier", {"classlabels_ints": [0, 1]}, "one score for two classes"),
        ("SVMRegressor", {"rho": [1.0], "n_supports": 2}, "one coefficient for each support vector"),
        ("SVMClassifier", {"rho": [1.0], "classlabels_ints": [0, 1]}, "no support vectors for each class"),
    ],
    ids=str,
)
def test_other_models_have_no_loop(operator: str, change: dict[str, Any], message: str) -> None:
    attributes = {"coefficients": [1.0] * FEATURES}
    if not operator.startswith("SVM"):
        attributes["intercepts"] = [0.5]
    with pytest.raises(LoweringError, match=message):
        InC(model_of(operator, {**attributes, **change}))
