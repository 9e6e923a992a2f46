"""MobileNet-V2 (Sandler et al. 2018), MNasNet-B1 (Tan et al. 2019) and ShuffleNet-V2 (Ma et al. 2018), width 1.0, as
torchvision has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from .folded import BRANCH, LINEAR, FoldedNetwork

Activation = Callable[[str], str]


@dataclass(frozen=True)
class _Stage:
    """Inverted residual blocks: their expansion, output channels, how many, first stride, kernel."""

    expansion: int
    channels: int
    blocks: int
    stride: int
    kernel: int = 3


_MOBILENET_V2 = (
    _Stage(1, 16, 1, 1),
    _Stage(6, 24, 2, 2),
    _Stage(6, 32, 3, 2),
    _Stage(6, 64, 4, 2),
    _Stage(6, 96, 3, 1),
    _Stage(6, 160, 3, 2),
    _Stage(6, 320, 1, 1),
)
_MNASNET = (
    _Stage(1, 16, 1, 1),
    _Stage(3, 24, 3, 2),
    _Stage(3, 40, 3, 2, 5),
    _Stage(6, 80, 3, 2, 5),
    _Stage(6, 96, 2, 1),
    _Stage(6, 192, 4, 2, 5),
    _Stage(6, 320, 1, 1),
)


def mobilenet_v2(side: int = 224, batch: int = 1) -> onnx.ModelProto:
    """Images of side x side to 1000 classes."""
    net = FoldedNetwork("mobilenet_v2")
    x = _inverted_residuals(net, net.input("image", (batch, 3, side, side)), _MOBILENET_V2, net.relu6)
    return net.classifier(net.add("Flatten", net.add("GlobalAveragePool", x)), 1280, batch=batch)


def mnasnet(side: int = 224) -> onnx.ModelProto:
    """An image of side x side to 1000 classes."""
    net = FoldedNetwork("mnasnet")
    x = _inverted_residuals(net, net.input("image", (1, 3, side, side)), _MNASNET, net.relu)
    return net.classifier(net.add("ReduceMean", x, axes=[2, 3], keepdims=0), 1280)


def _inverted_residuals(net: FoldedNetwork, image: str, stages: tuple[_Stage, ...], activation: Activation) -> str:
    x = activation(net.conv(image, 32, stride=2))
    for stage in stages:
        for number in range(stage.blocks):
            x = inverted_residual(
                net, x, stage.expansion * net.channels[x], stage.channels, stage.kernel,
                stage.stride if number == 0 else 1, activation,
            )  # fmt: skip
    return activation(net.conv(x, 1280, 1))


def inverted_residual(
    net: FoldedNetwork, source: str, wide: int, channels: int, kernel: int, stride: int, activation: Activation
) -> str:
    """1x1 to `wide` channels (left out where there are as many), depthwise, 1x1 to `channels`; plus the source."""
    is_residual = stride == 1 and net.channels[source] == channels
    x = source if wide == net.channels[source] else activation(net.conv(source, wide, 1))
    x = activation(net.depthwise(x, kernel, stride))
    x = net.conv(x, channels, 1, gain=BRANCH if is_residual else LINEAR)
    return net.add("Add", source, x) if is_residual else x


def shufflenet_v2(side: int = 224) -> onnx.ModelProto:
    """An image of side x side to 1000 classes; channels are shuffled by Reshape, Transpose, Reshape."""
    net = FoldedNetwork("shufflenet_v2")
    x = net.relu(net.conv(net.input("image", (1, 3, side, side)), 24, stride=2))
    x = net.pool(x, 3, 2, 1)
    size = _halved(_halved(side))
    for channels, units in ((116, 4), (232, 8), (464, 4)):
        size = _halved(size)
        for number in range(units):
            x = _shuffled(net, _unit(net, x, channels // 2, first=number == 0), size)
    x = net.relu(net.conv(x, 1024, 1))
    return net.classifier(net.add("ReduceMean", x, axes=[2, 3], keepdims=0), 1024)


def _halved(size: int) -> int:
    """Of a window of 3 at stride 2, padded by 1."""
    return (size + 1) // 2


def _unit(net: FoldedNetwork, x: str, channels: int, first: bool) -> str:
    """The first of a stage halves height and width of both parts; the others leave one half of the channels alone."""
    if first:
        kept = net.relu(net.conv(net.depthwise(x, 3, 2, LINEAR), channels, 1))
        return net.concat(kept, _branch(net, x, channels, 2))
    kept, rest = net.split("Split", 2, x, net.integers(channels, channels), axis=1)
    net.channels[kept] = net.channels[rest] = channels
    return net.concat(kept, _branch(net, rest, channels, 1))


def _branch(net: FoldedNetwork, x: str, channels: int, stride: int) -> str:
    x = net.depthwise(net.relu(net.conv(x, channels, 1)), 3, stride, LINEAR)
    return net.relu(net.conv(x, channels, 1))


def _shuffled(net: FoldedNetwork, x: str, size: int) -> str:
    """The channels of both halves in turn."""
    channels = net.channels[x]
    parts = net.add("Reshape", x, net.integers(1, 2, channels // 2, size, size))
    found = net.add("Reshape", net.add("Transpose", parts, perm=[0, 2, 1, 3, 4]), net.integers(1, -1, size, size))
    net.channels[found] = channels
    return found
