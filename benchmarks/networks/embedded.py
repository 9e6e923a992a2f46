"""Networks for microcontrollers: the four forms of MLPerf Tiny (Banbury et al. 2021), ResNet-18 (He et al. 2016), a
detector in the manner of YOLOv8 (Ultralytics 2023), and encoders of BERT-tiny and of Whisper (Radford et al. 2023).

Transformers get vectors: the table that words are looked up in is no work for an NPU.
"""

from __future__ import annotations

import onnx

from ..table5.transformers import Sizes
from .attention import BERT_TINY, LENGTH, Transformer
from .folded import BRANCH, LINEAR, FoldedNetwork

_MELS, _FRAMES = 80, 200
"""Bands of a spectrum, and spectra of 10 ms each."""
_AUDIO = Sizes(layers=2, width=128, inner=512, heads=4)


def resnet18(side: int = 224) -> onnx.ModelProto:
    """An image of side x side to 1000 classes."""
    net = FoldedNetwork("resnet18")
    x = net.relu(net.conv(net.input("image", (1, 3, side, side)), 64, 7, stride=2))
    x = net.pool(x, 3, 2, 1)
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for number in range(2):
            x = _residual(net, x, channels, stride if number == 0 else 1)
    return net.classifier(net.add("Flatten", net.add("GlobalAveragePool", x)), 512)


def resnet8() -> onnx.ModelProto:
    """An image of 32 x 32 to 10 classes (MLPerf Tiny, image classification)."""
    net = FoldedNetwork("resnet8")
    x = net.relu(net.conv(net.input("image", (1, 3, 32, 32)), 16))
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        x = _residual(net, x, channels, stride)
    return net.classifier(net.add("Flatten", net.add("GlobalAveragePool", x)), 64, 10)


def _residual(net: FoldedNetwork, source: str, channels: int, stride: int) -> str:
    x = net.conv(net.relu(net.conv(source, channels, 3, stride=stride)), channels, 3, gain=BRANCH)
    if stride != 1 or net.channels[source] != channels:
        source = net.conv(source, channels, 1, stride=stride, gain=LINEAR)
    return net.relu(net.add("Add", x, source))


def ds_cnn() -> onnx.ModelProto:
    """49 spectra of 10 coefficients to 12 words (MLPerf Tiny, keyword spotting)."""
    net = FoldedNetwork("ds_cnn")
    x = net.relu(net.conv(net.input("spectra", (1, 1, 49, 10)), 64, (10, 4), stride=(2, 2), padding=(5, 1)))
    for _ in range(4):
        x = net.relu(net.conv(net.relu(net.depthwise(x, 3, 1)), 64, 1))
    return net.classifier(net.add("Flatten", net.add("GlobalAveragePool", x)), 64, 12)


def mobilenet_v1_quarter(side: int = 96) -> onnx.ModelProto:
    """An image of side x side to two classes, width 0.25 (MLPerf Tiny, visual wake words)."""
    net = FoldedNetwork("mobilenet_v1_025")
    x = net.relu6(net.conv(net.input("image", (1, 3, side, side)), 8, 3, stride=2))
    begin, end = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)), ((256, 2), (256, 1))
    for channels, stride in (*begin, *((128, 1),) * 5, *end):
        x = net.relu6(net.conv(net.relu6(net.depthwise(x, 3, stride)), channels, 1))
    return net.classifier(net.add("Flatten", net.add("GlobalAveragePool", x)), 256, 2)


def autoencoder() -> onnx.ModelProto:
    """640 spectral values through a bottleneck of 8 and back (MLPerf Tiny, anomaly detection)."""
    net = FoldedNetwork("autoencoder")
    x, inputs = net.input("spectra", (1, 640)), 640
    for outputs in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        weight, bias = net.weight(outputs, inputs, variance=2 / inputs), net.weight(outputs)
        x, inputs = net.relu(net.add("Gemm", x, weight, bias, transB=1)), outputs
    return net.classifier(x, 128, 640)


def detector(side: int = 256) -> onnx.ModelProto:
    """An image of side x side to maps of 84 numbers at three scales: bottlenecks that are joined, and maps that are
    enlarged and joined with earlier ones."""
    net = FoldedNetwork("detector")
    x = net.relu(net.conv(net.input("image", (1, 3, side, side)), 16, stride=2))
    scales = []
    for channels, depth in ((32, 1), (64, 2), (128, 2), (256, 1)):
        x = _joined(net, net.relu(net.conv(x, channels, stride=2)), channels, depth)
        scales.append(x)
    x = _pooled(net, x)
    _, small, middle, _ = scales
    middle = _joined(net, net.concat(_enlarged(net, x), middle), 128, 1)
    small = _joined(net, net.concat(_enlarged(net, middle), small), 64, 1)
    middle = _joined(net, net.concat(net.relu(net.conv(small, 64, stride=2)), middle), 128, 1)
    large = _joined(net, net.concat(net.relu(net.conv(middle, 128, stride=2)), x), 256, 1)
    found = {_head(net, each): side // by for each, by in ((small, 8), (middle, 16), (large, 32))}
    return net.model({name: (1, 84, size, size) for name, size in found.items()})


def _joined(net: FoldedNetwork, x: str, channels: int, depth: int) -> str:
    half = channels // 2
    parts = [net.relu(net.conv(x, half, 1)), net.relu(net.conv(x, half, 1))]
    for _ in range(depth):
        inner = net.relu(net.conv(net.relu(net.conv(parts[-1], half)), half))
        parts.append(net.add("Add", parts[-1], inner))
    return net.relu(net.conv(net.concat(*parts), channels, 1))


def _pooled(net: FoldedNetwork, x: str) -> str:
    channels = net.channels[x]
    parts = [net.relu(net.conv(x, channels // 2, 1))]
    for _ in range(3):
        parts.append(net.pool(parts[-1], 5, 1, 2))
    return net.relu(net.conv(net.concat(*parts), channels, 1))


def _enlarged(net: FoldedNetwork, x: str) -> str:
    return net.add(
        "Resize", x, "", net.constant([1.0, 1.0, 2.0, 2.0]), mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip


def _head(net: FoldedNetwork, x: str) -> str:
    boxes = net.conv(net.relu(net.conv(x, 64)), 64, 1, gain=LINEAR)
    classes = net.add("Sigmoid", net.conv(net.relu(net.conv(x, 64)), 20, 1, gain=LINEAR))
    return net.concat(boxes, classes)


def bert_tiny_encoder() -> onnx.ModelProto:
    """128 vectors of words through two layers."""
    net = FoldedNetwork("bert_tiny_encoder")
    parts = Transformer(net, BERT_TINY)
    x = net.input("embedded", (1, LENGTH, BERT_TINY.width))
    for _ in range(BERT_TINY.layers):
        x = parts.normalised_before(x, parts.gelu)
    return net.model({x: (1, LENGTH, BERT_TINY.width)})


def audio_encoder() -> onnx.ModelProto:
    """Spectra of two seconds through two convolutions over time and two layers."""
    net = FoldedNetwork("audio_encoder", rank=1)
    parts = Transformer(net, _AUDIO, length=_FRAMES // 2)
    x = parts.gelu(net.conv(net.input("spectra", (1, _MELS, _FRAMES)), _AUDIO.width))
    x = parts.gelu(net.conv(x, _AUDIO.width, stride=2))
    x = net.add("Transpose", x, perm=[0, 2, 1])
    for _ in range(_AUDIO.layers):
        x = parts.normalised_before(x, parts.gelu)
    return net.model({parts.layer_norm(_AUDIO.width)(x): (1, _FRAMES // 2, _AUDIO.width)})
