"""What ONNX Runtime computes from a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray

from eqfuse.engine.onnx.exact_products import make_products_exact


def outputs_of(
    model: onnx.ModelProto | Path, feeds: Mapping[str, Any], *, as_written: bool = False
) -> list[NDArray[Any]]:
    """The outputs in the model's order; `feeds` may have more than its inputs. `as_written`: without ONNX Runtime's own
    rewriting. Products of bytes that the model says do not saturate, on any processor; those that the runtime makes of
    others may."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = make_products_exact(onnx.load(model) if isinstance(model, Path) else model).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {port.name: feeds[port.name] for port in session.get_inputs()}))
