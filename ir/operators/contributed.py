"""Operators of ONNX Runtime's domain ``com.microsoft``: each is one kernel for several nodes of ONNX.

Rules make them only if the user asks for the domain (rules tagged with it). Their kernels for processors compute
float32.
"""

from __future__ import annotations

import numpy as np

from ..operation import Operation
from .arithmetic import Arithmetic, Array, Unsupported
from .elementwise import Expression, gelu, swish
from .linear import conv, gemm, matmul, scaled
from .normalization import layer, root_mean_square, softmax
from .schema import CountFlops, Family, per_output

DOMAIN = "com.microsoft"
Ints = tuple[int, ...]
_ACTIVATIONS = {"Relu": ("maximum", 0.0), "Sigmoid": ("sigmoid",), "Tanh": ("tanh",)}


def _add_bias(arithmetic: Arithmetic, x: Array, bias: Array | None) -> Array:
    if bias is None:
        return x
    if bias.shape != x.shape[-1:]:
        raise Unsupported("the bias has one value for each position of the last axis")
    return arithmetic.apply("add", x, bias)


def _activate(arithmetic: Arithmetic, x: Array, activation: str) -> Array:
    if activation not in _ACTIVATIONS:
        raise Unsupported(f"there is no activation {activation}")
    function, *others = _ACTIVATIONS[activation]
    return Expression(arithmetic, x)(str(function), *map(float, others)).array


def _bias_gelu(arithmetic: Arithmetic, x: Array, bias: Array) -> Array:
    return gelu(Expression(arithmetic, _add_bias(arithmetic, x, bias)), "none").array


def _fast_gelu(arithmetic: Arithmetic, x: Array, bias: Array | None) -> Array:
    return gelu(Expression(arithmetic, _add_bias(arithmetic, x, bias)), "tanh").array


def _quick_gelu(arithmetic: Arithmetic, x: Array, alpha: float) -> Array:
    return swish(Expression(arithmetic, x), alpha).array


def _fused_matmul(arithmetic: Arithmetic, a: Array, b: Array, alpha: float, ta: int, tb: int) -> Array:
    if (ta and a.ndim < 2) or (tb and b.ndim < 2):
        raise Unsupported("a vector cannot be transposed")
    product = matmul(arithmetic, a.swapaxes(-1, -2) if ta else a, b.swapaxes(-1, -2) if tb else b)
    return scaled(arithmetic, product, alpha)


def _fused_gemm(
    arithmetic: Arithmetic, a: Array, b: Array, c: Array | None, activation: str, alpha: float, beta: float,
    ta: int, tb: int,
) -> Array:  # fmt: skip
    return _activate(arithmetic, gemm(arithmetic, a, b, c, alpha, beta, ta, tb), activation)


def _fused_conv(
    arithmetic: Arithmetic, x: Array, w: Array, b: Array | None, z: Array | None, activation: str, kernel: Ints,
    pads: Ints, strides: Ints, dilations: Ints, group: int,
) -> Array:  # fmt: skip
    result = conv(arithmetic, x, w, b, kernel, pads, strides, dilations, group)
    if z is not None:
        if z.shape != result.shape:
            raise Unsupported("the operand that is added to a convolution has the shape of its result")
        result = arithmetic.apply("add", result, z)
    return _activate(arithmetic, result, activation)


def _total(arithmetic: Arithmetic, x: Array, skip: Array, bias: Array | None) -> Array:
    shapes = (x.shape, (1, *x.shape[1:]), x.shape[1:])
    if x.ndim not in (2, 3) or skip.shape not in shapes[: 3 if x.ndim == 3 else 1]:
        raise Unsupported(
            "both operands have the same shape, of rank 2 or 3; the second may have no batch, or one of 1"
        )
    return _add_bias(arithmetic, arithmetic.apply("add", x, skip), bias)


def _skip_layer(
    arithmetic: Arithmetic, x: Array, skip: Array, scale: Array, shift: Array | None, bias: Array | None, epsilon: float
) -> tuple[Array, ...]:
    total = _total(arithmetic, x, skip, bias)
    return layer(arithmetic, total, scale, shift, total.ndim - 1, epsilon, 1), total, total, total


def _skip_root_mean_square(
    arithmetic: Arithmetic, x: Array, skip: Array, scale: Array, bias: Array | None, epsilon: float
) -> tuple[Array, ...]:
    total = _total(arithmetic, x, skip, bias)
    return root_mean_square(arithmetic, total, scale, total.ndim - 1, epsilon, 1), total, total, total


