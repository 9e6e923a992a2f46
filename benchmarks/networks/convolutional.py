"""SqueezeNet 1.1 (Iandola et al. 2016), ResNet-50 (He et al. 2016; v1.5: stride in the 3x3) and DenseNet-121 (Huang et
al. 2017), as torchvision has them."""

from __future__ import annotations

import onnx

from .folded import BRANCH, LINEAR, FoldedNetwork

_RESNET50 = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels in the middle of a block, blocks, and stride of the first."""
_DENSENET121 = (6, 12, 24, 16)
"""Layers of a block."""
_GROWTH = 32


def squeezenet(side: int = 224) -> onnx.ModelProto:
    """An image of side x side to 1000 classes."""
    net = FoldedNetwork("squeezenet")
    x = net.relu(net.conv(net.input("image", (1, 3, side, side)), 64, stride=2, padding=0))
    for squeezed, expanded, depth in ((16, 64, 2), (32, 128, 2), (48, 192, 2)):
        x = net.pool(x, 3, 2, ceil=1)
        for _ in range(depth):
            x = _fire(net, x, squeezed, expanded)
    for _ in range(2):
        x = _fire(net, x, 64, 256)
    x = net.add("GlobalAveragePool", net.relu(net.conv(x, 1000, 1)))
    return net.model({net.add("Flatten", x): (1, 1000)})


def _fire(net: FoldedNetwork, x: str, squeezed: int, expanded: int) -> str:
    x = net.relu(net.conv(x, squeezed, 1))
    return net.concat(net.relu(net.conv(x, expanded, 1)), net.relu(net.conv(x, expanded, 3)))


def resnet50(batch: int = 1) -> onnx.ModelProto:
    """Images of 224 x 224 to 1000 classes."""
    net = FoldedNetwork("resnet50")
    x = net.relu(net.conv(net.input("image", (batch, 3, 224, 224)), 64, 7, stride=2))
    x = net.pool(x, 3, 2, 1)
    for channels, blocks, stride in _RESNET50:
        for number in range(blocks):
            x = _bottleneck(net, x, channels, stride if number == 0 else 1)
    return net.classifier(net.add("Flatten", net.add("GlobalAveragePool", x)), 2048, batch=batch)


def bottlenecks(side: int, channels: int, blocks: int, batch: int = 1) -> onnx.ModelProto:
    """Residual blocks of one stage of ResNet-50, without the first of the stage: feature maps of side x side, with
    `channels` in the middle of a block."""
    net = FoldedNetwork("bottlenecks")
    shape = (batch, 4 * channels, side, side)
    x = net.input("features", shape)
    for _ in range(blocks):
        x = _bottleneck(net, x, channels, 1)
    return net.model({x: shape})


def _bottleneck(net: FoldedNetwork, source: str, channels: int, stride: int) -> str:
    x = net.relu(net.conv(source, channels, 1))
    x = net.relu(net.conv(x, channels, 3, stride=stride))
    x = net.conv(x, 4 * channels, 1, gain=BRANCH)
    if net.channels[source] != 4 * channels:
        source = net.conv(source, 4 * channels, 1, stride=stride, gain=LINEAR)
    return net.relu(net.add("Add", x, source))


def densenet121(batch: int = 1) -> onnx.ModelProto:
    """Images of 224 x 224 to 1000 classes. Normalisations behind a Concat cannot be folded, and stay."""
    net = FoldedNetwork("densenet121")
    x = net.relu(net.conv(net.input("image", (batch, 3, 224, 224)), 64, 7, stride=2))
    x = net.pool(x, 3, 2, 1)
    for number, layers in enumerate(_DENSENET121):
        if number:
            x = net.conv(net.relu(net.norm_apart(x)), net.channels[x] // 2, 1, bias=False)
            x = net.pool(x, 2, 2, kind="AveragePool")
        for _ in range(layers):
            x = net.concat(x, _grown(net, x))
    x = net.add("GlobalAveragePool", net.relu(net.norm_apart(x)))
    return net.classifier(net.add("Flatten", x), net.channels[x], batch=batch)


def _grown(net: FoldedNetwork, x: str) -> str:
    x = net.relu(net.conv(net.relu(net.norm_apart(x)), 4 * _GROWTH, 1))
    return net.conv(x, _GROWTH, bias=False)
