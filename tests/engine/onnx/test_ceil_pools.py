"""Sizes of pools with ``ceil_mode`` as ONNX Runtime computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from eqfuse.engine.onnx.inference import infer
from eqfuse.engine.onnx.model import read

from ..models import model, value


def pool(op: str, opset: int, size: int, **settings: Any) -> onnx.ModelProto:
    """A pool with ceil_mode, and a Relu behind it."""
    kernel = settings.pop("kernel")
    nodes = [
        helper.make_node(op, ["x"], ["a"], kernel_shape=[kernel], ceil_mode=1, **settings),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    return model(nodes, [value("x", [1, 2, size])], ["y"], opset=opset)


def actual(proto: onnx.ModelProto, size: int) -> tuple[int, ...]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return tuple(session.run(None, {"x": np.zeros((1, 2, size), np.float32)})[0].shape)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize("opset", [11, 19, 22])
@pytest.mark.parametrize(
    ("size", "settings"),
    [
        (4, {"kernel": 1, "strides": [2]}),
        (6, {"kernel": 2, "strides": [2], "pads": [1, 1]}),
        (6, {"kernel": 2, "strides": [3], "pads": [1, 1]}),
        (7, {"kernel": 3, "strides": [2], "pads": [0, 1]}),
        (5, {"kernel": 2, "strides": [4]}),
        (6, {"kernel": 3, "strides": [2], "auto_pad": "SAME_UPPER"}),
    ],
)
def test_no_window_begins_in_the_pad_at_the_end(op: str, opset: int, size: int, settings: dict[str, Any]) -> None:
    proto = pool(op, opset, size, **settings)
    assert infer(read(proto)).types["y"].shape == actual(proto, size)
