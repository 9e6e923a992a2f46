"""Quantised models of benchmarks/measuring/quantising.py, and what benchmarks/measuring/eight_bits.py says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from eqfuse.benchmarks.latency import OPENVINO, OURS, REFERENCE
from eqfuse.benchmarks.measuring.contestants import ContestantError, Sample
from eqfuse.benchmarks.measuring.eight_bits import OUR_FLOAT, Accuracy, QuantisedRecord, measure_accuracy
from eqfuse.benchmarks.measuring.quantising import FORMS, quantised

from ..engine.models import convnet, model, value


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small float model, with a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    onnx.save(convnet(), tmp_path / "network.onnx")
    return tmp_path / "network.onnx"


@pytest.mark.parametrize("form", FORMS)
def test_forms_have_the_types_that_their_names_say(network: Path, form: str) -> None:
    graph = onnx.load(quantised(network, form)).graph
    operators = {node.op_type for node in graph.node}
    assert ("QLinearConv" in operators) == form.startswith("qoperator")
    assert ("ConvInteger" in operators) == (form == "dynamic")
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    if form != "dynamic":
        zeros = [stored[node.input[2]] for node in graph.node if node.op_type == "QuantizeLinear"]
        assert {zero.dtype.name for zero in zeros} == {"int8" if "s8s8" in form else "uint8"}
        scales = [stored[node.input[1]] for node in graph.node if node.op_type == "DequantizeLinear"]
        scales += [stored[node.input[4]] for node in graph.node if node.op_type == "QLinearConv"]
        assert any(scale.size > 1 for scale in scales) == form.endswith("channel")


def test_quantised_models_are_kept(network: Path) -> None:
    first = quantised(network, "qdq-u8s8")
    before = first.stat().st_mtime_ns
    assert quantised(network, "qdq-u8s8") == first
    assert first.stat().st_mtime_ns == before
    onnx.save(convnet(perm=(0, 3, 2, 1)), network)
    assert quantised(network, "qdq-u8s8") != first


def test_a_model_that_the_tools_refuse_is_named(network: Path) -> None:
    unknown = onnx.helper.make_node("Relu", ["x"], ["y"], domain="nowhere")
    onnx.save(model([unknown], [value("x", [2])], [value("y", [2])]), network)
    with pytest.raises(ContestantError, match="tools cannot quantise it"):
        quantised(network, "dynamic")


def test_results_are_compared_in_steps_and_with_the_float_model() -> None:
    exact, expected = np.array([3.0, 4.0]), np.array([3.0, 4.5])
    found = measure_accuracy([expected], [np.array([3.0, 4.0])], [exact], [0.25])
    assert found == Accuracy(steps=2.0, share=0.5, distance=0.0)
    assert measure_accuracy([expected], [expected], [exact], [0.25]) == Accuracy(0.0, 0.0, 0.1)


def record(**seconds: float) -> QuantisedRecord:
    names = {"ours": OURS, "ort": REFERENCE, "openvino": OPENVINO, "float": OUR_FLOAT}
    samples = {(names[tool], 1): [Sample(time, time)] * 3 for tool, time in seconds.items()}
    return QuantisedRecord("a qdq-u8s8", "a", samples, accuracy={OURS: Accuracy(1.0, 0.1, 0.2)}, integer_share=0.9)


def test_the_best_peer_runs_the_same_file() -> None:
    found = record(ours=1.0, ort=3.0, openvino=2.0, float=0.5).comparisons(1)
    assert {name: ratio.median for name, ratio in found.items() if ratio} == {
        "best int8 peer / eqfuse": 2.0, "ONNX Runtime / eqfuse": 3.0, "OpenVINO / eqfuse": 2.0,
        "eqfuse float / int8": 0.5,
    }  # fmt: skip


def test_records_are_read_as_they_were_written() -> None:
    before = record(ours=1.0, ort=3.0)
    after = QuantisedRecord.of(json.loads(json.dumps(before.as_dict())))
    assert (after.accuracy, after.integer_share, after.samples) == (before.accuracy, 0.9, before.samples)
