"""One maker for every operator that computes: chooses operands among the values, spells attributes one way or
another, and adds the nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .builder import Array, Builder, Misfit, Shape

Maker = Callable[[Builder], object]

SMOOTH = [
    "Abs", "Neg", "Exp", "Relu", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Atan", "Sinh", "Cosh", "Asinh", "Softplus",
    "Softsign", "Elu", "Celu", "Selu", "LeakyRelu", "HardSigmoid",
]  # fmt: skip
STEPS = ["Floor", "Ceil", "Round", "Sign", "ThresholdedRelu"]
REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
MIRRORED = ["Add", "Mul", "Sub", "Div", "Min", "Max", "Equal", "Less", "Greater", "And", "Or", "Xor", "MatMul"]
SINCE = {"HardSwish": 14, "Mish": 18, "Gelu": 20, "LayerNormalization": 17, "GroupNormalization": 21}


def positive(b: Builder, x: str) -> str:
    """`x`, or a value made from it, above zero; sometimes `x` itself."""
    if (b.values[x].size and float(b.values[x].min()) > 0.05) or (b.wild and b.chance(0.5)):
        return x
    above = b.add(b.pick(("Abs", "Exp", "Sigmoid", "Softplus", "Relu")), x)
    return b.add("Add", above, b.pick((b.scalar(0.5), b.scalar(1.0)))) if b.chance(0.9) else above


# --- element-wise


def smooth(b: Builder) -> str:
    op = b.pick([*SMOOTH, *(o for o in ("HardSwish", "Mish", "Gelu") if b.opset >= SINCE[o])])
    alpha = b.pick((None, 0.5, 0.3)) if op in ("Elu", "Celu", "Selu", "LeakyRelu", "HardSigmoid") else None
    approximate = b.pick((None, "none", "tanh")) if op == "Gelu" else None
    return b.add(op, b.floats(), alpha=alpha, approximate=approximate)


def stepped(b: Builder) -> str:
    return b.add(b.pick(STEPS), b.floats())


def of_positive(b: Builder) -> str:
    return b.add(b.pick(("Log", "Sqrt", "Reciprocal", "Sqrt", "Reciprocal")), positive(b, b.floats()))


def of_small(b: Builder) -> str:
    return b.add(b.pick(("Asin", "Acos", "Atanh")), b.add("Mul", b.add("Tanh", b.floats()), b.scalar(0.9)))


def broadcast_shape(b: Builder, shape: Shape) -> Shape:
    """A shape that broadcasts to this one."""
    if b.chance(0.35):
        ones: Shape = b.pick(((), (1,), (1,) * len(shape)))
        return ones
    kept = tuple(d if b.chance(0.7) else 1 for d in shape)
    return kept[b.between(0, len(shape)) if b.chance(0.3) else 0 :]


def partner(b: Builder, x: str, nonzero: bool = False) -> str:
    """Another operand of the type of `x` that broadcasts against it."""
    array = b.values[x]

    def fits(other: Array) -> bool:
        if other.dtype != array.dtype or (nonzero and other.size and float(np.abs(other).min()) < 0.1):
            return False
        try:
            return int(np.prod(np.broadcast_shapes(other.shape, array.shape))) <= max(array.size, other.size)
        except ValueError:
            return False

    fitting = b.candidates(fits)
    if fitting and b.chance(0.5):
        return str(b.pick(fitting))
    stored = [n for n, a in b.weights.items() if fits(a)]
    if stored and b.chance(0.4):
        return str(b.pick(stored))
    return b.constant(broadcast_shape(b, tuple(array.shape)), b.kind(x), positive=nonzero)


def swap(b: Builder, x: str, y: str) -> tuple[str, str]:
    return (y, x) if b.chance(0.4) else (x, y)


def arithmetic(b: Builder) -> str:
    x = b.floats()
    op = b.pick(("Add", "Sub", "Mul", "Add", "Mul", "Min", "Max"))
    return b.add(op, *swap(b, x, partner(b, x)))


def quotient(b: Builder) -> str:
    x = b.floats()
    return b.add("Div", *((x, partner(b, x, nonzero=True)) if b.chance(0.7) else (partner(b, x), positive(b, x))))


def power(b: Builder) -> str:
    x = b.floats()
    if b.chance(0.6):
        return b.add("Pow", x, b.scalar(b.pick((2.0, 2.0, 3.0, 1.0, 0.0))))
    return b.add("Pow", positive(b, x), b.scalar(b.pick((0.5, -0.5, -1.0, -2.0, 1.5))))


def parametric(b: Builder) -> str:
    x = b.floats(least=1)
    return b.add("PRelu", x, b.constant(broadcast_shape(b, b.shape(x))))


def variadic(b: Builder) -> str:
    x = b.floats()
    return b.add(b.pick(("Sum", "Mean", "Max", "Min")), *([x] + [partner(b, x) for _ in range(b.between(0, 2))]))


def clip(b: Builder) -> str:
    low = b.pick(("", b.scalar(b.pick((0.0, -1.0, 0.1)))))
    high = b.pick(("", b.scalar(b.pick((6.0, 1.0, 0.5)))))
    return b.add("Clip", b.floats(), *([low, high] if high else [low] if low else []))


def compare(b: Builder) -> str:
    x = b.floats() if b.chance(0.8) else b.choose(lambda a: a.dtype.kind == "i")
    strict = ["Less", "Greater", "Equal"]
    op = b.pick(strict if b.opset < 12 else [*strict, "LessOrEqual", "GreaterOrEqual"])
    return b.add(op, *swap(b, x, partner(b, x)))


def logic(b: Builder) -> str:
    x = b.choose(lambda a: a.dtype.kind == "b")
    if b.chance(0.3):
        return b.add("Not", x)
    return b.add(b.pick(("And", "Or", "Xor")), *swap(b, x, partner(b, x)))


def where(b: Builder) -> str:
    condition = b.choose(lambda a: a.dtype.kind == "b")
    x = b.choose(lambda a: a.dtype.kind in "fi" and a.shape == b.values[condition].shape)
    return b.add("Where", condition, *swap(b, x, partner(b, x)))


def cast(b: Builder) -> str:
    x = b.choose(lambda a: a.dtype.kind in "bi" or bool(np.isfinite(a).all() and np.abs(a).max(initial=0) < 100))
    to = {"b": (1, 7, 6), "i": (1, 7, 6, 9), "u": (1, 7), "f": (1, 11, 7, 6, 9, 10)}[b.values[x].dtype.kind]
    other = b.add("Cast", x, to=b.pick(to))
    return b.add("Cast", other, to=1) if b.kind(other) in ("float16", "float64", "int32") and b.chance(0.8) else other


# --- integers


def integer(b: Builder) -> str:
    x = b.choose(lambda a: a.dtype.kind == "i")
    op = b.pick(["Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Min", "Max", "ReduceSum", "CumSum"])
    if op in ("Neg", "Abs"):
        return b.add(op, x)
    if op == "ReduceSum":
        return reduce(b, x, "Sum")
    if op == "CumSum":
        return b.add(op, x, b.weight(np.asarray(b.axis(b.rank(x)), np.int64)), reverse=b.pick((None, 1)))
    y = b.constant(broadcast_shape(b, b.shape(x)), b.kind(x), positive=op in ("Div", "Mod"))
    fmod = b.pick((None, 1)) if op == "Mod" else None
    return b.add(op, *((x, y) if op in ("Div", "Mod") else swap(b, x, partner(b, x))), fmod=fmod)


def bits(b: Builder) -> str:
    x = b.choose(lambda a: a.dtype.kind == "u")
    if b.opset >= 18 and b.chance(0.5):
        return b.add(b.pick(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), x, partner(b, x))
    y = b.weight(np.full((), b.between(0, 7), b.kind(x)))
    return b.add("BitShift", x, y, direction=b.pick(("LEFT", "RIGHT")))


def indices(b: Builder) -> str:
    """Integers from the shape of something, as exporters compute them."""
    x = b.floats(least=1)
    at = b.weight(np.asarray(b.axis(b.rank(x)), np.int64))
    return b.add("Gather", b.add("Shape", x), at)


# --- reductions


def reduce(b: Builder, x: str, kind: str, axes: Sequence[int] | None = None, keepdims: int | None = None) -> str:
    rank = b.rank(x)
    if axes is None and rank:
        chosen = b.random.sample(range(rank), b.between(1, rank))
        axes = [a - rank if b.chance(0.3) else a for a in chosen]
    keepdims = b.pick((None, 0, 1)) if keepdims is None else keepdims
    if not axes or b.chance(0.05):
        return b.add(f"Reduce{kind}", x, keepdims=keepdims)
    if b.opset >= (13 if kind == "Sum" else 18):
        return b.add(f"Reduce{kind}", x, b.integers(axes), keepdims=keepdims)
    return b.add(f"Reduce{kind}", x, axes=list(axes), keepdims=keepdims)


def reduction(b: Builder) -> str:
    kind = b.pick([*REDUCTIONS, "Sum", "Mean", "Mean"])
    x = b.floats(least=1)
    return reduce(b, positive(b, x) if kind == "LogSum" else x, kind)


def cumulative(b: Builder) -> str:
    x = b.floats(least=1)
    axis = b.weight(np.asarray(b.axis(b.rank(x)), np.int64))
    return b.add("CumSum", x, axis, exclusive=b.pick((None, 1)), reverse=b.pick((None, 1)))


# --- products


def weights(b: Builder, shape: Shape, scale: float = 0.5) -> str:
    if b.chance(0.3):
        fitting = [n for n, a in b.weights.items() if a.shape == shape and a.dtype == b.dtype]
        if fitting:
            return str(b.pick(fitting))
    return b.weight(np.asarray(b.numbers.normal(0, scale, shape)).astype(b.dtype))


def product(b: Builder) -> str:
    x = b.floats(least=1)
    shape = b.shape(x)
    if b.chance(0.35):
        y = b.choose(lambda a: a.dtype == b.values[x].dtype and a.ndim >= 2 and a.shape[-2] == shape[-1])
        return b.add("MatMul", x, y)
    n = b.pick((shape[-1], 3, 4, 8))
    stack = (*(1 for _ in shape[:-2]),) if b.chance(0.1) else ()
    return b.add("MatMul", x, weights(b, (*stack, shape[-1], n)))


def product_from_left(b: Builder) -> str:
    x = b.floats(least=2)
    return b.add("MatMul", weights(b, (b.pick((b.shape(x)[-2], 3)), b.shape(x)[-2])), x)


def gemm(b: Builder) -> str:
    x = b.floats(rank=2)
    trans_a, trans_b = b.pick((None, 0, 1)), b.pick((None, 1))
    m, k = reversed(b.shape(x)) if trans_a else b.shape(x)
    n = b.pick((k, 3, 5))
    w = weights(b, (n, k) if trans_b else (k, n))
    bias = b.pick((None, (n,), (1, n), (m, n), (m, 1), ()))
    operands = [x, w] if bias is None else [x, w, b.constant(bias)]
    alpha, beta = b.pick((None, None, 0.5, 2.0)), b.pick((None, None, 0.5, 0.0))
    return b.add("Gemm", *operands, alpha=alpha, beta=beta, transA=trans_a, transB=trans_b)


def window(b: Builder, spatial: Shape, kernel: Sequence[int]) -> dict[str, object]:
    """Attributes of a sliding window, spelled one way or another."""
    attributes: dict[str, object] = {}
    rank = len(spatial)
    if b.chance(0.3):
        attributes["strides"] = [b.between(1, 2) for _ in range(rank)]
    if b.chance(0.15):
        attributes["auto_pad"] = b.pick(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    elif b.chance(0.6):
        ends = [*kernel] * 2
        attributes["pads"] = [k // 2 for k in ends] if b.chance(0.7) else [b.between(0, k - 1) for k in ends]
    return attributes


def image(b: Builder) -> str:
    """A value with channels and one or two spatial axes."""
    images = b.candidates(lambda a: a.dtype.kind == "f" and a.ndim in (3, 4) and min(a.shape) > 0)
    if images and b.chance(0.95):
        latest = images[-6:]
        return str(b.pick(latest))
    return b.input((1, b.pick((2, 4)), 6, 6))


def convolution(b: Builder) -> str:
    x = image(b)
    _n, c, *spatial = b.shape(x)
    groups = b.pick([g for g in (1, 1, 1, 2, c) if c % g == 0])
    kernel = [b.pick([k for k in (1, 1, 2, 3) if k <= s]) for s in spatial]
    out = groups * b.pick((1, 2, 1)) if groups > 1 else b.pick((c, 2, 3, 4))
    w = weights(b, (out, c // groups, *kernel))
    operands = [x, w] if b.chance(0.5) else [x, w, b.constant((out,))]
    settings = window(b, tuple(spatial), kernel)
    if b.chance(0.1) and "auto_pad" not in settings:
        settings["dilations"] = [2] * len(spatial)
    group = groups if groups > 1 or b.chance(0.3) else None
    return b.add("Conv", *operands, group=group, kernel_shape=kernel if b.chance(0.7) else None, **settings)


def transposed_convolution(b: Builder) -> str:
    x = image(b)
    _n, c, *spatial = b.shape(x)
    groups = b.pick([g for g in (1, 1, 2) if c % g == 0])
    kernel = [b.between(1, 3) for _ in spatial]
    w = weights(b, (c, b.pick((1, 2)), *kernel))
    settings: dict[str, object] = {"strides": [b.between(1, 2) for _ in spatial]} if b.chance(0.6) else {}
    if b.chance(0.3):
        settings["pads"] = [b.between(0, 1) for _ in [*spatial] * 2]
    operands = [x, w] if b.chance(0.5) else [x, w, b.constant((b.shape(w)[1] * groups,))]
    return b.add("ConvTranspose", *operands, group=groups if groups > 1 else None, **settings)


def pool(b: Builder) -> str:
    x = image(b)
    spatial = b.shape(x)[2:]
    kernel = [b.pick([k for k in (1, 2, 3) if k <= s]) for s in spatial]
    settings = window(b, spatial, kernel)
    if b.chance(0.3) and "auto_pad" not in settings:
        settings["ceil_mode"] = 1
    if b.chance(0.4):
        return b.add("MaxPool", x, kernel_shape=kernel, **settings)
    return b.add("AveragePool", x, kernel_shape=kernel, count_include_pad=b.pick((None, 1)), **settings)


def global_pool(b: Builder) -> str:
    return b.add(b.pick(("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool")), image(b))


# --- normalisations


def normalization(b: Builder) -> str:
    kind = b.pick(("Batch", "Batch", "Instance", "Layer", "Group", "LRN"))
    if kind == "Layer":
        x = b.floats(least=1)
        if b.opset < SINCE["LayerNormalization"]:
            raise Misfit
        axis = b.axis(b.rank(x))
        inner = b.shape(x)[axis % b.rank(x) :]
        operands = [x, b.constant(inner), b.constant(inner)][: b.between(2, 3)]
        return b.add("LayerNormalization", *operands, axis=axis, epsilon=b.pick((None, 0.1)))
    x = image(b)
    c = b.shape(x)[1]
    if kind == "LRN":
        return b.add("LRN", x, size=3)
    if kind == "Group":
        if b.opset < SINCE["GroupNormalization"]:
            raise Misfit
        groups = b.pick([g for g in (1, 2, c) if c % g == 0])
        return b.add("GroupNormalization", x, b.constant((c,)), b.constant((c,)), num_groups=groups, epsilon=0.1)
    operands = [x, b.constant((c,)), b.constant((c,))]
    if kind == "Batch":
        operands += [b.constant((c,)), b.constant((c,), positive=True)]
    return b.add(f"{kind}Normalization", *operands, epsilon=b.pick((None, 0.1, 1e-3)))


def softmax(b: Builder) -> str:
    x = b.floats(least=1)
    return b.add(b.pick(("Softmax", "Softmax", "LogSoftmax", "Hardmax")), x, axis=b.pick((None, b.axis(b.rank(x)))))


ARITHMETIC: tuple[Maker, ...] = (
    smooth, smooth, smooth, stepped, of_positive, of_small, arithmetic, arithmetic, arithmetic, arithmetic, quotient,
    power, parametric, variadic, clip, compare, logic, where, where, cast, integer, integer, bits, indices, reduction,
    reduction, reduction, cumulative, product, product, product, product_from_left, gemm, convolution, convolution,
    transposed_convolution, pool, pool, global_pool, normalization, normalization, softmax,
)  # fmt: skip
