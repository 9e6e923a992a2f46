"""Convolutions whose weights are for other channels are named; ONNX's inference does not look at them."""

from __future__ import annotations

import onnx
import pytest

from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.support.errors import ModelError


def convolution(text: str, channels: int, weights: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[1, {channels}, 5, 5] x, float[{weights}] w) => (float[1, n, h, v] y) {{ y = {text} (x, w) }}""")


@pytest.mark.parametrize(
    ("text", "channels", "weights", "message"),
    [
        ("Conv", 3, "4, 2, 3, 3", "its data has 3 channels, and its weights take 2"),
        ("Conv <group = 2>", 2, "4, 2, 3, 3", "its data has 2 channels, and its weights take 4"),
        ("Conv <group = 0>", 3, "4, 3, 3, 3", "it has 0 groups"),
        ("ConvTranspose <group = 2>", 2, "4, 2, 3, 3", "its data has 2 channels, and its weights take 4"),
    ],
)
def test_weights_for_other_channels(text: str, channels: int, weights: str, message: str) -> None:
    with pytest.raises(ModelError, match=rf"node of 'y' \(Conv\w*\): {message}; mend the model or export it again"):
        infer(read(convolution(text, channels, weights)))


@pytest.mark.parametrize(
    ("text", "channels", "weights"),
    [
        ("Conv <group = 2>", 4, "4, 2, 3, 3"),
        ("ConvTranspose <group = 2>", 4, "4, 2, 3, 3"),
        ("Conv", 3, "4, C, 3, 3"),
    ],
)
def test_weights_that_may_fit(text: str, channels: int, weights: str) -> None:
    assert infer(read(convolution(text, channels, weights)))
