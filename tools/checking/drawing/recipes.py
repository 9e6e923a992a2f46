"""Operands and attributes that fit an operator, chosen at random: one small recipe per kind of operator.

A recipe is asked for one argument at a time, in an order that lets later choices depend on earlier ones. For an operand
it wishes a type (a leaf will have it; a term may turn out otherwise), for an attribute it gives the value.
"""

from __future__ import annotations

from random import Random

from ....ir.operators import OPERATORS
from .conditions import Type
from .left_side import LEAVES, Value
from .operator_draft import Choice, Misfit, Recipe, Site, image, one_axis, random_shape, some_axes
from .recipe_layout import layout, split
from .types import TYPES


def order(head: str) -> tuple[str, ...]:
    """The arguments of an operator in the order in which they are chosen."""
    if head in _ORDER:
        return _ORDER[head]
    return tuple(a.name for a in OPERATORS[head].arguments)


_ORDER: dict[str, tuple[str, ...]] = {
    "Gemm": ("transA", "transB", "A", "B", "C", "alpha", "beta"),
    "Conv": ("X", "kernel_shape", "group", "W", "B", "dilations", "pads", "strides"),
    "ConvTranspose": ("X", "kernel_shape", "group", "W", "B", "dilations", "pads", "strides", "output_padding"),
    "GroupNormalization": ("X", "num_groups", "scale", "bias", "epsilon", "stash_type"),
    "LayerNormalization": ("X", "axis", "Scale", "B", "epsilon", "stash_type"),
    "RMSNormalization": ("X", "axis", "scale", "epsilon", "stash_type"),
    "Slice": ("data", "axes", "starts", "ends", "steps"),
    "Split": ("input", "axis", "split"),
    "Pad": ("data", "mode", "pads", "constant_value"),
    "Concat": ("A", "axis", "B"),
    "DepthToSpace": ("blocksize", "input", "mode"),
    "SpaceToDepth": ("blocksize", "input"),
    "Resize": ("X", "mode", "config"),
    "AveragePool": ("X", "kernel_shape", "dilations", "pads", "strides", "ceil_mode", "count_include_pad"),
    "MaxPool": ("X", "kernel_shape", "dilations", "pads", "strides", "ceil_mode", "storage_order"),
}


# --- element-wise


def _widened(shape: tuple[int, ...], random: Random) -> tuple[int, ...]:
    """A shape that broadcasts with this one, in one of the ways that models use."""
    rank = len(shape)
    kind = random.random()
    if kind < 0.35 or not rank:
        return shape if rank else random_shape(random, random.choice((0, 0, 1)))
    if kind < 0.47:
        return () if random.random() < 0.8 else (1,) * random.choice((1, rank))
    if kind < 0.57 and rank >= 2:
        return (shape[1], *(1,) * (rank - 2))
    if kind < 0.67:
        return shape[-1:] if random.random() < 0.6 else (*(1,) * (rank - 1), shape[-1])
    if kind < 0.72 and rank >= 2:
        return (1, shape[1], *(1,) * (rank - 2))
    if kind < 0.8:
        return tuple(d if random.random() < 0.6 else 1 for d in shape)
    if kind < 0.92 and rank < 5:
        filled = (random.choice((2, 3)) if d == 1 and random.random() < 0.75 else d for d in shape)
        return (random.choice((1, 2, 2, 3)), *filled)  # axes counted from the front are others now
    grown = tuple(random.choice((2, 3)) if d == 1 else d for d in shape)
    return grown if grown != shape or rank >= 4 else (2, *grown)


def _narrowed(site: Site) -> tuple[int, ...]:
    """The wished shape for the first operand, at times a smaller one that the other may widen."""
    shape = site.wish.shape
    if len(OPERATORS[site.head].operands) < 2 or site.chance(0.8):
        return shape
    return shape[1:] if site.chance(0.5) else tuple(d if site.chance(0.5) else 1 for d in shape)


