"""Whether two models compute the same in ONNX Runtime, without the code that is under test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from .messages import Comparison, Verdict

_LARGEST = 1 << 22
"""Elements of the largest input that is made."""
_TYPES = {"float": "float32", "double": "float64", "string": "object"}
_TOLERANCES = {"float16": 3e-2, "float32": 1e-3, "float64": 1e-3}


def compare(question: Comparison) -> Verdict:
    """Run both under three sets of inputs. One that the original refuses, or answers in two ways, says nothing."""
    try:
        original = _session(question.original)
    except Exception:
        return Verdict(False)
    runs = [run for seed in range(3) if (run := _run(original, seed)) is not None]
    try:
        result = _session(question.result)
    except Exception as error:
        text = f"ONNX Runtime cannot load the result: {str(error)[:300]}"
        return Verdict(bool(runs), text if runs or question.verified else "")
    names = [output.name for output in original.get_outputs()]
    steps = {} if question.exact else _steps(question.original)
    for feeds, expected in runs:
        try:
            found = result.run(names, feeds)
        except Exception as error:
            return Verdict(True, f"ONNX Runtime cannot run the result: {str(error)[:300]}")
        for name, one, other in zip(names, expected, found, strict=True):
            difference = _difference(one, other, question.exact, steps.get(name, 0.0))
            if difference:
                return Verdict(True, f"output {name[:40]!r}: {difference}")
    return Verdict(bool(runs))


def _steps(path: Path) -> dict[str, float]:
    """How far one step of their integers is for outputs of QuantizeLinear and of a DequantizeLinear of a stored scale:
    numbers that lie between two integers may be rounded to either."""
    graph = onnx.load(path, load_external_data=False).graph
    stored = {t.name: t for t in graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL}
    steps = {}
    for node in graph.node:
        if node.op_type == "QuantizeLinear":
            steps[node.output[0]] = 1.0
        elif node.op_type == "DequantizeLinear" and node.input[1] in stored:
            scale = numpy_helper.to_array(stored[node.input[1]]).astype(float)
            steps[node.output[0]] = float(np.nan_to_num(abs(scale)).max(initial=0))
    return steps


def _run(session: onnxruntime.InferenceSession, seed: int) -> tuple[dict[str, Any], list[Any]] | None:
    """Inputs and outputs; None if there are none, or others each time."""
    try:
        feeds = _feeds(session, seed)
        expected, again = session.run(None, feeds), session.run(None, feeds)
    except Exception:
        return None
    differ = any(_difference(one, other, True) for one, other in zip(expected, again, strict=True))
    return None if differ else (feeds, expected)


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _feeds(session: onnxruntime.InferenceSession, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {value.name: _value(value.type, value.shape, random) for value in session.get_inputs()}


def _value(kind: str, shape: list[Any] | None, random: np.random.Generator) -> Any:
    """Raises ValueError for what cannot be made. All dimensions that are not known are 3."""
    if kind.startswith("optional("):
        return _value(kind[9:-1], shape, random)
    if kind.startswith("seq("):
        return [_value(kind[4:-1], [2, 3], random) for _ in range(2)]
    sizes = [size if isinstance(size, int) else 3 for size in shape or []]
    if not kind.startswith("tensor(") or np.prod(sizes, dtype=float) > _LARGEST:
        raise ValueError(kind)
    name = kind[7:-1]
    dtype = np.dtype(_TYPES.get(name, name))
    if dtype.kind == "O":
        return random.choice(np.asarray(["a", "b", "", "é"], dtype), sizes)
    numbers = random.integers(0, 3, sizes) if dtype.kind in "iub" else random.standard_normal(sizes)
    return np.asarray(numbers).astype(dtype)


def _difference(expected: Any, found: Any, exact: bool, step: float = 0.0) -> str:
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return next((d for pair in zip(expected, found, strict=True) if (d := _difference(*pair, exact))), "")
    if not (isinstance(expected, np.ndarray) and isinstance(found, np.ndarray)):
        return "" if type(expected) is type(found) and not isinstance(expected, list) else "of another kind"
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return f"{found.dtype}{found.shape} instead of {expected.dtype}{expected.shape}"
    if expected.dtype.kind in "iu" and step:
        return "" if np.all(abs(expected.astype(int) - found) <= step) else "integers of more than a step"
    if expected.dtype.kind != "f":
        return "" if np.array_equal(expected, found) else "other values"
    finite = np.isfinite(expected)
    one, other = (array.astype(np.float64) for array in (expected, found))
    allowed = _TOLERANCES[expected.dtype.name] * max(1e-2, float(abs(one[finite]).max(initial=0)))
    allowed = max(allowed, 1.001 * step)
    compared = np.ones_like(finite) if exact else finite
    if np.allclose(other[compared], one[compared], rtol=0, atol=allowed, equal_nan=True):
        return ""
    return f"{found.ravel()[:4]} instead of {expected.ravel()[:4]}"
