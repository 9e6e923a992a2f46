"""What storing floats in a narrower type does to the outputs of a model, whatever program computes them.

No fixed tolerance fits: a deep network may magnify the rounding of one weight a hundredfold, another not at all. So the
original runs once more with its weights and inputs rounded. Results of a right program, which also rounds what layers
hand on, are about as far off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ....engine.verification.baseline import Baseline
from ....engine.verification.run import OnnxRuntime
from ....engine.verification.source import Source, open_source
from ..network.storage import cast_array

Array = np.ndarray[Any, Any]


def rounding_effect(source: Source, baselines: Sequence[Baseline], dtype: str) -> dict[str, float]:
    """Per output of floats, the largest change over all runs. Raises RunError where the rounded model does not run."""
    model = onnx.load(source.path)
    constants = [
        a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t")
    ]
    for tensor in (*model.graph.initializer, *constants):
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
            tensor.CopyFrom(numpy_helper.from_array(_rounded(numpy_helper.to_array(tensor), dtype), tensor.name))
    found: dict[str, float] = {}
    with open_source(model, "rounded") as rounded:
        backend = OnnxRuntime(rounded)
        for run in (run for baseline in baselines for run in baseline.runs):
            outputs = backend.run({name: _rounded(value, dtype) for name, value in run.feeds.items()})
            for name, value in run.outputs.items():
                found[name] = max(found.get(name, 0.0), _farthest(value, outputs[name]))
    return found


def magnitudes(baselines: Sequence[Baseline]) -> Mapping[str, float]:
    """Per output, its largest finite element over all runs."""
    found: dict[str, float] = {}
    for run in (run for baseline in baselines for run in baseline.runs):
        for name, value in run.outputs.items():
            found[name] = max(found.get(name, 0.0), _largest(np.asarray(value)))
    return found


def _rounded(array: Any, dtype: str) -> Any:
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return array
    return cast_array(array, dtype).astype(array.dtype)


def _farthest(first: Any, second: Any) -> float:
    if not isinstance(first, np.ndarray) or first.dtype.kind != "f":
        return 0.0
    with np.errstate(all="ignore"):
        return _largest(first.astype(np.float64) - second)


def _largest(array: Array) -> float:
    if array.dtype.kind not in "fiu":
        return 0.0
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0
