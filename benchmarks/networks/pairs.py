"""Sub-graphs of two complex operators, and one of three: AGO's micro benchmark (Xu et al., INFOCOM 2023, Fig. 13).

The complex operators are pointwise or depthwise convolutions, in all four orders, with their bias and activation. The
text says that the one with two depthwise convolutions is made up and that the others are parts of MobileNet-V2 and
MNasNet, but not which; here they are those parts at images of 224x224 whose intermediate tensor is of medium size:

    pointwise, depthwise    MobileNet-V2, stage of 32 channels: 1x1 32 -> 192, 3x3 192, 28x28, ReLU6 behind both
    depthwise, pointwise    MNasNet, stage of 40 channels: 5x5 120, 1x1 120 -> 40, 28x28, ReLU in between, linear end
    pointwise, pointwise    MobileNet-V2, from the stage of 64 channels to that of 96 (no sum is in between):
                            1x1 384 -> 96, linear, 1x1 96 -> 576, ReLU6, 14x14
    depthwise, depthwise    made up of the first one: 3x3 192 twice, 28x28, ReLU6 behind both

At a scale of s all of these maps are s times as high and as wide, for caches that hold them as they are.

The one of three is not in the paper: the first pair with the projection behind it, the inverted residual as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from .folded import LINEAR, FoldedNetwork


def pointwise_depthwise(batch: int = 1, scale: int = 1) -> onnx.ModelProto:
    """The expansion and the window of an inverted residual block."""
    net = FoldedNetwork("pointwise_depthwise")
    x = net.relu6(net.conv(net.input("x", (batch, 32, 28 * scale, 28 * scale)), 192, 1))
    return net.model({net.relu6(net.depthwise(x, 3, 1)): (batch, 192, 28 * scale, 28 * scale)})


def depthwise_pointwise(batch: int = 1, scale: int = 1) -> onnx.ModelProto:
    """The window and the projection of an inverted residual block."""
    net = FoldedNetwork("depthwise_pointwise")
    x = net.relu(net.depthwise(net.input("x", (batch, 120, 28 * scale, 28 * scale)), 5, 1))
    return net.model({net.conv(x, 40, 1, gain=LINEAR): (batch, 40, 28 * scale, 28 * scale)})


def pointwise_pointwise(batch: int = 1, scale: int = 1) -> onnx.ModelProto:
    """The projection of one block and the expansion of the next."""
    net = FoldedNetwork("pointwise_pointwise")
    x = net.conv(net.input("x", (batch, 384, 14 * scale, 14 * scale)), 96, 1, gain=LINEAR)
    return net.model({net.relu6(net.conv(x, 576, 1)): (batch, 576, 14 * scale, 14 * scale)})


def depthwise_depthwise(batch: int = 1, scale: int = 1) -> onnx.ModelProto:
    """Two windows."""
    net = FoldedNetwork("depthwise_depthwise")
    x = net.relu6(net.depthwise(net.input("x", (batch, 192, 28 * scale, 28 * scale)), 3, 1))
    return net.model({net.relu6(net.depthwise(x, 3, 1)): (batch, 192, 28 * scale, 28 * scale)})


def inverted_residual(batch: int = 1, scale: int = 1) -> onnx.ModelProto:
    """Expansion, window, projection, and the sum with what came in."""
    net = FoldedNetwork("inverted_residual")
    x = net.input("x", (batch, 32, 28 * scale, 28 * scale))
    y = net.relu6(net.depthwise(net.relu6(net.conv(x, 192, 1)), 3, 1))
    return net.model({net.add("Add", x, net.conv(y, 32, 1, gain=LINEAR)): (batch, 32, 28 * scale, 28 * scale)})


PAIRS: dict[str, Callable[..., onnx.ModelProto]] = {
    "pointwise_depthwise": pointwise_depthwise,
    "depthwise_pointwise": depthwise_pointwise,
    "pointwise_pointwise": pointwise_pointwise,
    "depthwise_depthwise": depthwise_depthwise,
    "inverted_residual": inverted_residual,
}
"""By name, given the batch size, and the scale if it is not 1."""
