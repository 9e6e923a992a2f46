"""The kernels that ONNX Runtime is left with after its own optimisation of a model."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import onnx
import onnxruntime


def runtime_kernels(model: onnx.ModelProto) -> Counter[str]:
    """How many kernels of each type run: with ``+Relu`` where an activation runs in them, ``+sum`` where a sum does."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(Path(folder) / "run.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        graph = onnx.load(Path(folder) / "run.onnx").graph
    return Counter(_describe(node) for node in graph.node)


def _describe(node: onnx.NodeProto) -> str:
    activations = [a.s.decode() for a in node.attribute if a.name == "activation"]
    sums = ["sum"] if node.op_type == "Conv" and len(node.input) > 3 and node.input[3] else []
    return "+".join([node.op_type.removeprefix("Fused"), *sums, *activations])
