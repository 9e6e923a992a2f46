"""Kernels whose tiles of channels are narrower than a cache line, on maps that the first cache does not hold."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.lowering.base.toolchain import Tool, missing
from eqfuse.lowering.running.emulated_model import open_emulated

from ..small_models import model, saved, weights

ABSENT = missing(Tool.CROSS_COMPILER, Tool.COUNTING_EMULATOR, Tool.HOST_COMPILER)
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
CHANNELS, SIDE = 64, 32
LINE_FLOATS = 16
WINDOWS = {
    "pooling": helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], strides=[2, 2]),
    "pooling with a border": helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "depthwise": helper.make_node("Conv", ["a", "w"], ["b"], group=CHANNELS, pads=[1, 1, 1, 1]),
}
OUTPUT_SIDE = {"pooling": 15, "pooling with a border": SIDE, "depthwise": SIDE}


def between_convolutions(window: onnx.NodeProto, side: int) -> onnx.ModelProto:
    """Its maps have channels last, for kernels make and read them."""
    nodes = [helper.make_node("Conv", ["x", "v"], ["a"]), window, helper.make_node("Conv", ["b", "u"], ["y"])]
    stored = {"v": weights(CHANNELS, 8, 1, 1), "w": weights(CHANNELS, 1, 3, 3), "u": weights(8, CHANNELS, 1, 1)}
    if window.op_type != "Conv":
        del stored["w"]
    return model(nodes, {"x": (1, 8, SIDE, SIDE)}, {"y": (1, 8, side, side)}, **stored)


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_fetches_each_line_of_its_map_once(name: str, tmp_path: Path) -> None:
    path = saved(between_convolutions(WINDOWS[name], OUTPUT_SIDE[name]), tmp_path / "in.onnx")
    options = {"target": "arm-cortex-a76", "threads": 1, "intensive": False, "verify": False}
    eqfuse.compile(path, tmp_path / "build", **options)
    with open_emulated(tmp_path / "build") as compiled:
        _, window, *_ = compiled.count(random_inputs(compiled.inputs, 0)).calls
    lines = CHANNELS * (SIDE**2 + OUTPUT_SIDE[name] ** 2) // LINE_FLOATS
    assert window.counts.misses[0] == pytest.approx(lines, rel=0.15)
