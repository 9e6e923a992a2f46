"""Operands and attributes that fit an operator, chosen at random: one small recipe per kind of operator.

A recipe chooses one argument at a time, in an order that lets later choices depend on earlier ones. For an operand it
wishes a type (a leaf will have it; a term may have another one), for an attribute it gives the value.
"""

from __future__ import annotations

from random import Random

from ....ir.operators import OPERATORS, RECURRENT
from .conditions import Type
from .left_side import LEAVES, Value
from .operator_draft import Choice, Misfit, OperatorDraft, Recipe, image, one_axis, random_shape, some_axes
from .recipe_layout import layout, split
from .types import TYPES


def order(head: str) -> tuple[str, ...]:
    """The arguments of an operator in the order in which they are chosen."""
    if head in _ORDER:
        return _ORDER[head]
    return tuple(a.name for a in OPERATORS[head].arguments)


_SHAPING = ("direction", "layout")
"""Attributes of recurrent networks that give the shapes of their operands."""
_ORDER: dict[str, tuple[str, ...]] = {
    **{f: (*_SHAPING, *(a.name for a in OPERATORS[f].arguments if a.name not in _SHAPING)) for f in RECURRENT},
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


def _broadcast_shape(shape: tuple[int, ...], random: Random) -> tuple[int, ...]:
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
        return (random.choice((1, 2, 2, 3)), *filled)  # one rank more, so that axes from the front move
    grown = tuple(random.choice((2, 3)) if d == 1 else d for d in shape)
    return grown if grown != shape or rank >= 4 else (2, *grown)


def _unwiden(draft: OperatorDraft) -> tuple[int, ...]:
    """The wished shape for the first operand, at times a smaller one that the other may widen."""
    shape = draft.wish.shape
    if len(OPERATORS[draft.head].operands) < 2 or draft.chance(0.8):
        return shape
    return shape[1:] if draft.chance(0.5) else tuple(d if draft.chance(0.5) else 1 for d in shape)


def _elementwise(draft: OperatorDraft, name: str) -> Choice:
    others = [t.shape for t in draft.operands.values()]
    dtype = next((t.dtype for t in draft.operands.values()), draft.wish.dtype)
    shape = _broadcast_shape(max(others, key=len), draft.random) if others else _unwiden(draft)
    return Type(shape, _operand_dtype(draft.head, name, dtype))


_LOGICAL = frozenset({"And", "Or", "Xor", "Not"})
_INTEGER = frozenset({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"})


def _operand_dtype(head: str, name: str, dtype: str) -> str:
    if head in _LOGICAL or (head == "Where" and name == "condition"):
        return "bool"
    if head == "BitShift":
        return dtype if dtype.startswith("uint") else "uint8"
    if head in _INTEGER:
        return dtype if "int" in dtype else "int32"
    return "float32" if dtype == "bool" else dtype


def _where(draft: OperatorDraft, name: str) -> Choice:
    values = [t for n, t in draft.operands.items() if n != "condition"]
    if name == "condition":
        return Type(_broadcast_shape(values[0].shape if values else draft.wish.shape, draft.random), "bool")
    base = draft.operands.get("condition", draft.wish).shape
    dtype = values[0].dtype if values else ("float32" if draft.wish.dtype == "bool" else draft.wish.dtype)
    return Type(base if draft.chance(0.5) else _broadcast_shape(base, draft.random), dtype)


def _if(draft: OperatorDraft, name: str) -> Choice:
    return Type((), "bool") if name == "cond" else draft.wish


def _clip(draft: OperatorDraft, name: str) -> Choice:
    if name == "input":
        return Type(draft.wish.shape, draft.wish.dtype)
    dtype = draft.operands["input"].dtype if draft.operands else draft.wish.dtype
    return None if draft.chance(0.2) else Type((), dtype)


_FACTORS = (0.1, 0.5, 1.0, 1.0, 2.0, 0.2, 1.5, 0.0, -0.5, -1.0, -2.0, 6.0)
"""Slopes, thresholds and the like: the schemas allow any number."""


def _number(draft: OperatorDraft, name: str) -> Value:
    if name == "epsilon":
        return draft.random.choice((1e-5, 1e-3, 0.5))
    return draft.random.choice(_FACTORS)


def _unary(draft: OperatorDraft, name: str) -> Choice:
    if name == "X":
        return _elementwise(draft, name)
    if name == "to":
        return draft.random.choice(TYPES)
    return draft.random.choice(("none", "tanh")) if name == "approximate" else _number(draft, name)


def _binary(draft: OperatorDraft, name: str) -> Choice:
    if name == "direction":
        return draft.random.choice(("LEFT", "RIGHT"))
    if name == "fmod":
        return 1 if any(t.dtype.startswith("float") for t in draft.operands.values()) else draft.random.choice((0, 1))
    choice = _elementwise(draft, name)
    if draft.head == "Pow" and name == "Y" and isinstance(choice, Type) and draft.chance(0.4):
        return Type(choice.shape, draft.random.choice(("float32", "int32", "int64", "float64")))
    return choice


# --- linear


def _matmul(draft: OperatorDraft, name: str) -> Choice:
    random, wish = draft.random, draft.wish
    if not draft.operands:
        rank = max(2, len(wish.shape)) if draft.chance(0.8) else 1
        shape = wish.shape if len(wish.shape) == rank else random_shape(random, rank)
        shape = (*shape[:-1], random.choice((1, 2, 3, 4)))
        return Type(shape, wish.dtype)
    other = next(iter(draft.operands.values()))
    if not other.shape:
        raise Misfit
    width = wish.shape[-1] if wish.shape and draft.chance(0.7) else random.choice((1, 2, 3, 4))
    batch = other.shape[:-2] if draft.chance(0.35) else ()
    if name == "B" and draft.chance(0.12):
        return Type(other.shape[-1:], other.dtype)
    if name == "B":
        return Type((*batch, other.shape[-1], width), other.dtype)
    if len(other.shape) < 2 or draft.chance(0.12):
        return Type(other.shape[-2:-1] or other.shape, other.dtype)
    rows = random.choice((1, 2, 3, 4))
    return Type((*(batch or random_shape(random, random.choice((0, 1)))), rows, other.shape[-2]), other.dtype)


def _gemm(draft: OperatorDraft, name: str) -> Choice:
    random, (m, k, n) = draft.random, (draft.random.choice((1, 2, 3)) for _ in range(3))
    if name in ("transA", "transB"):
        return random.choice((0, 0, 1))
    if name in ("alpha", "beta"):
        return random.choice((1.0, 1.0, *_FACTORS))
    if name == "A" and "B" in draft.operands:
        k = _matrix(draft, "B")[0]
    if name == "A":
        return Type((k, m) if draft.attributes["transA"] else (m, k), draft.wish.dtype)
    rows, depth = _matrix(draft, "A")
    if name == "B":
        return Type((n, depth) if draft.attributes["transB"] else (depth, n), draft.operands["A"].dtype)
    columns = _matrix(draft, "B")[1]
    if draft.chance(0.2):
        return None
    return Type(random.choice(((columns,), (columns,), (1, columns), (rows, columns), (rows, 1), ())), draft.wish.dtype)


def _matrix(draft: OperatorDraft, name: str) -> tuple[int, int]:
    shape = draft.operands[name].shape
    if len(shape) != 2:
        raise Misfit
    return (shape[1], shape[0]) if draft.attributes[f"trans{name}"] else (shape[0], shape[1])


def _image_before(draft: OperatorDraft) -> tuple[int, ...]:
    """The image from which a convolution makes one of the wished size, where its window is known; else ()."""
    windows = [draft.attributes.get(name) for name in ("kernel_shape", "pads", "strides", "dilations")]
    spatial = len(draft.wish.shape) - 2
    if draft.head != "Conv" or spatial < 1 or not all(isinstance(v, tuple) for v in windows):
        return ()
    kernel, pads, strides, dilations = windows
    sizes = [
        (n - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 - pads[i] - pads[spatial + i]  # type: ignore[index,operator]
        for i, n in enumerate(draft.wish.shape[2:])
    ]
    unseen = [draft.random.choice((0, s - 1)) for s in strides]  # type: ignore[union-attr,operator]
    sizes = [max(1, n) + more for n, more in zip(sizes, unseen, strict=True)]
    return (draft.wish.shape[0], draft.random.choice((1, 2, 3)), *sizes)


def _window(draft: OperatorDraft, name: str) -> Value:
    random = draft.random
    spatial = draft.rank - 2
    if spatial < 1:
        raise Misfit
    if name == "kernel_shape":
        if "W" in draft.operands:
            return draft.operands["W"].shape[2:]
        if draft.chance(0.5):
            return (random.choice((1, 1, 2, 3)),) * spatial
        return tuple(random.choice((1, 2, 3)) for _ in range(spatial))
    if name == "pads":
        kernel = draft.integers("kernel_shape")
        half = tuple(k // 2 for k in kernel)
        same = half + half
        some = tuple(random.choice((0, 1, 2)) for _ in range(2 * spatial))
        return random.choice(((0,) * (2 * spatial), (0,) * (2 * spatial), same, some))
    if name in ("strides", "dilations"):
        usual = (1,) * spatial
        return usual if draft.chance(0.6) else tuple(random.choice((1, 2, 3)) for _ in range(spatial))
    return (0,) * spatial if draft.chance(0.7) else tuple(random.choice((0, 1)) for _ in range(spatial))


def _conv(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    if name == "X":
        given = draft.operands.get("W")
        shape = _image_before(draft) or image(draft)
        return Type((shape[0], given.shape[1], *shape[2:]) if given else shape, draft.wish.dtype)
    channels = draft.operands["X"].shape[1] if len(draft.operands["X"].shape) > 1 else 0
    transposed = draft.head == "ConvTranspose"
    if name == "group":
        divisors = [g for g in range(1, channels + 1) if channels % g == 0]
        return random.choice((1, 1, *(divisors or [1])))
    group = draft.attributes.get("group", 1)
    if not isinstance(group, int) or group < 1:
        raise Misfit
    if name == "W":
        outputs = group * random.choice((1, 2, 2, 3))
        wished = draft.wish.shape[1] if len(draft.wish.shape) == draft.rank else 0
        if wished and wished % group == 0 and not transposed and draft.chance(0.5):
            outputs = wished
        pair = (channels, outputs // group) if transposed else (outputs, channels // group)
        return Type((*pair, *draft.integers("kernel_shape")), draft.operands["X"].dtype)
    if name == "B":
        weight = draft.operands["W"].shape
        outputs = weight[1] * group if transposed else weight[0]
        return None if draft.chance(0.15) else Type((outputs,), draft.operands["X"].dtype)
    return _window(draft, name)


# --- normalization, reduction, pooling


def _normalization(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    if name in ("X", "input"):
        shape = draft.wish.shape if len(draft.wish.shape) >= 2 else random_shape(random, random.choice((2, 3, 4)))
        if draft.head in ("InstanceNormalization", "GroupNormalization") and len(shape) < 3:
            shape = (*shape, 3)
        return Type(shape, draft.wish.dtype)
    if name == "epsilon":
        return random.choice((1e-5, 1e-5, 1e-3))
    if name == "stash_type":
        return 1
    if name == "axis":
        return random.randrange(draft.rank) if draft.chance(0.3) else draft.rank - 1
    if name == "num_groups":
        channels = draft.shape[1] if draft.rank > 1 else 1
        return random.choice([g for g in range(1, channels + 1) if channels % g == 0] or [1])
    if draft.head in ("LayerNormalization", "RMSNormalization"):
        axis = draft.attributes["axis"]
        if name == "B" and draft.chance(0.15):
            return None
        return Type(draft.shape[axis:] if isinstance(axis, int) else (), draft.wish.dtype)
    return Type(draft.shape[1:2], draft.wish.dtype)


def _reduction(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    if name in ("data", "x"):
        return Type(_shape_before_reduction(draft) or random_shape(random), draft.wish.dtype)
    if name == "keepdims":
        return random.choice((0, 1))
    if name == "axes":
        return some_axes(draft)
    if name == "axis" and draft.rank:
        axis = random.randrange(draft.rank)
        kinds = {a.name: a.kind for a in OPERATORS[draft.head].attributes}
        return (axis,) if kinds["axis"] == "Ints" else axis
    return random.choice((0, 0, 1))


def _shape_before_reduction(draft: OperatorDraft) -> tuple[int, ...]:
    """The wished shape, with the axes that the reduction drops."""
    shape = list(draft.wish.shape)
    if draft.attributes.get("keepdims") == 0 and "axes" in draft.attributes:
        for axis in draft.integers("axes"):
            shape.insert(axis, draft.random.choice((2, 3)))
    return tuple(shape)


def _pooling(draft: OperatorDraft, name: str) -> Choice:
    if name == "X":
        return Type(image(draft), draft.wish.dtype)
    if name in ("ceil_mode", "count_include_pad"):
        return draft.random.choice((0, 0, 1))
    return draft.random.choice((0, 0, 1)) if name == "storage_order" else _window(draft, name)


def _recurrence(draft: OperatorDraft, name: str) -> Choice:
    """Operands of a short sequence; weights come before the size of the state, which they give."""
    steps, directions, batch, inputs, hidden, gates = 2, 1, 1, 2, 2, {"RNN": 1, "GRU": 3, "LSTM": 4}[draft.head]
    directions = 2 if draft.attributes.get("direction") == "bidirectional" else directions
    dtype, state = draft.wish.dtype, (directions, batch, hidden)
    shapes = {
        "X": (steps, batch, inputs), "W": (directions, gates * hidden, inputs),
        "R": (directions, gates * hidden, hidden),
        "B": (directions, 2 * gates * hidden), "initial_h": state, "initial_c": state, "P": (directions, 3 * hidden),
    }  # fmt: skip
    if name in shapes:
        shape = shapes[name]
        if draft.attributes.get("layout") and name in ("X", "initial_h", "initial_c"):
            shape = (shape[1], shape[0], shape[2])
        return Type(shape, dtype) if name in ("X", "W", "R") or draft.chance(0.6) else None
    settings: dict[str, Choice] = {"hidden_size": hidden, "config": "{}", "layout": draft.random.choice((0, 0, 1))}
    directed = draft.random.choice(("forward", "reverse", "bidirectional"))
    return directed if name == "direction" else settings.get(name)


def _full(draft: OperatorDraft, name: str) -> Choice:
    if name == "0":
        return draft.wish.shape
    return draft.random.choice((0.5, 2.0, -1.5, 1.0, 0.0, 3.0, 2.5, -2.0, 100.0)) if name == "1" else draft.wish.dtype


# --- which recipe

_BY_OPERATOR: dict[str, Recipe] = {
    "Where": _where,
    "If": _if,
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
    "recurrent": _recurrence,
    "layout": layout,
    "multiple-output": split,
}


def recipe(head: str) -> Recipe:
    """The recipe of an operator."""
    if head in _BY_OPERATOR or head in LEAVES:
        return _BY_OPERATOR[head]
    return _BY_CATEGORY[OPERATORS[head].category]
