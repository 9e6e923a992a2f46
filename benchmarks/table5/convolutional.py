"""Image networks of Table 5, for a batch of one image.

VGG-16 (Simonyan and Zisserman 2015), EfficientNet-B0 (Tan and Le 2019), MobileNetV1-SSD (Howard et al. 2017; Liu et al.
2016), U-Net (Ronneberger et al. 2015) and YOLO-V4 (Bochkovskiy et al. 2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .network import Network


def vgg16() -> onnx.ModelProto:
    """224 x 224. Biases are added by nodes of their own, without which there is no way to the 51 layers printed."""
    net = Network("vgg16")
    x = net.input("image", (1, 3, 224, 224))
    for channels, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            x = net.conv(x, channels, bias=False)
            x = net.relu(net.add("Add", x, net.weight(channels, 1, 1)))
        x = net.pool(x, 2, 2)
    x = net.add("Flatten", x)
    for inputs, outputs in ((512 * 49, 4096), (4096, 4096), (4096, 1000)):
        x = net.add("Add", net.add("MatMul", x, net.weight(inputs, outputs)), net.weight(outputs))
        x = net.relu(x) if outputs == 4096 else x
    return net.model({net.add("Softmax", x, axis=-1): (1, 1000)})


@dataclass(frozen=True)
class _Stage:
    """Blocks of EfficientNet: how many, their expansion, output channels, kernel and first stride."""

    blocks: int
    expansion: int
    channels: int
    kernel: int
    stride: int


_EFFICIENTNET_B0 = (
    _Stage(1, 1, 16, 3, 1),
    _Stage(2, 6, 24, 3, 2),
    _Stage(2, 6, 40, 5, 2),
    _Stage(3, 6, 80, 3, 2),
    _Stage(3, 6, 112, 5, 1),
    _Stage(4, 6, 192, 5, 2),
    _Stage(1, 6, 320, 3, 1),
)


def efficientnet_b0(kind: type[Network] = Network) -> onnx.ModelProto:
    """224 x 224; the kind of network says what becomes of batch normalisation, which is kept by default."""
    net = kind("efficientnet_b0")
    x = net.input("image", (1, 3, 224, 224))
    x = net.swish(net.norm(net.conv(x, 32, stride=2, bias=False)))
    for stage in _EFFICIENTNET_B0:
        for number in range(stage.blocks):
            x = _mobile_block(net, x, stage, stage.stride if number == 0 else 1)
    x = net.swish(net.norm(net.conv(x, 1280, 1, bias=False)))
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model({net.linear(x, 1280, 1000): (1, 1000)})


def _mobile_block(net: Network, source: str, stage: _Stage, stride: int) -> str:
    inputs = net.channels[source]
    wide, x = inputs * stage.expansion, source
    if stage.expansion > 1:
        x = net.swish(net.norm(net.conv(x, wide, 1, bias=False)))
    x = net.swish(net.norm(net.conv(x, wide, stage.kernel, stride=stride, group=wide, bias=False)))
    squeezed = net.swish(net.conv(net.add("GlobalAveragePool", x), max(1, inputs // 4), 1))
    x = net.add("Mul", x, net.add("Sigmoid", net.conv(squeezed, wide, 1)))
    x = net.norm(net.conv(x, stage.channels, 1, bias=False))
    return net.add("Add", x, source) if stride == 1 and inputs == stage.channels else x


_ANCHORS = 19 * 19 * 3 + (10 * 10 + 5 * 5 + 3 * 3 + 2 * 2 + 1) * 6


def mobilenet_ssd() -> onnx.ModelProto:
    """300 x 300, 21 classes; gives scores and decoded boxes, without non-maximum suppression."""
    net = Network("mobilenet_ssd")
    x = net.input("image", (1, 3, 300, 300))
    x = _relu6(net, net.norm(net.conv(x, 32, stride=2, bias=False)))
    maps = []
    plan = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
    for channels, stride in plan:
        x = _relu6(net, net.norm(net.conv(x, net.channels[x], stride=stride, group=net.channels[x], bias=False)))
        x = _relu6(net, net.norm(net.conv(x, channels, 1, bias=False)))
        maps.append(x)
    features = [maps[10], maps[12]]
    for channels in (512, 256, 256, 128):
        x = _relu6(net, net.norm(net.conv(x, channels // 2, 1, bias=False)))
        x = _relu6(net, net.norm(net.conv(x, channels, 3, stride=2, bias=False)))
        features.append(x)
    scores, boxes = _detections(net, features, classes=21)
    return net.model({scores: (1, _ANCHORS, 21), boxes: (1, _ANCHORS, 4)})


def _relu6(net: Network, x: str) -> str:
    return net.add("Clip", x, net.constant(0.0), net.constant(6.0))


def _detections(net: Network, features: list[str], classes: int) -> tuple[str, str]:
    """Scores by softmax, and boxes around the anchors as corners."""
    scores: list[str] = []
    boxes: list[str] = []
    for number, x in enumerate(features):
        anchors = 3 if number == 0 else 6
        for found, width in ((scores, classes), (boxes, 4)):
            y = net.add("Transpose", net.conv(x, anchors * width, 3 if number < 2 else 1), perm=[0, 2, 3, 1])
            found.append(net.view(y, net.dimension(y, 0), -1, width))
    score = net.add("Softmax", net.concat(*scores, axis=1), axis=-1)
    moved, scaled = net.split("Split", 2, net.concat(*boxes, axis=1), net.integers(2, 2), axis=2)
    middle, size = net.weight(1, _ANCHORS, 2, around=0.5), net.weight(1, _ANCHORS, 2, around=0.2)
    centre = net.add("Add", net.add("Mul", net.add("Mul", moved, net.constant(0.1)), size), middle)
    extent = net.add("Mul", net.add("Exp", net.add("Mul", scaled, net.constant(0.2))), size)
    half = net.add("Div", extent, net.constant(2.0))
    return score, net.concat(net.add("Sub", centre, half), net.add("Add", centre, half), axis=2)


def unet() -> onnx.ModelProto:
    """256 x 256, batch normalisation kept, upsampled by transposed convolution.

    An upsampled map is padded to the size of the one it is concatenated with; the pads are computed as the PyTorch
    exporter writes them.
    """
    net = Network("unet")
    x = _twice(net, net.input("image", (1, 3, 256, 256)), 64)
    skipped = []
    for channels in (128, 256, 512, 1024):
        skipped.append(x)
        x = _twice(net, net.pool(x, 2, 2), channels)
    for channels, other in zip((512, 256, 128, 64), reversed(skipped), strict=True):
        weight = net.weight(2 * channels, channels, 2, 2)
        x = net.add("ConvTranspose", x, weight, net.weight(channels), kernel_shape=(2, 2), strides=(2, 2))
        net.channels[x] = channels
        x = _twice(net, net.concat(other, _pad_to(net, x, other)), channels)
    return net.model({net.conv(x, 2, 1): (1, 2, 256, 256)})


def _twice(net: Network, x: str, channels: int) -> str:
    for _ in range(2):
        x = net.relu(net.norm(net.conv(x, channels, bias=False)))
    return x


def _pad_to(net: Network, x: str, other: str) -> str:
    """F.pad with pads that depend on shapes."""
    pads: list[str | int] = []
    for axis in (3, 2):
        missing = net.add("Sub", net.dimension(other, axis), net.dimension(x, axis))
        before = net.add("Div", missing, net.constant(2, np.int64))
        after = net.add("Sub", missing, net.add("Div", missing, net.constant(2, np.int64)))
        pads += [before, after]
    every = net.add("Concat", net.vector(*pads), net.integers(0, 0, 0, 0), axis=0)
    pairs = net.add("Reshape", every, net.integers(-1, 2))
    backwards = [net.integers(-1), net.integers(-(2**63) + 1), net.integers(0), net.integers(-1)]
    turned = net.add("Transpose", net.add("Slice", pairs, *backwards), perm=[1, 0])
    ready = net.add("Cast", net.add("Reshape", turned, net.integers(-1)), to=onnx.TensorProto.INT64)
    return net.add("Pad", x, ready, net.constant(0.0), mode="constant")


def yolo_v4(size: int = 416) -> onnx.ModelProto:
    """80 classes; gives the three feature maps before decoding. Mish is written as Softplus, Tanh, Mul. The sides of
    the image are a multiple of 32."""
    net = Network("yolo_v4")
    x = _mish(net, net.input("image", (1, 3, size, size)), 32)
    maps = []
    for channels, depth in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        x = _cross_stage(net, x, channels, depth)
        maps.append(x)
    deep = _spatial_pyramid(net, _alternating(net, x, 512, 3))
    deep = _alternating(net, deep, 512, 3)
    middle = _alternating(net, _joined(net, maps[3], deep, 256), 256, 5)
    fine = _alternating(net, _joined(net, maps[2], middle, 128), 128, 5)
    middle = _alternating(net, net.concat(_leaky(net, fine, 256, 3, 2), middle), 256, 5)
    deep = _alternating(net, net.concat(_leaky(net, middle, 512, 3, 2), deep), 512, 5)
    heads = [net.conv(_leaky(net, y, 2 * net.channels[y], 3), 255, 1) for y in (fine, middle, deep)]
    sides = (size // 8, size // 16, size // 32)
    return net.model({head: (1, 255, side, side) for head, side in zip(heads, sides, strict=True)})


def _mish(net: Network, x: str, channels: int, kernel: int = 3, stride: int = 1) -> str:
    x = net.norm(net.conv(x, channels, kernel, stride=stride, bias=False))
    return net.add("Mul", x, net.add("Tanh", net.add("Softplus", x)))


def _leaky(net: Network, x: str, channels: int, kernel: int = 1, stride: int = 1) -> str:
    return net.add("LeakyRelu", net.norm(net.conv(x, channels, kernel, stride=stride, bias=False)), alpha=0.1)


def _alternating(net: Network, x: str, channels: int, depth: int) -> str:
    """Convolutions of 1 x 1 and, twice as wide, of 3 x 3 in turn."""
    for number in range(depth):
        x = _leaky(net, x, channels * (1 + number % 2), 1 + 2 * (number % 2))
    return x


def _cross_stage(net: Network, x: str, channels: int, depth: int) -> str:
    """A stage of CSPDarknet53: half of the channels go past the residual blocks (in the first stage, a copy)."""
    x = _mish(net, x, channels, 3, 2)
    part = channels if depth == 1 else channels // 2
    past, y = _mish(net, x, part, 1), _mish(net, x, part, 1)
    for _ in range(depth):
        y = net.add("Add", y, _mish(net, _mish(net, y, channels // 2, 1), part, 3))
    return _mish(net, net.concat(_mish(net, y, part, 1), past), channels, 1)


def _spatial_pyramid(net: Network, x: str) -> str:
    return net.concat(*(net.pool(x, side, 1, side // 2) for side in (13, 9, 5)), x)


def _joined(net: Network, fine: str, coarse: str, channels: int) -> str:
    """A map beside the next coarser one, upsampled."""
    scales = net.constant([1, 1, 2, 2])
    up = net.add("Resize", _leaky(net, coarse, channels), "", scales, mode="nearest",
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    return net.concat(_leaky(net, fine, channels), up)
