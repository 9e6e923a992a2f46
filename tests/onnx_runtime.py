"""What ONNX Runtime computes from a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray


def outputs_of(
    model: onnx.ModelProto | Path, feeds: Mapping[str, Any], *, as_written: bool = False
) -> list[NDArray[Any]]:
    """The outputs in the model's order; `feeds` may have more than its inputs. `as_written`: without ONNX Runtime's own
    rewriting."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {port.name: feeds[port.name] for port in session.get_inputs()}))