def _attention(
    arithmetic: Arithmetic, query: Array, key: Array, value: Array, bias: Array | None, padding: Array | None,
    mask: Array | None, heads: int, scale: float,
) -> Array:  # fmt: skip
    """softmax(q k' * scale + mask) v of each head; the heads lie beside each other along the last axis.

    A scale of 0 stands for the usual one, 1 / sqrt(channels of a head).
    """
    if bias is not None or padding is not None or {query.ndim, key.ndim, value.ndim} != {3}:
        raise Unsupported("only query, key, value and attention_bias are looked into")
    if heads < 1 or any(x.shape[-1] % heads for x in (query, key, value)):
        raise Unsupported("the heads do not divide the channels")
    q, k, v = (x.reshape((*x.shape[:2], heads, x.shape[2] // heads)).swapaxes(1, 2) for x in (query, key, value))
    scores = scaled(arithmetic, matmul(arithmetic, q, k.swapaxes(2, 3)), scale or q.shape[3] ** -0.5)
    if mask is not None:
        if mask.ndim != 4 or mask.shape[2:] != scores.shape[2:]:
            raise Unsupported("the mask has a row for each query and a column for each key")
        scores = arithmetic.apply("add", scores, mask)
    result = matmul(arithmetic, softmax(arithmetic, scores, 3), v).swapaxes(1, 2)
    return result.reshape((*query.shape[:2], value.shape[2]))


def _attention_flops(operation: Operation) -> float:
    query, key, value = (operation.operand(i).dimensions for i in range(3))
    if not len(query) == len(key) == len(value) == 3:
        return float(operation.output.elements)
    pairs = query[0] * query[1] * key[1]
    return float(pairs * (2 * (query[2] + value[2]) + 6 * operation.integer("num_heads", 1)))


def _and_bias(count: float) -> CountFlops:
    """One more operation for each element if there is a bias."""
    return lambda operation: (count + (1.0 if operation.operand(1).elements else 0.0)) * operation.output.elements


def _product_flops(extra: float) -> CountFlops:
    """The FLOPs of a product: those of its sum, and `extra` for each element."""

    def count(operation: Operation) -> float:
        first, second = operation.operand(0).dimensions, operation.operand(1).dimensions
        if "kernel_shape" in operation.attributes:
            depth = float(np.prod(second[1:], dtype=float))
        else:
            depth = float(first[-2 if operation.integer("transA", 0) and len(first) > 1 else -1]) if first else 1.0
        added = sum(1 for operand in operation.operands[2:] if operand.elements)
        return operation.output.elements * (2.0 * depth + added + extra)

    return count


_contributed = Family("contributed", domain=DOMAIN)

OPERATORS = (
    _contributed("MicrosoftGelu", "X", lambda arithmetic, x: gelu(Expression(arithmetic, x), "none").array,
                 flops=per_output(5), op_type="Gelu"),
    _contributed("BiasGelu", "A B", _bias_gelu, flops=per_output(6)),
    _contributed("FastGelu", "X bias?", _fast_gelu, flops=_and_bias(8)),
    _contributed("QuickGelu", "X | alpha:f64=1.702", _quick_gelu, flops=per_output(3)),
    _contributed("FusedMatMul", "A B | alpha:f64=1.0 transA:i64=0 transB:i64=0", _fused_matmul,
                 flops=_product_flops(0), like="MatMul", takes_stacks=True),
    _contributed("FusedGemm", "A B C? | activation:String alpha:f64=1.0 beta:f64=1.0 transA:i64=0 transB:i64=0",
                 _fused_gemm, flops=_product_flops(1), like="Gemm"),
    _contributed(
        "FusedConv",
        "X W B? Z? | activation:String kernel_shape:Ints pads:Ints strides:Ints dilations:Ints group:i64=1",
        _fused_conv, flops=_product_flops(1), like="Conv"),
    _contributed("SkipLayerNormalization", "input skip gamma beta? bias? | epsilon:f64=1e-12", _skip_layer,
                 flops=per_output(8), outputs=4),
    _contributed("SkipSimplifiedLayerNormalization", "input skip gamma bias? | epsilon:f64=1e-12",
                 _skip_root_mean_square, flops=per_output(5), outputs=4),
    _contributed(
        "MultiHeadAttention",
        "query key value bias? key_padding_mask? attention_bias? | num_heads:i64 scale:f64=0.0",
        _attention, flops=_attention_flops),
)  # fmt: skip
"""`SkipLayerNormalization` gives its sum as output 3; outputs 1 and 2 are the mean and deviation of training."""
