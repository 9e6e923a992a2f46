"""Quantised models are compared in steps of their scales."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static

from eqfuse.engine.verification import verify
from eqfuse.engine.verification.judges.quantization import FACTOR, DitheredModel, Steps, largest_steps
from eqfuse.engine.verification.runs.source import open_source
from eqfuse.engine.verification.runs.structure import Structure
from eqfuse.ir.operators.quantization import ROUNDED_RESULTS
from eqfuse.rules.vocabulary import Precision

from ..models import model, normal, value

make = helper.make_node


class Images(CalibrationDataReader):  # type: ignore[misc]
    """Inputs that determine the scales."""

    def __init__(self) -> None:
        self._images = [normal(1, 3, 12, 12, seed=seed) for seed in range(4)]

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return {"x": self._images.pop()} if self._images else None


def network() -> onnx.ModelProto:
    nodes = [
        make("Conv", ["x", "a"], ["c"], pads=[1, 1, 1, 1]),
        make("Relu", ["c"], ["r"]),
        make("Conv", ["r", "b"], ["d"], pads=[1, 1, 1, 1]),
        make("Relu", ["d"], ["s"]),
        make("GlobalAveragePool", ["s"], ["p"]),
        make("Flatten", ["p"], ["f"]),
        make("MatMul", ["f", "w"], ["l"]),
        make("Softmax", ["l"], ["y"]),
    ]
    weights = {"a": normal(16, 3, 3, 3) / 5, "b": normal(16, 16, 3, 3, seed=1) / 12, "w": normal(16, 10, seed=2) / 4}
    return model(nodes, [value("x", [1, 3, 12, 12])], [value("y", [1, 10])], weights)


Quantize = Callable[[Path, Path], None]
FORMS: dict[str, Quantize] = {
    "qdq": lambda source, target: quantize_static(source, target, Images(), quant_format=QuantFormat.QDQ),
    "operators": lambda source, target: quantize_static(source, target, Images(), quant_format=QuantFormat.QOperator),
    "dynamic": lambda source, target: quantize_dynamic(source, target),
}


@pytest.fixture(scope="module", params=FORMS)
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    """The network as ONNX Runtime quantises it."""
    folder = tmp_path_factory.mktemp("quantized")
    onnx.save(network(), folder / "float.onnx")
    logging.disable(logging.WARNING)  # it wishes for preprocessing
    FORMS[request.param](folder / "float.onnx", folder / "quantized.onnx")
    logging.disable(logging.NOTSET)
    return onnx.load(folder / "quantized.onnx")


def scale_operands(original: onnx.ModelProto, factor: float) -> onnx.ModelProto:
    """The model, all numbers that are rounded multiplied by a factor."""
    changed = onnx.ModelProto()
    changed.CopyFrom(original)
    nodes = []
    for number, node in enumerate(original.graph.node):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
            nodes.append(make("Mul", [node.input[0], "factor"], [f"scaled{number}"]))
            copy.input[0] = f"scaled{number}"
        elif (place := ROUNDED_RESULTS.get(node.op_type)) is not None:
            nodes.append(make("Div", [node.input[place], "factor"], [f"scaled{number}"]))
            copy.input[place] = f"scaled{number}"
        nodes.append(copy)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    changed.graph.initializer.append(numpy_helper.from_array(np.asarray(factor, np.float32), "factor"))
    return changed


def rounded(offset: float, axis: bool) -> onnx.ModelProto:
    """x + offset as integers of 8 bits, of one scale or of one for each column, and as numbers again."""
    scale = np.asarray([0.5, 0.25, 0.5] if axis else 0.5, np.float32)
    weights = {"s": scale, "z": np.full(scale.shape, 3, np.uint8), "b": np.asarray([[offset, 0, 0]], np.float32)}
    nodes = [make("Add", ["x", "b"], ["a"]), make("QuantizeLinear", ["a", "s", "z"], ["q"])]
    nodes.append(make("DequantizeLinear", ["q", "s", "z"], ["y"]))
    return model(nodes, [value("x", [400, 3])], [value("y", [400, 3])], weights)


def test_how_far_steps_move_an_output(tmp_path: Path) -> None:
    x = normal(400, 3)
    for name, proto in (("quantised", rounded(0.0, False)), ("float", network())):
        onnx.save(proto, tmp_path / f"{name}.onnx")
    result = {"y": np.maximum(np.round(2 * x), -3) / 2}  # integers from 0, of which 3 stands for 0
    assert largest_steps(tmp_path / "quantised.onnx", {"x": x}, result, result)["y"] == pytest.approx(FACTOR * 0.5)
    assert largest_steps(tmp_path / "float.onnx", {"x": normal(1, 3, 12, 12)}, {}, {}) == {}


@pytest.mark.parametrize("axis", [False, True])
def test_outputs_that_are_integers_are_counted_in_steps(axis: bool) -> None:
    same = verify(rounded(0.0, axis), rounded(0.0, axis))
    assert ", 1 output(s), 0 steps, " in same.summary
    result = verify(rounded(0.0, axis), rounded(0.02, axis), atol=10.0)
    (report,) = result.outputs
    assert report.steps is not None
    assert (report.steps.most, report.steps.elements) == (1, report.effect.elements)
    assert 0.01 < 3 * report.steps.moved / report.steps.elements < 0.1
    assert f"max 1 step in {report.steps.moved} of {report.steps.elements:,}" in result.summary
    assert "differences" not in result.summary


@pytest.mark.parametrize(("factor", "status"), [(1.0, "passed"), (1 + 1e-5, "passed"), (1.1, "failed")])
def test_rounding_passes_and_another_scale_does_not(quantized: onnx.ModelProto, factor: float, status: str) -> None:
    assert verify(quantized, scale_operands(quantized, factor)).status == status


SCALE, ZERO = np.float32(0.05), np.uint8(128)
ROUNDED = [
    make("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
    make("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
]


def add_steps(*steps: float) -> onnx.ModelProto:
    """Quantised and dequantised, with these steps added to the first elements."""
    offset = np.zeros((1, 400), np.float32)
    offset[0, : len(steps)] = np.array(steps, np.float32) * SCALE
    nodes = [*ROUNDED[:1], make("DequantizeLinear", ["q", "scale", "zero"], ["d"]), make("Add", ["d", "o"], ["y"])]
    weights = {"scale": SCALE, "zero": ZERO, "o": offset}
    return model(nodes, [value("x", [1, 400])], [value("y", [1, 400])], weights)


def test_one_step_in_one_element_passes_without_a_float64_run() -> None:
    """Rounding that went the other way is a hundred times what float32 may be off by."""
    original = model(ROUNDED, [value("x", [1, 400])], [value("y", [1, 400])], {"scale": SCALE, "zero": ZERO})
    assert verify(original, add_steps(1)).status == "passed"
    assert verify(original, add_steps(1, -1, 0, 1)).status == "passed"


@pytest.mark.parametrize("steps", [(2,), (0, 0, -3), (1,) * 40], ids=["two steps", "three steps", "too many elements"])
def test_more_does_not_pass(steps: tuple[float, ...]) -> None:
    original = model(ROUNDED, [value("x", [1, 400])], [value("y", [1, 400])], {"scale": SCALE, "zero": ZERO})
    verdict = verify(original, add_steps(*steps))
    assert verdict.status == "failed"
    assert "steps of its scales explain" in verdict.reason


@pytest.mark.parametrize(("offset", "status"), [(1, "passed"), (2, "failed")])
def test_integers_that_are_given_out_count_in_steps(offset: int, status: str) -> None:
    offsets = np.zeros((1, 400), np.int32)
    offsets[0, 7] = offset
    inputs, outputs = [value("x", [1, 400])], [value("y", [1, 400], TensorProto.UINT8)]
    quantizer = make("QuantizeLinear", ["x", "scale", "zero"], ["q"])
    weights = {"scale": SCALE, "zero": ZERO}
    added = [
        make("Cast", ["q"], ["i"], to=TensorProto.INT32),
        make("Add", ["i", "o"], ["j"]),
        make("Cast", ["j"], ["y"], to=TensorProto.UINT8),
    ]
    original = model([quantizer, make("Identity", ["q"], ["y"])], inputs, outputs, weights)
    candidate = model([quantizer, *added], inputs, outputs, weights | {"o": offsets})
    assert verify(original, candidate).status == status


@pytest.mark.parametrize(("offset", "status"), [(1, "passed"), (2, "failed")])
def test_results_of_operators_on_integers_count_in_steps(offset: int, status: str) -> None:
    """Nothing but the operator itself rounds."""
    offsets = np.zeros((1, 400), np.int32)
    offsets[0, 7] = offset
    ports = [value("x", [1, 400], TensorProto.UINT8)], [value("y", [1, 400], TensorProto.UINT8)]
    summed = make("QLinearAdd", ["x", "s", "z", "x", "s", "z", "t", "z"], ["q"], domain="com.microsoft")
    weights = {"s": SCALE, "t": 4 * SCALE, "z": ZERO}
    added = [
        make("Cast", ["q"], ["i"], to=TensorProto.INT32),
        make("Add", ["i", "o"], ["j"]),
        make("Cast", ["j"], ["y"], to=TensorProto.UINT8),
    ]
    original = model([summed, make("Identity", ["q"], ["y"])], *ports, weights)
    candidate = model([summed, *added], *ports, weights | {"o": offsets})
    for each in (original, candidate):
        each.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    verdict = verify(original, candidate)
    assert verdict.status == status
    assert f"max {offset} step" in verdict.summary


def test_steps_are_those_of_the_scale() -> None:
    original = model(ROUNDED, [value("x", [1, 400])], [value("y", [1, 400])], {"scale": SCALE, "zero": ZERO})
    feeds = {"x": normal(1, 400)}
    with open_source(original, "original") as source:
        dithered = DitheredModel(source, Structure(source.structure), is_fast=False)
        rounded = (np.round(feeds["x"] / SCALE) * SCALE).astype(np.float32)
        steps = dithered.steps(feeds, {"y": rounded}, {"y": rounded})["y"]
    assert steps.largest == pytest.approx(SCALE, rel=1e-5)
    assert SCALE * np.sqrt(1 / 400) <= steps.rms <= SCALE * np.sqrt(12 / 400)


def test_an_output_of_few_elements_moves_more_often_if_steps_do_not_explain_it_yet() -> None:
    nodes = [*ROUNDED[:-1], make(ROUNDED[-1].op_type, ROUNDED[-1].input, ["r"]), make("ReduceMean", ["r"], ["y"])]
    original = model(nodes, [value("x", [1, 400])], [value("y", [1, 1])], {"scale": SCALE, "zero": ZERO})
    feeds = {"x": normal(1, 400)}
    mean = (np.round(feeds["x"] / SCALE) * SCALE).mean(keepdims=True, dtype=np.float32)

    def largest(actual: NDArray[Any]) -> float:
        with open_source(original, "original") as source:
            dithered = DitheredModel(source, Structure(source.structure), is_fast=False)
            return dithered.steps(feeds, {"y": mean}, {"y": actual})["y"].largest

    assert largest(mean + 10) > largest(mean) > 0


@pytest.mark.parametrize(
    ("precision", "width", "status"), [("fast", 1, "passed"), ("fast", 0.3, "failed"), ("real", 1, "failed")]
)
def test_numbers_may_be_left_unrounded_with_the_precision_fast(precision: Precision, width: float, status: str) -> None:
    """They are clipped to the numbers that the integers stand for, or to a narrower range."""
    tensors = {"scale": SCALE, "zero": ZERO}
    ends = {name: np.float32(width * SCALE * (end - 128)) for name, end in (("low", 0), ("high", 255))}
    original = model(ROUNDED, [value("x", [1, 400])], [value("y", [1, 400])], tensors)
    clipped = model([make("Clip", ["x", *ends], ["y"])], [value("x", [1, 400])], [value("y", [1, 400])], ends)
    assert verify(original, clipped, precision=precision).status == status


def test_nan_in_place_of_a_number_is_no_step() -> None:
    expected, result = np.zeros(4, np.float32), np.array([0, np.nan, 0, 0], np.float32)
    assert not Steps(1.0, 1.0).allow(expected, result)
    assert Steps(1.0, 1.0).allow(expected, expected + FACTOR * np.float32(0.9))
