"""BERT (Devlin et al. 2019; -tiny: Turc et al. 2019), ViT-B/16 (Dosovitskiy et al. 2021) and MobileViT-XXS (Mehta and
Rastegari 2022), as transformers has them.

LayerNormalization is one operator, and the sizes of views are fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from ..table5.transformers import BERT_BASE, Dense, Language, Sizes
from .folded import LINEAR, FoldedNetwork
from .mobile import inverted_residual

LENGTH = 128
BERT_TINY = Sizes(layers=2, width=128, inner=512, heads=2)
BERT_LARGE = Sizes(layers=24, width=1024, inner=4096, heads=16)
VIT_BASE = BERT_BASE
"""The widths and depth that ViT-B took over."""
_PATCH = 16
_EMBEDDING = 0.02**2
"""Variance that BERT's embeddings begin with."""
_HEADS = 4
_MASKED = -3.4e38


@dataclass
class Transformer(Language):
    """Layers on `batch` sequences of `length` vectors."""

    batch: int = 1
    length: int = LENGTH

    def dense(self, inputs: int, outputs: int) -> Dense:
        """x w + b, which keeps the variance."""
        weight, bias = self.net.weight(inputs, outputs, variance=1 / inputs), self.net.weight(outputs)
        return lambda x: self.net.add("Add", bias, self.net.add("MatMul", x, weight))

    def layer_norm(self, width: int) -> Dense:
        """LayerNorm in one node."""
        scale, shift = self.net.weight(width, around=1.0), self.net.weight(width)
        return lambda x: self.net.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)

    def split_heads(self, x: str, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        """(batch, length, width) to heads."""
        heads = self.sizes.heads
        shape = self.net.integers(self.batch, self.length, heads, self.sizes.width // heads)
        return self.net.add("Transpose", self.net.add("Reshape", x, shape), perm=perm)

    def join_heads(self, x: str) -> str:
        """And back."""
        shape = self.net.integers(self.batch, self.length, self.sizes.width)
        return self.net.add("Reshape", self.net.add("Transpose", x, perm=[0, 2, 1, 3]), shape)

    def attend(self, query: str, key: str, value: str, mask: str = "") -> str:
        """Attention; a mask is added to the scores."""
        add = self.net.add
        scores = add("MatMul", self.split_heads(query), self.split_heads(key, (0, 2, 3, 1)))
        scores = add("Div", scores, self.net.constant((self.sizes.width / self.sizes.heads) ** 0.5))
        scores = add("Add", scores, mask) if mask else scores
        return self.join_heads(add("MatMul", add("Softmax", scores, axis=-1), self.split_heads(value)))

    def normalised_before(self, x: str, activation: Dense | None = None) -> str:
        """A layer that normalises before each half, with swish unless another activation is given."""
        width, inner, net = self.sizes.width, self.sizes.inner, self.net
        y = self.layer_norm(width)(x)
        query, key, value, output = (self.dense(width, width) for _ in range(4))
        x = net.add("Add", output(self.attend(query(y), key(y), value(y))), x)
        y = (activation or net.swish)(self.dense(width, inner)(self.layer_norm(width)(x)))
        return net.add("Add", self.dense(inner, width)(y), x)


def bert_tiny() -> onnx.ModelProto:
    """One sequence of 128 tokens to what becomes of each, and the pooled first: all that is computed is read."""
    parts = Transformer(FoldedNetwork("bert_tiny"), BERT_TINY)
    x, width = _encoded(parts), BERT_TINY.width
    return parts.net.model({x: (1, LENGTH, width), parts.pooled(x): (1, width)})


def bert(sizes: Sizes, length: int, batch: int = 1) -> onnx.ModelProto:
    """Sequences of tokens to two scores of each, of an answer that starts or ends there (SQuAD, as in MLPerf)."""
    parts = Transformer(FoldedNetwork("bert"), sizes, batch, length)
    return parts.net.model({parts.dense(sizes.width, 2)(_encoded(parts)): (batch, length, 2)})


def _encoded(parts: Transformer) -> str:
    """What becomes of each token."""
    net, sizes, shape = parts.net, parts.sizes, (parts.batch, parts.length)
    ids, given, segments = (
        net.input(name, shape, TensorProto.INT64) for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    x = net.add("Add", _embedded(parts, ids, sizes.vocabulary), _embedded(parts, segments, 2))
    x = net.add("Add", x, _embedded(parts, net.constant([range(parts.length)], int), 512))
    x = parts.layer_norm(sizes.width)(x)
    kept = net.add("Cast", net.add("Unsqueeze", given, net.integers(1, 2)), to=TensorProto.FLOAT)
    mask = net.add("Mul", net.add("Sub", net.constant(1.0), kept), net.constant(_MASKED))
    for _ in range(sizes.layers):
        x = parts.layer(parts.gelu)(x, mask)
    return x


def _embedded(parts: Transformer, numbers: str, rows: int) -> str:
    table = parts.net.weight(rows, parts.sizes.width, variance=_EMBEDDING)
    return parts.net.add("Gather", table, numbers, axis=0)


def vit_base(batch: int = 1) -> onnx.ModelProto:
    """Images of 224 x 224, in patches of 16 x 16, to 1000 classes."""
    net, sizes = FoldedNetwork("vit_base"), VIT_BASE
    patches, width = (224 // _PATCH) ** 2, sizes.width
    x = net.conv(net.input("image", (batch, 3, 224, 224)), width, _PATCH, stride=_PATCH, padding=0, gain=LINEAR)
    x = net.add("Transpose", net.add("Reshape", x, net.integers(batch, width, patches)), perm=[0, 2, 1])
    # A parameter is stored once for each sample, as exporters that know the batch do.
    first = net.constant(np.repeat(net.generator.standard_normal((1, 1, width)), batch, axis=0))
    places = net.constant(net.generator.standard_normal((1, patches + 1, width)))
    x = net.add("Add", net.add("Concat", first, x, axis=1), places)
    parts = Transformer(net, sizes, batch, patches + 1)
    for _ in range(sizes.layers):
        x = parts.normalised_before(x, parts.gelu)
    x = net.add("Gather", parts.layer_norm(width)(x), net.constant(0, np.int64), axis=1)
    return net.classifier(x, width, batch=batch)


def mobilevit_xxs(side: int = 224) -> onnx.ModelProto:
    """An image of side x side, a multiple of 32, to 1000 classes."""
    net = FoldedNetwork("mobilevit_xxs")
    x = net.swish(net.conv(net.input("image", (1, 3, side, side)), 16, stride=2))
    for channels, stride in ((16, 1), (24, 2), (24, 1), (24, 1)):
        x = _mobile(net, x, channels, stride)
    for number, (channels, width, layers) in enumerate(((48, 64, 2), (64, 80, 4), (80, 96, 3))):
        x = _mobile(net, x, channels, 2)
        x = _global_block(net, x, side // (8 << number), Sizes(layers, width, 2 * width, _HEADS))
    x = net.swish(net.conv(x, 320, 1))
    return net.classifier(net.add("ReduceMean", x, axes=[-2, -1], keepdims=0), 320)


def _mobile(net: FoldedNetwork, x: str, channels: int, stride: int) -> str:
    return inverted_residual(net, x, 2 * net.channels[x], channels, 3, stride, net.swish)


def _global_block(net: FoldedNetwork, source: str, side: int, sizes: Sizes) -> str:
    """Transformer layers across the patches, for each of the four places in a patch; then joined with the source."""
    channels, even = net.channels[source], side + side % 2
    x = net.conv(net.swish(net.conv(source, channels)), sizes.width, 1, bias=False, gain=LINEAR)
    x = _resized(net, x, side, even)
    parts = Transformer(net, sizes, 4, (even // 2) ** 2)
    x = _unfolded(net, x, sizes.width, even)
    for _ in range(sizes.layers):
        x = parts.normalised_before(x)
    x = _resized(net, _folded(net, parts.layer_norm(sizes.width)(x), sizes.width, even), even, side)
    x = net.swish(net.conv(x, channels, 1))
    return net.swish(net.conv(net.concat(source, x), channels))


def _resized(net: FoldedNetwork, x: str, side: int, wanted: int) -> str:
    """Patches are of 2 x 2, so height and width have to be even."""
    if side == wanted:
        return x
    sizes = net.integers(1, net.channels[x], wanted, wanted)
    return net.add(
        "Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="pytorch_half_pixel",
        cubic_coeff_a=-0.75, nearest_mode="floor",
    )  # fmt: skip


def _unfolded(net: FoldedNetwork, x: str, width: int, side: int) -> str:
    """(1, width, side, side) to (4, patches, width)."""
    half = side // 2
    x = net.add("Transpose", net.add("Reshape", x, net.integers(width * half, 2, half, 2)), perm=[0, 2, 1, 3])
    x = net.add("Transpose", net.add("Reshape", x, net.integers(1, width, half**2, 4)), perm=[0, 3, 2, 1])
    return net.add("Reshape", x, net.integers(4, half**2, width))


def _folded(net: FoldedNetwork, x: str, width: int, side: int) -> str:
    """And back."""
    half = side // 2
    x = net.add("Transpose", net.add("Reshape", x, net.integers(1, 4, half**2, width)), perm=[0, 3, 2, 1])
    x = net.add("Transpose", net.add("Reshape", x, net.integers(width * half, half, 2, 2)), perm=[0, 2, 1, 3])
    found = net.add("Reshape", x, net.integers(1, width, side, side))
    net.channels[found] = width
    return found