def _elementwise(site: Site, name: str) -> Choice:
    others = [t.shape for t in site.operands.values()]
    dtype = next((t.dtype for t in site.operands.values()), site.wish.dtype)
    shape = _widened(max(others, key=len), site.random) if others else _narrowed(site)
    return Type(shape, _operand_dtype(site.head, name, dtype))


_LOGICAL = frozenset({"And", "Or", "Xor", "Not"})
_COMPARING = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN"})
_INTEGER = frozenset({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"})


def _operand_dtype(head: str, name: str, dtype: str) -> str:
    if head in _LOGICAL or (head == "Where" and name == "condition"):
        return "bool"
    if head == "BitShift":
        return dtype if dtype.startswith("uint") else "uint8"
    if head in _INTEGER:
        return dtype if "int" in dtype else "int32"
    return "float32" if dtype == "bool" else dtype


def _where(site: Site, name: str) -> Choice:
    values = [t for n, t in site.operands.items() if n != "condition"]
    if name == "condition":
        return Type(_widened(values[0].shape if values else site.wish.shape, site.random), "bool")
    base = site.operands.get("condition", site.wish).shape
    dtype = values[0].dtype if values else ("float32" if site.wish.dtype == "bool" else site.wish.dtype)
    return Type(base if site.chance(0.5) else _widened(base, site.random), dtype)


def _clip(site: Site, name: str) -> Choice:
    if name == "input":
        return Type(site.wish.shape, site.wish.dtype)
    return None if site.chance(0.2) else Type((), site.operands["input"].dtype if site.operands else site.wish.dtype)


_FACTORS = (0.1, 0.5, 1.0, 1.0, 2.0, 0.2, 1.5, 0.0, -0.5, -1.0, -2.0, 6.0)
"""Slopes, thresholds and the like: the schemas allow any number."""


def _number(site: Site, name: str) -> Value:
    if name == "epsilon":
        return site.random.choice((1e-5, 1e-3, 0.5))
    return site.random.choice(_FACTORS)


def _unary(site: Site, name: str) -> Choice:
    if name == "X":
        return _elementwise(site, name)
    if name == "to":
        return site.random.choice(TYPES)
    return site.random.choice(("none", "tanh")) if name == "approximate" else _number(site, name)


def _binary(site: Site, name: str) -> Choice:
    if name == "direction":
        return site.random.choice(("LEFT", "RIGHT"))
    if name == "fmod":
        return 1 if any(t.dtype.startswith("float") for t in site.operands.values()) else site.random.choice((0, 1))
    choice = _elementwise(site, name)
    if site.head == "Pow" and name == "Y" and isinstance(choice, Type) and site.chance(0.4):
        return Type(choice.shape, site.random.choice(("float32", "int32", "int64", "float64")))
    return choice


# --- linear


def _matmul(site: Site, name: str) -> Choice:
    random, wish = site.random, site.wish
    if not site.operands:
        rank = max(2, len(wish.shape)) if site.chance(0.8) else 1
        shape = wish.shape if len(wish.shape) == rank else random_shape(random, rank)
        shape = (*shape[:-1], random.choice((1, 2, 3, 4)))
        return Type(shape, wish.dtype)
    other = next(iter(site.operands.values()))
    if not other.shape:
        raise Misfit
    width = wish.shape[-1] if wish.shape and site.chance(0.7) else random.choice((1, 2, 3, 4))
    batch = other.shape[:-2] if site.chance(0.35) else ()
    if name == "B" and site.chance(0.12):
        return Type(other.shape[-1:], other.dtype)
    if name == "B":
        return Type((*batch, other.shape[-1], width), other.dtype)
    if len(other.shape) < 2 or site.chance(0.12):
        return Type(other.shape[-2:-1] or other.shape, other.dtype)
    rows = random.choice((1, 2, 3, 4))
    return Type((*(batch or random_shape(random, random.choice((0, 1)))), rows, other.shape[-2]), other.dtype)


def _gemm(site: Site, name: str) -> Choice:
    random, (m, k, n) = site.random, (site.random.choice((1, 2, 3)) for _ in range(3))
    if name in ("transA", "transB"):
        return random.choice((0, 0, 1))
    if name in ("alpha", "beta"):
        return random.choice((1.0, 1.0, *_FACTORS))
    if name == "A" and "B" in site.operands:
        k = _matrix(site, "B")[0]
    if name == "A":
        return Type((k, m) if site.attributes["transA"] else (m, k), site.wish.dtype)
    rows, depth = _matrix(site, "A")
    if name == "B":
        return Type((n, depth) if site.attributes["transB"] else (depth, n), site.operands["A"].dtype)
    columns = _matrix(site, "B")[1]
    if site.chance(0.2):
        return None
    return Type(random.choice(((columns,), (columns,), (1, columns), (rows, columns), (rows, 1), ())), site.wish.dtype)


def _matrix(site: Site, name: str) -> tuple[int, int]:
    shape = site.operands[name].shape
    if len(shape) != 2:
        raise Misfit
    return (shape[1], shape[0]) if site.attributes[f"trans{name}"] else (shape[0], shape[1])


def _image_before(site: Site) -> tuple[int, ...]:
    """What a convolution makes an image of the wished size from, where its window is known; () elsewhere."""
    known = [site.attributes.get(name) for name in ("kernel_shape", "pads", "strides", "dilations")]
    spatial = len(site.wish.shape) - 2
    if site.head != "Conv" or spatial < 1 or not all(isinstance(v, tuple) for v in known):
        return ()
    kernel, pads, strides, dilations = known
    sizes = [
        (n - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 - pads[i] - pads[spatial + i]  # type: ignore[index,operator]
        for i, n in enumerate(site.wish.shape[2:])
    ]
    unseen = [site.random.choice((0, s - 1)) for s in strides]  # type: ignore[union-attr,operator]
    sizes = [max(1, n) + more for n, more in zip(sizes, unseen, strict=True)]
    return (site.wish.shape[0], site.random.choice((1, 2, 3)), *sizes)


def _window(site: Site, name: str) -> Value:
    random = site.random
    spatial = site.rank - 2
    if spatial < 1:
        raise Misfit
    if name == "kernel_shape":
        if "W" in site.operands:
            return site.operands["W"].shape[2:]
        if site.chance(0.5):
            return (random.choice((1, 1, 2, 3)),) * spatial
        return tuple(random.choice((1, 2, 3)) for _ in range(spatial))
    if name == "pads":
        kernel = site.integers("kernel_shape")
        half = tuple(k // 2 for k in kernel)
        same = half + half
        some = tuple(random.choice((0, 1, 2)) for _ in range(2 * spatial))
        return random.choice(((0,) * (2 * spatial), (0,) * (2 * spatial), same, some))
    if name in ("strides", "dilations"):
        usual = (1,) * spatial
        return usual if site.chance(0.6) else tuple(random.choice((1, 2, 3)) for _ in range(spatial))
    return (0,) * spatial if site.chance(0.7) else tuple(random.choice((0, 1)) for _ in range(spatial))


def _conv(site: Site, name: str) -> Choice:
    random = site.random
    if name == "X":
        given = site.operands.get("W")
        shape = _image_before(site) or image(site)
        return Type((shape[0], given.shape[1], *shape[2:]) if given else shape, site.wish.dtype)
    channels = site.operands["X"].shape[1] if len(site.operands["X"].shape) > 1 else 0
    transposed = site.head == "ConvTranspose"
    if name == "group":
        divisors = [g for g in range(1, channels + 1) if channels % g == 0]
        return random.choice((1, 1, *(divisors or [1])))
    group = site.attributes.get("group", 1)
    if not isinstance(group, int) or group < 1:
        raise Misfit
    if name == "W":
        made = group * random.choice((1, 2, 2, 3))
        wished = site.wish.shape[1] if len(site.wish.shape) == site.rank else 0
        if wished and wished % group == 0 and not transposed and site.chance(0.5):
            made = wished
        pair = (channels, made // group) if transposed else (made, channels // group)
        return Type((*pair, *site.integers("kernel_shape")), site.operands["X"].dtype)
    if name == "B":
        weight = site.operands["W"].shape
        made = weight[1] * group if transposed else weight[0]
        return None if site.chance(0.15) else Type((made,), site.operands["X"].dtype)
    return _window(site, name)


# --- normalization, reduction, pooling


def _normalization(site: Site, name: str) -> Choice:
    random = site.random
    if name in ("X", "input"):
        shape = site.wish.shape if len(site.wish.shape) >= 2 else random_shape(random, random.choice((2, 3, 4)))
        if site.head in ("InstanceNormalization", "GroupNormalization") and len(shape) < 3:
            shape = (*shape, 3)
        return Type(shape, site.wish.dtype)
    if name == "epsilon":
        return random.choice((1e-5, 1e-5, 1e-3))
    if name == "stash_type":
        return 1
    if name == "axis":
        return random.randrange(site.rank) if site.chance(0.3) else site.rank - 1
    if name == "num_groups":
        channels = site.shape[1] if site.rank > 1 else 1
        return random.choice([g for g in range(1, channels + 1) if channels % g == 0] or [1])
    if site.head in ("LayerNormalization", "RMSNormalization"):
        axis = site.attributes["axis"]
        if name == "B" and site.chance(0.15):
            return None
        return Type(site.shape[axis:] if isinstance(axis, int) else (), site.wish.dtype)
    return Type(site.shape[1:2], site.wish.dtype)


def _reduction(site: Site, name: str) -> Choice:
    random = site.random
    if name in ("data", "x"):
        return Type(_unreduced(site) or random_shape(random), site.wish.dtype)
    if name == "keepdims":
        return random.choice((0, 1))
    if name == "axes":
        return some_axes(site)
    if name == "axis" and site.rank:
        axis = random.randrange(site.rank)
        kinds = {a.name: a.kind for a in OPERATORS[site.head].attributes}
        return (axis,) if kinds["axis"] == "Ints" else axis
    return random.choice((0, 0, 1))


def _unreduced(site: Site) -> tuple[int, ...]:
    """The wished shape, with the axes back that are known to be dropped."""
    shape = list(site.wish.shape)
    if site.attributes.get("keepdims") == 0 and "axes" in site.attributes:
        for axis in site.integers("axes"):
            shape.insert(axis, site.random.choice((2, 3)))
    return tuple(shape)


def _pooling(site: Site, name: str) -> Choice:
    if name == "X":
        return Type(image(site), site.wish.dtype)
    if name in ("ceil_mode", "count_include_pad"):
        return site.random.choice((0, 0, 1))
    return site.random.choice((0, 0, 1)) if name == "storage_order" else _window(site, name)


def _full(site: Site, name: str) -> Choice:
    if name == "0":
        return site.wish.shape
    return site.random.choice((0.5, 2.0, -1.5, 1.0, 0.0, 3.0, 2.5, -2.0, 100.0)) if name == "1" else site.wish.dtype


# --- which recipe

_BY_OPERATOR: dict[str, Recipe] = {
    "Where": _where,
    "Clip": _clip,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Softmax": one_axis,
    "LogSoftmax": one_axis,
    "Hardmax": one_axis,
    "Full": _full,
}
_BY_CATEGORY: dict[str, Recipe] = {
    "elementwise.unary": _unary,
    "elementwise.binary": _binary,
    "normalization": _normalization,
    "reduction": _reduction,
    "pooling": _pooling,
    "layout": layout,
    "multiple-output": split,
}


def recipe(head: str) -> Recipe:
    """The recipe of an operator."""
    if head in _BY_OPERATOR or head in LEAVES:
        return _BY_OPERATOR[head]
    return _BY_CATEGORY[OPERATORS[head].category]
