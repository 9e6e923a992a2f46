"""What ONNX Runtime's documentation shows, with both modules: the same results, and the same errors."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.datasets import get_example

import eqfuse

MODULES = [onnxruntime, eqfuse]
PROVIDERS = ["CPUExecutionProvider"]


@pytest.fixture(autouse=True)
def without_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQFUSE_SESSION", "off")


def describe(session: Any) -> list[tuple[Any, ...]]:
    return [(each.name, each.type, each.shape) for each in (*session.get_inputs(), *session.get_outputs())]


@pytest.mark.parametrize("example", ["sigmoid.onnx", "mul_1.onnx", "logreg_iris.onnx"])
def test_load_and_predict(example: str) -> None:
    sessions = [module.InferenceSession(get_example(example), providers=PROVIDERS) for module in MODULES]
    assert describe(sessions[0]) == describe(sessions[1])
    port = sessions[0].get_inputs()[0]
    shape = [extent if isinstance(extent, int) else 3 for extent in port.shape]
    array = np.random.default_rng(0).random(shape).astype(np.float32)
    results = [session.run(None, {port.name: array}) for session in sessions]
    assert json.dumps(results[0], default=repr) == json.dumps(results[1], default=repr)


def test_metadata() -> None:
    metas = [module.InferenceSession(get_example("sigmoid.onnx")).get_modelmeta() for module in MODULES]
    for field in ("custom_metadata_map", "description", "domain", "graph_name", "producer_name", "version"):
        assert getattr(metas[0], field) == getattr(metas[1], field)


@pytest.mark.parametrize(
    ("outputs", "feeds"),
    [
        (["variable"], {"X": np.array([[1.0, 2.0]], np.float64)}),
        (["misspelled"], {"X": np.zeros((3, 2), np.float32)}),
        (None, {"misspelled": np.zeros((3, 2), np.float32)}),
        (None, {"X": np.zeros(3, np.float32)}),
        (None, {"X": np.zeros((3, 2, 1), np.float32)}),
        (None, {"X": None}),
        (None, {}),
    ],
)
def test_common_errors(outputs: Any, feeds: dict[str, Any]) -> None:
    errors = []
    for module in MODULES:
        session = module.InferenceSession(get_example("mul_1.onnx"))
        with pytest.raises(Exception, match=r".") as info:
            session.run(outputs, feeds)
        errors.append((info.type, str(info.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("module", MODULES)
def test_profiling(module: ModuleType, tmp_path: Path) -> None:
    options = module.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = module.InferenceSession(get_example("mul_1.onnx"), options, providers=PROVIDERS)
    session.run(None, {"X": np.zeros((3, 2), np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text())
    assert any("Mul" in json.dumps(event) for event in events)


@pytest.mark.parametrize("module", MODULES)
def test_values_and_bindings(module: ModuleType) -> None:
    session = module.InferenceSession(get_example("mul_1.onnx"), providers=[("CPUExecutionProvider", {})])
    array = np.ones((3, 2), np.float32)
    value = module.OrtValue.ortvalue_from_numpy(array)
    (by_value,) = session.run_with_ort_values(["Y"], {"X": value})
    binding = session.io_binding()
    binding.bind_ortvalue_input("X", value)
    binding.bind_output("Y", "cpu")
    session.run_with_iobinding(binding)
    (by_binding,) = binding.copy_outputs_to_cpu()
    (expected,) = session.run(["Y"], {"X": array})
    np.testing.assert_array_equal(by_value.numpy(), expected)
    np.testing.assert_array_equal(by_binding, expected)


@pytest.mark.parametrize("module", MODULES)
def test_a_model_in_memory_and_its_options(module: ModuleType) -> None:
    options = module.SessionOptions()
    options.graph_optimization_level = module.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.execution_mode = module.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = 1
    session = module.InferenceSession(
        Path(get_example("mul_1.onnx")).read_bytes(), sess_options=options, providers=module.get_available_providers()
    )
    assert session.get_session_options().intra_op_num_threads == 1
    assert "CPUExecutionProvider" in session.get_providers()
    session.set_providers(PROVIDERS)
    (result,) = session.run(None, {"X": np.ones((3, 2), np.float32)}, run_options=module.RunOptions())
    assert result.shape == (3, 2)
