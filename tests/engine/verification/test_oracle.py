"""The float64 oracle: its kernels against ONNX Runtime, its widening, its judgements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference.ops import op_resize

from eqfuse.engine.verification.judges.oracle import Oracle, judge
from eqfuse.engine.verification.judges.widening import widen
from eqfuse.engine.verification.runs.run import OnnxRuntime
from eqfuse.engine.verification.runs.source import open_source

from ..models import convnet, model, normal, value

POOLINGS: list[dict[str, Any]] = [
    {"kernel_shape": [2, 3], "strides": [2, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 0], "ceil_mode": 1},
    {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 2], "strides": [3, 2], "dilations": [2, 3], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [3, 2], "strides": [2, 1], "dilations": [2, 3], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 2], "strides": [2, 2], "dilations": [2, 2], "auto_pad": "SAME_UPPER", "ceil_mode": 1},
    {"kernel_shape": [40, 40], "strides": [40, 40], "ceil_mode": 1},
]
CONVOLUTIONS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((5, 4, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    ((6, 2, 3, 2), {"group": 2, "dilations": [2, 1]}),
    ((8, 1, 3, 3), {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((4, 1, 3, 3), {"group": 4, "pads": [1, 0, 1, 2], "strides": [1, 2]}),
    ((6, 4, 1, 1), {}),
]


def assert_oracle_agrees(original: onnx.ModelProto, *shape: int) -> None:
    feeds = {"x": normal(*(shape or (2, 4, 9, 10)))}
    with open_source(original, "original") as source:
        exact, single = Oracle(source).run(feeds)["y"], OnnxRuntime(source).run(feeds)["y"]
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, single, rtol=1e-4, atol=1e-5)


CONTRIBUTED: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = [
    ("Gelu", (), {}),
    ("FusedMatMul", ((3, 10),), {"alpha": 0.5, "transB": 1}),
    ("FusedConv", ((6, 2, 3, 2), (6,)), {"activation": "Sigmoid", "kernel_shape": [3, 2], "pads": [1] * 4,
                                         "strides": [1, 2], "dilations": [1, 1], "group": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "weights", "attributes"), CONTRIBUTED)
def test_contributed_operators(operator: str, weights: tuple[tuple[int, ...], ...], attributes: dict[str, Any]) -> None:
    names = [f"w{number}" for number in range(len(weights))]
    node = helper.make_node(operator, ["x", *names], ["y"], domain="com.microsoft", **attributes)
    stored = {name: normal(*shape, seed=1) for name, shape in zip(names, weights, strict=True)}
    contributed = model([node], [value("x", [2, 4, 9, 10])], ["y"], stored)
    contributed.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert_oracle_agrees(contributed)


def pooling(operator: str, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    return model([node], [value("x", [2, 4, 9, 10])], ["y"], opset=19, ir_version=9)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("attributes", POOLINGS, ids=str)
def test_pools(operator: str, attributes: dict[str, Any]) -> None:
    assert_oracle_agrees(pooling(operator, **attributes))


@pytest.mark.parametrize("attributes", [each for each in POOLINGS if "auto_pad" not in each], ids=str)
def test_average_pool_counts_padding(attributes: dict[str, Any]) -> None:
    assert_oracle_agrees(pooling("AveragePool", **attributes, count_include_pad=1))


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_pools_clip_windows_that_are_larger_than_the_data(operator: str) -> None:
    assert_oracle_agrees(pooling(operator, kernel_shape=[10, 2], strides=[2, 2]))


def test_average_pool_counts_automatic_padding() -> None:
    """By hand: ONNX Runtime divides by other counts before version 1.25."""
    original = pooling("AveragePool", kernel_shape=[3, 2], strides=[2, 3], auto_pad="SAME_UPPER", count_include_pad=1)
    with open_source(original, "original") as source:
        exact = Oracle(source).run({"x": np.ones((2, 4, 9, 10), np.float32)})["y"]
    rows, columns = [2 / 3, 1, 1, 1, 2 / 3], [1, 1, 1, 1 / 2]
    np.testing.assert_allclose(exact, np.broadcast_to(np.outer(rows, columns), exact.shape))


def resize(mode: str) -> onnx.ModelProto:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    return model([node], [value("x", [1, 1, 3, 4])], ["y"], {"scales": np.asarray([1, 1, 2, 1.5], np.float32)})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode: str) -> None:
    assert_oracle_agrees(resize(mode), 1, 1, 3, 4)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_does_without_loops_over_elements(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(op_resize.Resize, "_run")
    assert_oracle_agrees(resize(mode), 1, 1, 3, 4)


@pytest.mark.parametrize(("shape", "attributes"), CONVOLUTIONS, ids=str)
def test_conv(shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    weights = {"w": normal(*shape), "b": normal(shape[0])}
    assert_oracle_agrees(model([node], [value("x", [2, 4, 9, 10])], ["y"], weights))


@pytest.mark.parametrize("opset", [9, 17])
def test_softmax_follows_its_version(opset: int) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"])
    assert_oracle_agrees(model([node], [value("x", [2, 4, 9, 10])], ["y"], opset=opset))


@pytest.mark.parametrize("opset", [9, 17])
def test_batch_normalization_is_for_inference(opset: int) -> None:
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])
    weights = {name: abs(normal(4, seed=seed)) + 0.1 for seed, name in enumerate("sbmv")}
    assert_oracle_agrees(model([node], [value("x", [2, 4, 9, 10])], ["y"], weights, opset=opset))


def test_erf_is_double() -> None:
    original = model([helper.make_node("Erf", ["x"], ["y"])], [value("x", [3])], ["y"])
    with open_source(original, "original") as source:
        exact = Oracle(source).run({"x": np.array([0.25], np.float32)})["y"]
    assert abs(exact[0] - 0.27632639016823696) < 1e-15


def test_widening_reaches_weights_constants_casts_and_bodies() -> None:
    body = helper.make_graph([helper.make_node("Constant", [], ["c"], value_float=0.5)], "body", [], [value("c", None)])
    nodes = [
        helper.make_node("Cast", ["x"], ["d"], to=TensorProto.FLOAT),
        helper.make_node("If", ["flag"], ["e"], then_branch=body, else_branch=body),
        helper.make_node("Sum", ["d", "e", "w"], ["y"]),
    ]
    original = model(nodes, [value("x", [2])], ["y"], {"w": normal(2), "flag": np.asarray(True)})
    widen(original)
    assert numpy_helper.to_array(original.graph.initializer[0]).dtype == np.float64
    assert original.graph.node[0].attribute[0].i == TensorProto.DOUBLE
    constant = original.graph.node[1].attribute[0].g.node[0].attribute[0]
    assert numpy_helper.to_array(constant.t).dtype == np.float64


def test_values_of_the_oracle_are_nearer_than_rounding(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(convnet(), path)
    feeds = {"x": normal(1, 3, 8, 8)}
    with open_source(path, "original") as source:
        exact, single = Oracle(source).run(feeds)["y"], OnnxRuntime(source).run(feeds)["y"]
    assert 0 < np.abs(exact - single).max() < 1e-4


def test_the_oracle_forgets_what_no_later_node_or_body_reads() -> None:
    kept: dict[str, list[str]] = {}
    body = helper.make_graph([helper.make_node("Neg", ["a"], ["n"])], "body", [], [value("n", None)])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("If", ["flag"], ["c"], then_branch=body, else_branch=body),
        helper.make_node("Sum", ["b", "c"], ["y"]),
    ]
    original = model(nodes, [value("x", [2])], ["y"], {"flag": np.asarray(True)})
    x = np.array([1, -1], np.float32)
    with open_source(original, "original") as source:
        oracle = Oracle(source)
        for extra in ([], ["b"], []):
            values = oracle.run({"x": x}, extra)
            kept["".join(extra)] = sorted(values)
            np.testing.assert_allclose(values["y"], [np.exp(1) - 1, 1], rtol=1e-12)
        forgotten = [list(a.strings) for n in oracle._model.graph.node if n.op_type == "Forget" for a in n.attribute]
    assert kept == {"": ["y"], "b": ["b", "y"]}
    assert [sorted(map(bytes.decode, names)) for names in forgotten] == [["x"], ["a", "flag", "n"], ["b", "c"]]


EXACT = np.linspace(-1, 1, 101)
ORIGINAL = (EXACT + 1e-5 * np.sin(50 * EXACT)).astype(np.float32)


@pytest.mark.parametrize(
    ("error", "acquitted", "convicted"),
    [(0.0, True, False), (3e-5, True, False), (8e-5, False, False), (2e-4, False, True)],
)
def test_verdict_follows_the_error(error: float, acquitted: bool, convicted: bool) -> None:
    candidate = (EXACT + error * np.cos(50 * EXACT)).astype(np.float32)
    judgement = judge(EXACT, ORIGINAL, candidate, spread=1.0)
    assert (judgement.acquitted, judgement.convicted) == (acquitted, convicted)


def test_original_that_is_noise_proves_nothing() -> None:
    judgement = judge(EXACT, ORIGINAL, ORIGINAL[::-1], spread=1e-5)
    assert (judgement.acquitted, judgement.convicted) == (False, False)


def test_new_nan_is_never_acquitted() -> None:
    candidate = ORIGINAL.copy()
    candidate[3] = np.nan
    assert not judge(EXACT, ORIGINAL, candidate, spread=1.0).acquitted


def test_overflow_of_the_original_is_no_measure() -> None:
    original = ORIGINAL.copy()
    original[3] = np.inf
    assert judge(EXACT, original, ORIGINAL, spread=1.0).acquitted
