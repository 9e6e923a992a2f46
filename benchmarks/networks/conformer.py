"""Conformer (Gulati et al. 2020), the encoder: the decoder runs once for each token, so its sizes are not fixed.

Positions are added to the input as sinusoids; the paper's attention learns weights for relative ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx

from ..table5.transformers import Sizes
from .attention import Transformer
from .folded import LINEAR, FoldedNetwork

CONFORMER_S = Sizes(layers=16, width=144, inner=576, heads=4)
FRAMES = 1024
"""Of 10 ms each."""
_BANDS = 80
_KERNEL = 31
"""The paper says 32; the even window cannot be centred, and implementations take 31."""
_SAMPLED = 4


def conformer(batch: int = 1, sizes: Sizes = CONFORMER_S, frames: int = FRAMES) -> onnx.ModelProto:
    """Sentences of `frames` log-mel spectra of 80 bands, a multiple of 4, to vectors, one for 4 frames."""
    net, length = FoldedNetwork("conformer"), frames // _SAMPLED
    parts = Transformer(net, sizes, batch, length)
    x = _subsampled(parts, net.input("features", (batch, frames, _BANDS)))
    x = net.add("Add", x, net.constant(_sinusoids(length, sizes.width)[None]))
    for _ in range(sizes.layers):
        x = _block(parts, x)
    return net.model({x: (batch, length, sizes.width)})


def _subsampled(parts: Transformer, x: str) -> str:
    """Two convolutions over time and bands at stride 2, and a linear layer."""
    net, width = parts.net, parts.sizes.width
    x = net.add("Unsqueeze", x, net.integers(1))
    net.channels[x] = 1
    for _ in range(2):
        x = net.relu(net.conv(x, width, stride=2))
    joined = width * _BANDS // _SAMPLED
    x = net.add("Transpose", x, perm=[0, 2, 1, 3])
    return parts.dense(joined, width)(net.add("Reshape", x, net.integers(parts.batch, parts.length, joined)))


def _sinusoids(length: int, width: int) -> npt.NDArray[np.float64]:
    """(length, width): sines, and cosines beside them (Vaswani et al. 2017)."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width)


def _block(parts: Transformer, x: str) -> str:
    """Half of a feed-forward net, attention, convolution, the other half; each on a residual connection."""
    add, width = parts.net.add, parts.sizes.width
    x = add("Add", x, _half_forward(parts, x))
    x = add("Add", x, _attention(parts, x))
    x = add("Add", x, _convolution(parts, x))
    x = add("Add", x, _half_forward(parts, x))
    return parts.layer_norm(width)(x)


def _half_forward(parts: Transformer, x: str) -> str:
    net, width, inner = parts.net, parts.sizes.width, parts.sizes.inner
    x = net.swish(parts.dense(width, inner)(parts.layer_norm(width)(x)))
    return net.add("Mul", parts.dense(inner, width)(x), net.constant(0.5))


def _attention(parts: Transformer, x: str) -> str:
    width = parts.sizes.width
    x = parts.layer_norm(width)(x)
    query, key, value, output = (parts.dense(width, width) for _ in range(4))
    return output(parts.attend(query(x), key(x), value(x)))


def _convolution(parts: Transformer, x: str) -> str:
    """Pointwise with a gated linear unit, depthwise over time with batch normalisation and swish, pointwise."""
    width = parts.sizes.width
    net = replace(parts.net, rank=1)
    x = net.add("Transpose", parts.layer_norm(width)(x), perm=[0, 2, 1])
    net.channels[x] = width
    kept, gate = net.split("Split", 2, net.conv(x, 2 * width, 1), net.integers(width, width), axis=1)
    x = net.add("Mul", kept, net.add("Sigmoid", gate))
    net.channels[x] = width
    x = net.swish(net.conv(x, width, _KERNEL, group=width))
    return net.add("Transpose", net.conv(x, width, 1, gain=LINEAR), perm=[0, 2, 1])
