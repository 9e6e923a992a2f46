"""Networks of Table 5 that recognise actions in one clip: C3D (Tran et al. 2015) and S3D (Xie et al. 2018)."""

from __future__ import annotations

import onnx

from .network import Network


def c3d() -> onnx.ModelProto:
    """16 frames of 112 x 112, 101 classes."""
    net = Network("c3d", rank=3)
    x = net.input("clip", (1, 3, 16, 112, 112))
    for number, widths in enumerate(((64,), (128,), (256, 256), (512, 512), (512, 512))):
        for channels in widths:
            x = net.relu(net.conv(x, channels))
        first, last = number == 0, number == 4
        window = (1, 2, 2) if first else (2, 2, 2)
        x = net.pool(x, window, window, (0, 1, 1) if last else 0)
    x = net.add("Flatten", x)
    x = net.relu(net.linear(x, 512 * 16, 4096))
    x = net.relu(net.linear(x, 4096, 4096))
    return net.model({net.add("Softmax", net.linear(x, 4096, 101), axis=-1): (1, 101)})


_INCEPTION = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)
"""Channels of the inception blocks, by stage: the branch of one convolution, two of two, and that of the pool."""


def s3d() -> onnx.ModelProto:
    """64 frames of 224 x 224, 400 classes, batch normalisation kept."""
    net = Network("s3d", rank=3)
    x = _separable(net, net.input("clip", (1, 3, 64, 224, 224)), 64, 7, 2)
    x = net.pool(x, (1, 3, 3), (1, 2, 2), (0, 1, 1))
    x = _separable(net, _unit(net, x, 64, 1), 192, 3)
    x = net.pool(x, (1, 3, 3), (1, 2, 2), (0, 1, 1))
    for number, stage in enumerate(_INCEPTION):
        for widths in stage:
            x = _inception(net, x, widths)
        if number < 2:
            x = net.pool(x, 3 - number, 2, 1 - number)
    x = net.pool(x, (2, 7, 7), 1, 0, "AveragePool")
    x = net.add("ReduceMean", net.conv(x, 400, 1), axes=[2, 3, 4], keepdims=0)
    return net.model({x: (1, 400)})


def _unit(net: Network, x: str, channels: int, kernel: int | tuple[int, ...], stride: int | tuple[int, ...] = 1) -> str:
    return net.relu(net.norm(net.conv(x, channels, kernel, stride=stride, bias=False)))


def _separable(net: Network, x: str, channels: int, kernel: int, stride: int = 1) -> str:
    """A convolution over space, and one over time."""
    x = _unit(net, x, channels, (1, kernel, kernel), (1, stride, stride))
    return _unit(net, x, channels, (kernel, 1, 1), (stride, 1, 1))


def _inception(net: Network, x: str, widths: tuple[int, ...]) -> str:
    single, first, wide, second, narrow, pooled = widths
    return net.concat(
        _unit(net, x, single, 1),
        _separable(net, _unit(net, x, first, 1), wide, 3),
        _separable(net, _unit(net, x, second, 1), narrow, 3),
        _unit(net, net.pool(x, 3, 1, 1), pooled, 1),
    )
