"""The sizes that choices are made for where users name none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer

from .models import model, value


def typical(nodes: Sequence[NodeProto], shape: Sequence[Any], **stored: Any) -> Mapping[str, int]:
    source = read(model(nodes, [value("x", list(shape))], ["y"], stored))
    return operator_graph(source, infer(source)).sizes


def test_a_sound_has_several_frames() -> None:
    frames = helper.make_node("Conv", ["x", "w"], ["y"], strides=[256])
    assert typical([frames], [1, 1, "samples"], w=np.ones((8, 1, 256), np.float32)) == {"samples": 1024}


def test_a_map_that_is_large_enough_is_no_larger() -> None:
    strided = helper.make_node("Conv", ["x", "w"], ["y"], strides=[32, 32])
    assert typical([strided], [1, 3, "h", "w"], w=np.ones((8, 3, 32, 32), np.float32)) == {"h": 128, "w": 128}


def test_lines_of_text_are_not_a_pixel_high() -> None:
    pool = helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[48, 1], strides=[48, 1])
    squeeze = helper.make_node("Squeeze", ["p", "axes"], ["y"])
    assert typical([pool, squeeze], [1, 3, "h", "w"], axes=np.array([2])) == {"h": 64, "w": 128}
