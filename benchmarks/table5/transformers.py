"""Language models of Table 5, for one sequence of 384 tokens, as PyTorch's exporter wrote them in 2021.

LayerNorm and GELU are spelled out, and the sizes of every view are computed at run time (Shape, Gather, Unsqueeze,
Concat, Reshape): only such graphs have as many layers as the table prints. Its lengths are not printed, but with 384
tokens the models take the FLOPs of Table 6.

BERT (Devlin et al. 2019), DistilBERT (Sanh et al. 2019), TinyBERT (Jiao et al. 2020; the one of 4 layers), ALBERT (Lan
et al. 2020), MobileBERT (Sun et al. 2020) and GPT-2 (Radford et al. 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto

from .network import Network

LENGTH = 384
_LOWEST = -10000.0


@dataclass(frozen=True)
class Sizes:
    """Of a transformer: layers, width of its values, of its feed-forward nets, and heads."""

    layers: int
    width: int
    inner: int
    heads: int
    vocabulary: int = 30522


BERT_BASE = Sizes(12, 768, 3072, 12)
DISTILBERT = Sizes(6, 768, 3072, 12)
TINYBERT = Sizes(4, 312, 1200, 12)
ALBERT = Sizes(12, 768, 3072, 12, 30000)
MOBILEBERT = Sizes(24, 512, 512, 4)
GPT2 = Sizes(12, 768, 3072, 12, 50257)

Dense = Callable[[str], str]


@dataclass
class Language:
    """The parts that the models share; `sizes.width` is that of the values in the layers."""

    net: Network
    sizes: Sizes

    def dense(self, inputs: int, outputs: int) -> Dense:
        """A layer x w + b whose weights are made now and may be used again."""
        weight, bias = self.net.weight(inputs, outputs), self.net.weight(outputs)
        return lambda x: self.net.add("Add", self.net.add("MatMul", x, weight), bias)

    def scaled(self, width: int) -> Dense:
        """x w + b, element by element: MobileBERT's NoNorm, and the end of LayerNorm."""
        weight, bias = self.net.weight(width, around=1.0), self.net.weight(width)
        return lambda x: self.net.add("Add", self.net.add("Mul", x, weight), bias)

    def layer_norm(self, width: int) -> Dense:
        """LayerNorm in nine nodes."""
        add, number = self.net.add, self.net.constant
        end = self.scaled(width)

        def apply(x: str) -> str:
            centred = add("Sub", x, add("ReduceMean", x, axes=[-1], keepdims=1))
            variance = add("ReduceMean", add("Pow", centred, number(2.0)), axes=[-1], keepdims=1)
            return end(add("Div", centred, add("Sqrt", add("Add", variance, number(1e-12)))))

        return apply

    def gelu(self, x: str) -> str:
        """GELU by erf."""
        add, number = self.net.add, self.net.constant
        error = add("Add", add("Erf", add("Div", x, number(2.0**0.5))), number(1.0))
        return add("Mul", add("Mul", x, error), number(0.5))

    def gelu_new(self, x: str) -> str:
        """GELU by tanh."""
        add, number = self.net.add, self.net.constant
        cubic = add("Mul", add("Pow", x, number(3.0)), number(0.044715))
        inner = add("Tanh", add("Mul", add("Add", x, cubic), number((2 / np.pi) ** 0.5)))
        return add("Mul", add("Mul", x, number(0.5)), add("Add", inner, number(1.0)))

    def split_heads(self, x: str, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        """(batch, length, width) to heads."""
        net, sizes = self.net, self.sizes
        view = net.view(x, net.dimension(x, 0), net.dimension(x, 1), sizes.heads, sizes.width // sizes.heads)
        return net.add("Transpose", view, perm=perm)

    def join_heads(self, x: str) -> str:
        """And back."""
        x = self.net.add("Transpose", x, perm=[0, 2, 1, 3])
        return self.net.view(x, self.net.dimension(x, 0), self.net.dimension(x, 1), self.sizes.width)

    def attend(self, query: str, key: str, value: str, mask: str) -> str:
        """Attention with a mask that is added."""
        add = self.net.add
        scale = self.net.constant((self.sizes.width / self.sizes.heads) ** 0.5)
        scores = add("Div", add("MatMul", self.split_heads(query), self.split_heads(key, (0, 2, 3, 1))), scale)
        mixed = add("MatMul", add("Softmax", add("Add", scores, mask), axis=-1), self.split_heads(value))
        return self.join_heads(mixed)

    def mask(self, name: str = "attention_mask") -> str:
        """From 1 and 0 to 0 and a large negative number, with axes for heads and queries."""
        net = self.net
        given = net.input(name, (1, LENGTH), TensorProto.INT64)
        wide = net.add("Unsqueeze", net.add("Unsqueeze", given, net.integers(1)), net.integers(2))
        kept = net.add("Cast", wide, to=TensorProto.FLOAT)
        return net.add("Mul", net.add("Sub", net.constant(1.0), kept), net.constant(_LOWEST))

    def tokens(self, width: int, types: bool = True) -> str:
        """Embeddings of tokens, their positions and, with `types`, their segments, added up."""
        net = self.net
        ids = net.input("input_ids", (1, LENGTH), TensorProto.INT64)
        x = net.add("Gather", net.weight(self.sizes.vocabulary, width), ids, axis=0)
        if types:
            segments = net.input("token_type_ids", (1, LENGTH), TensorProto.INT64)
            x = net.add("Add", x, net.add("Gather", net.weight(2, width), segments, axis=0))
        return net.add("Add", x, net.add("Gather", net.weight(512, width), self.positions(ids), axis=0))

    def positions(self, ids: str) -> str:
        """0, 1, 2, ... as many as there are tokens: a slice of a stored list."""
        net = self.net
        stored = net.constant([range(1024)], np.int64)
        end = net.add("Unsqueeze", net.dimension(ids, 1), net.integers(0))
        return net.add("Slice", stored, net.integers(0), end, net.integers(1), net.integers(1))

    def layer(self, activation: Dense) -> Callable[[str, str], str]:
        """An encoder layer, normalised after each half; its weights are made now and may be used again."""
        width, inner = self.sizes.width, self.sizes.inner
        query, key, value, output = (self.dense(width, width) for _ in range(4))
        up, down = self.dense(width, inner), self.dense(inner, width)
        first, second = self.layer_norm(width), self.layer_norm(width)

        def apply(x: str, mask: str) -> str:
            mixed = output(self.attend(query(x), key(x), value(x), mask))
            x = first(self.net.add("Add", mixed, x))
            return second(self.net.add("Add", down(activation(up(x))), x))

        return apply

    def pooled(self, x: str) -> str:
        """The first token through a layer with tanh."""
        first = self.net.add("Gather", x, self.net.constant(0, np.int64), axis=1)
        return self.net.add("Tanh", self.dense(self.sizes.width, self.sizes.width)(first))


def bert(name: str, sizes: Sizes, types: bool = True) -> onnx.ModelProto:
    """An encoder with post-normalisation: BERT, TinyBERT, and without segments and pooling DistilBERT."""
    parts = Language(Network(name), sizes)
    mask = parts.mask()
    x = parts.layer_norm(sizes.width)(parts.tokens(sizes.width, types))
    for _ in range(sizes.layers):
        x = parts.layer(parts.gelu)(x, mask)
    results = {x: (1, LENGTH, sizes.width)}
    return parts.net.model({**results, parts.pooled(x): (1, sizes.width)} if types else results)


def albert() -> onnx.ModelProto:
    """The weights of one layer used twelve times; embeddings of width 128."""
    parts = Language(Network("albert"), ALBERT)
    mask = parts.mask()
    x = parts.dense(128, ALBERT.width)(parts.layer_norm(128)(parts.tokens(128)))
    layer = parts.layer(parts.gelu_new)
    for _ in range(ALBERT.layers):
        x = layer(x, mask)
    return parts.net.model({x: (1, LENGTH, ALBERT.width), parts.pooled(x): (1, ALBERT.width)})


_NARROW, _EMBEDDED, _STACKED = 128, 128, 4


def mobilebert() -> onnx.ModelProto:
    """Bottlenecks of width 128 around each layer, four feed-forward nets in it, NoNorm in the place of LayerNorm."""
    parts = Language(Network("mobilebert"), replace(MOBILEBERT, width=_NARROW))
    net, width = parts.net, MOBILEBERT.width
    mask = parts.mask()
    ids = net.input("input_ids", (1, LENGTH), TensorProto.INT64)
    words = net.add("Gather", net.weight(MOBILEBERT.vocabulary, _EMBEDDED), ids, axis=0)
    x = parts.dense(3 * _EMBEDDED, width)(_trigram(net, words))
    x = net.add("Add", x, net.add("Gather", net.weight(512, width), parts.positions(ids), axis=0))
    segments = net.input("token_type_ids", (1, LENGTH), TensorProto.INT64)
    x = parts.scaled(width)(net.add("Add", x, net.add("Gather", net.weight(2, width), segments, axis=0)))
    for _ in range(MOBILEBERT.layers):
        x = _mobilebert_layer(parts, x, mask)
    first = net.add("Gather", x, net.constant(0, np.int64), axis=1)
    return net.model({x: (1, LENGTH, width), first: (1, width)})


def _trigram(net: Network, words: str) -> str:
    """Each token beside the one before and the one after."""
    last = net.integers(2**63 - 1)
    after = net.add("Slice", words, net.integers(1), last, net.integers(1), net.integers(1))
    before = net.add("Slice", words, net.integers(0), net.integers(-1), net.integers(1), net.integers(1))
    zero = net.constant(0.0)
    after = net.add("Pad", after, net.integers(0, 0, 0, 0, 1, 0), zero, mode="constant")
    before = net.add("Pad", before, net.integers(0, 1, 0, 0, 0, 0), zero, mode="constant")
    return net.add("Concat", after, words, before, axis=2)


def _mobilebert_layer(parts: Language, source: str, mask: str) -> str:
    net, width, inner = parts.net, MOBILEBERT.width, MOBILEBERT.inner

    def residual(x: str, y: str, size: int = _NARROW) -> str:
        return parts.scaled(size)(net.add("Add", x, y))

    x = parts.scaled(_NARROW)(parts.dense(width, _NARROW)(source))
    shared = parts.scaled(_NARROW)(parts.dense(width, _NARROW)(source))
    query, key = parts.dense(_NARROW, _NARROW)(shared), parts.dense(_NARROW, _NARROW)(shared)
    value = parts.dense(width, _NARROW)(source)
    x = residual(parts.dense(_NARROW, _NARROW)(parts.attend(query, key, value, mask)), x)
    for _ in range(_STACKED):
        x = residual(parts.dense(inner, _NARROW)(net.relu(parts.dense(_NARROW, inner)(x))), x)
    return residual(parts.dense(_NARROW, width)(x), source, width)


def gpt2(length: int = LENGTH) -> onnx.ModelProto:
    """A decoder with a causal mask cut out of a stored one, for so many tokens; linear layers as Gemm between views;
    keys and values too are results."""
    parts = Language(Network("gpt2"), GPT2)
    net, width = parts.net, GPT2.width
    ids = net.input("input_ids", (1, length), TensorProto.INT64)
    x = net.add("Gather", net.weight(GPT2.vocabulary, width), net.view(ids, -1, net.dimension(ids, 1)), axis=0)
    x = net.add("Add", x, net.add("Gather", net.weight(1024, width), parts.positions(ids), axis=0))
    kept = []
    for _ in range(GPT2.layers):
        mixed, past = _causal_attention(parts, parts.layer_norm(width)(x), length)
        kept.append(past)
        x = net.add("Add", x, mixed)
        hidden = parts.gelu_new(_conv1d(net, parts.layer_norm(width)(x), width, GPT2.inner))
        x = net.add("Add", x, _conv1d(net, hidden, GPT2.inner, width))
    x = parts.layer_norm(width)(x)
    final = net.view(x, net.dimension(ids, 0), net.dimension(ids, 1), net.dimension(x, 2))
    scores = net.add("MatMul", final, net.weight(width, GPT2.vocabulary))
    stacked = (2, 1, GPT2.heads, length, width // GPT2.heads)
    return net.model({scores: (1, length, GPT2.vocabulary)} | dict.fromkeys(kept, stacked))


def _conv1d(net: Network, x: str, inputs: int, outputs: int) -> str:
    """Flattened to a matrix, multiplied, and given its first axes back."""
    axes = net.dimension(x, 0), net.dimension(x, 1)
    flat = net.view(x, -1, net.dimension(x, 2))
    found = net.add("Gemm", flat, net.weight(inputs, outputs), net.weight(outputs))
    return net.view(found, *axes, outputs)


def _causal_attention(parts: Language, x: str, length: int) -> tuple[str, str]:
    """What was attended to, and keys and values stacked."""
    net, width = parts.net, GPT2.width
    joined = _conv1d(net, x, width, 3 * width)
    query, key, value = net.split("Split", 3, joined, net.integers(width, width, width), axis=2)
    query, key, value = (_gpt2_heads(net, part) for part in (query, key, value))
    past = net.add("Concat", *(net.add("Unsqueeze", part, net.integers(0)) for part in (key, value)), axis=0)
    scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.add("Div", scores, net.constant((width / GPT2.heads) ** 0.5))
    masked = net.add("Where", _causal_mask(net, scores, length), scores, net.constant(_LOWEST))
    mixed = net.add("MatMul", net.add("Softmax", masked, axis=-1), value)
    mixed = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
    merged = net.add("Mul", net.dimension(mixed, 2), net.dimension(mixed, 3))
    mixed = net.view(mixed, net.dimension(mixed, 0), net.dimension(mixed, 1), merged)
    return _conv1d(net, mixed, width, width), past


def _gpt2_heads(net: Network, x: str) -> str:
    """Heads of a width that is computed."""
    size = net.add("Div", net.dimension(x, 2), net.constant(GPT2.heads, np.int64))
    view = net.view(x, net.dimension(x, 0), net.dimension(x, 1), GPT2.heads, size)
    return net.add("Transpose", view, perm=[0, 2, 1, 3])


def _causal_mask(net: Network, scores: str, length: int) -> str:
    """The last rows, as many as queries, and the first columns, as many as keys, of a stored triangle."""
    triangle = net.constant(np.tri(length)[None, None], np.uint8)
    keys = net.dimension(scores, 3)
    start = net.add("Sub", keys, net.dimension(scores, 2))
    for axis, first, last in ((2, start, keys), (3, net.constant(0, np.int64), keys)):
        ends = (net.add("Unsqueeze", end, net.integers(0)) for end in (first, last))
        triangle = net.add("Slice", triangle, *ends, net.integers(axis), net.integers(1))
    return net.add("Cast", triangle, to=TensorProto.BOOL)
