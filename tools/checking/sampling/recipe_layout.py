"""Recipes of the operators that only move data, and of Split and Resize."""

from __future__ import annotations

import json
from math import prod
from random import Random

from ....ir.operators import OPERATORS
from ....ir.operators.resize import CROP, DEFAULTS, POLICIES, ROUNDINGS, TRANSFORMATIONS
from .conditions import Type
from .operator_draft import (
    MOST_ELEMENTS,
    Choice,
    Misfit,
    OperatorDraft,
    Recipe,
    image,
    one_axis,
    random_shape,
    some_axes,
)

EMPTYING = frozenset({"Expand", "Slice", "Tile"})
"""Operators that may leave no element of a tensor that has some."""


def _reshape(draft: OperatorDraft, name: str) -> Choice:
    if name == "data":
        target = draft.attributes.get("shape")
        shape = _regroup_any(target, draft) if isinstance(target, tuple) else draft.random_shape()
        return Type(shape, draft.wish.dtype)
    return _regroup_any(draft.shape, draft)


def _regroup_any(shape: tuple[int, ...], draft: OperatorDraft) -> tuple[int, ...]:
    """Another shape with the same number of elements. If that is zero, its other sizes may be any."""
    regrouped = _regroup(shape, draft.random)
    if 0 in regrouped and draft.chance(0.5):
        return tuple(draft.random.choice((1, 2, 3, 5)) if size and draft.chance(0.5) else size for size in regrouped)
    return regrouped


def _regroup(shape: tuple[int, ...], random: Random) -> tuple[int, ...]:
    """Another shape with the same number of elements: neighbours are merged or split, ones inserted or removed."""
    dims = list(shape)
    for _ in range(random.choice((1, 1, 2, 3))):
        kind, at = random.random(), random.randrange(len(dims) + 1)
        if kind < 0.4 and at + 1 < len(dims):
            dims[at : at + 2] = [dims[at] * dims[at + 1]]
        elif kind < 0.7 and at < len(dims):
            factors = [f for f in range(1, dims[at] + 1) if dims[at] % f == 0]
            factor = random.choice(factors or [1])
            dims[at : at + 1] = [factor, dims[at] // factor]
        elif kind < 0.85 and 1 in dims:
            dims.remove(1)
        else:
            dims.insert(at, 1)
    return tuple(dims)


def layout(draft: OperatorDraft, name: str) -> Choice:
    """An operand or attribute of an operator that moves data."""
    operands = {o.name for o in OPERATORS[draft.head].operands}
    if name in operands:
        return _LAYOUT_OPERANDS.get(draft.head, _some_operand)(draft, name)
    return _LAYOUT_ATTRIBUTES[draft.head](draft, name)


def _some_operand(draft: OperatorDraft, name: str) -> Choice:
    if 0 in draft.wish.shape and draft.head in EMPTYING and draft.chance(0.5):
        return Type(random_shape(draft.random), draft.wish.dtype)
    shape = draft.wish.shape if draft.wish.shape and draft.chance(0.7) else draft.random_shape()
    return Type(shape, draft.wish.dtype)


def _flatten(draft: OperatorDraft, name: str) -> Choice:
    return draft.random.randrange(draft.rank + 1) if draft.chance(0.4) else min(1, draft.rank)


def _transpose_operand(draft: OperatorDraft, name: str) -> Choice:
    perm = draft.attributes.get("perm")
    if not isinstance(perm, tuple):
        return _some_operand(draft, name)
    shape = draft.wish.shape if len(draft.wish.shape) == len(perm) else draft.random_shape(len(perm))
    return Type(tuple(shape[perm.index(i)] for i in range(len(perm))), draft.wish.dtype)


def _unsqueeze_operand(draft: OperatorDraft, name: str) -> Choice:
    axes = draft.attributes.get("axes", ())
    shape = [d for i, d in enumerate(draft.wish.shape) if not isinstance(axes, tuple) or i not in axes]
    return Type(tuple(shape) if axes else draft.random_shape(draft.random.choice((1, 2, 3))), draft.wish.dtype)


def _squeeze_operand(draft: OperatorDraft, name: str) -> Choice:
    shape = list(draft.wish.shape)
    if "axes" in draft.attributes:
        for axis in draft.integers("axes"):
            shape.insert(axis, 1)
        return Type(tuple(shape), draft.wish.dtype)
    for _ in range(draft.random.choice((1, 1, 2))):
        shape.insert(draft.random.randrange(len(shape) + 1), 1)
    return Type(tuple(shape), draft.wish.dtype)


def _squeeze(draft: OperatorDraft, name: str) -> Choice:
    ones = [i for i, d in enumerate(draft.shape) if d == 1]
    if not ones:
        raise Misfit
    return tuple(sorted(draft.random.sample(ones, draft.random.randint(1, len(ones)))))


def _unsqueeze(draft: OperatorDraft, name: str) -> Choice:
    count = draft.random.choice((1, 1, 2))
    return tuple(sorted(draft.random.sample(range(draft.rank + count), count)))


def _transpose(draft: OperatorDraft, name: str) -> Choice:
    axes = list(range(draft.rank))
    common = {3: ((0, 2, 1),), 4: ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (0, 1, 3, 2))}.get(draft.rank, ())
    if common and draft.chance(0.4):
        return draft.random.choice(common)
    draft.random.shuffle(axes)
    return tuple(axes)


def _expand(draft: OperatorDraft, name: str) -> Choice:
    if draft.is_narrow:
        return draft.shape
    sizes = (0, 1) if draft.has_to_empty else (1, 2, 3)
    shape = tuple(draft.random.choice(sizes) if d == 1 else d for d in draft.shape)
    return (draft.random.choice((1, 2, 3, *shape[:1])), *shape) if draft.chance(0.4) and len(shape) < 5 else shape


def _tile(draft: OperatorDraft, name: str) -> Choice:
    usual = (0, 2, 3) if draft.has_to_empty else (1, 1, 2, 3)
    if draft.rank and draft.chance(0.5):  # along one axis only
        along = draft.random.randrange(draft.rank)
        return tuple(draft.random.choice(usual) if axis == along else 1 for axis in range(draft.rank))
    return tuple(draft.random.choice(usual) for _ in range(draft.rank))


def _slice(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    if name == "axes":
        return some_axes(draft)
    dims = [draft.shape[a] for a in draft.integers("axes")]
    steps = draft.attributes.get("steps")
    backwards = isinstance(steps, tuple) and any(step < 0 for step in steps)
    if name == "starts" and backwards:
        return tuple(random.choice((d - 1, d - 1, d, d // 2)) for d in dims)
    if name == "starts":
        return tuple(random.choice((0, 0, 1, max(0, d - 1), max(0, d - 2), d // 2)) for d in dims)
    if name == "ends" and backwards:
        return tuple(random.choice((-d - 1, -d - 1, 0, d // 2 - 1)) for d in dims)
    if name == "ends":
        begins = draft.integers("starts")
        if draft.has_to_empty:
            return begins
        return tuple(
            random.choice((d, d, b + 1, (d + 1) // 2, d + 3, random.randint(min(b + 1, d), d)))
            for d, b in zip(dims, begins, strict=True)
        )
    return (1,) * len(dims) if draft.chance(0.6) else tuple(random.choice((1, 2, 3)) for _ in dims)


def _slice_operand(draft: OperatorDraft, name: str) -> Choice:
    """Any operand; for steps that the rule writes, at times with axes of several steps, since an end that comes too
    early is not seen in a short one."""
    choice = _some_operand(draft, name)
    steps = draft.attributes.get("steps", ())
    step = max(map(abs, steps), default=1) if isinstance(steps, tuple) else 1
    if step == 1 or not isinstance(choice, Type) or draft.chance(0.3):
        return choice
    longer = [d * step + draft.random.randrange(step) if draft.chance(0.5) else d for d in choice.shape]
    return Type(tuple(longer), choice.dtype) if prod(longer) <= MOST_ELEMENTS else choice


def _gather_operand(draft: OperatorDraft, name: str) -> Choice:
    if name == "data":
        shape = draft.wish.shape if draft.chance(0.3) else tuple(max(d, 2) for d in draft.wish.shape)
        shape = shape or (3, 2)
        if draft.chance(0.15):  # indices of rank 2 make up for the missing axis
            shape = shape[: max(1, len(shape) - 1)]
        if draft.chance(0.2):  # as an Unsqueeze makes it
            unit = draft.random.choice((0, draft.random.randrange(len(shape))))
            shape = (*shape[:unit], 1, *shape[unit + 1 :])
        return Type(shape, draft.wish.dtype)
    shapes = (), (), (1,), (2,), (2, 2), (3,), (1, 2), (1, 1), (2, 1)
    return Type(draft.random.choice(shapes), draft.random.choice(("int64", "int32")))


def _pad(draft: OperatorDraft, name: str) -> Choice:
    if name == "mode":
        return "constant" if draft.chance(0.7) else draft.random.choice(("edge", "reflect", "wrap"))
    before = 2 if draft.rank > 2 and draft.chance(0.6) else 0
    widths = draft.random.choice(((0, 1, 2), (0, 1, 2), (0, 0, 3), (-1, 0, 1), (-2, -1, 0)))
    return tuple(0 if i % draft.rank < before else draft.random.choice(widths) for i in range(2 * draft.rank))


def _pad_operand(draft: OperatorDraft, name: str) -> Choice:
    if name == "data":
        return _some_operand(draft, name)
    return None if draft.chance(0.6) else Type((1,) if draft.chance(0.2) else (), draft.operands["data"].dtype)


def _blocks_operand(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    block = draft.attributes.get("blocksize", 2)
    if not isinstance(block, int) or block < 1:
        raise Misfit
    channels, height, width = (random.choice((1, 2)) for _ in range(3))
    batch, height = random.choice((1, 2)), height + 1
    if len(draft.wish.shape) == 4 and draft.chance(0.5):  # what other blocks are made from
        batch, channels, height, width = draft.wish.shape
        height, width = (height, width) if draft.head == "SpaceToDepth" else (-(-height // block), -(-width // block))
    if draft.head == "DepthToSpace":
        return Type((batch, block**2 * channels, height, width), draft.wish.dtype)
    return Type((batch, channels, block * height, block * width), draft.wish.dtype)


def _blocksize(draft: OperatorDraft, name: str) -> Choice:
    return draft.random.choice((2, 2, 2, 3, 1, 4)) if name == "blocksize" else draft.random.choice(("DCR", "CRD"))


def _concat_operand(draft: OperatorDraft, name: str) -> Choice:
    if name == "A" or not draft.operands:
        return Type(_narrower(draft) or draft.wish.shape or (3,), draft.wish.dtype)
    other, axis = next(iter(draft.operands.values())), draft.attributes.get("axis", 0)
    if not isinstance(axis, int) or not 0 <= axis < len(other.shape):
        raise Misfit
    left = draft.wish.shape[axis] - other.shape[axis] if axis in _narrowed(draft) else 0
    width = left or (other.shape[axis] if draft.chance(0.5) else draft.random.choice((0, 1, 2, 3)))
    return Type((*other.shape[:axis], width, *other.shape[axis + 1 :]), other.dtype)


def _narrower(draft: OperatorDraft) -> tuple[int, ...]:
    """The wished shape with fewer elements along one axis, at times, so that the other operand can bring the rest."""
    wide = [axis for axis, size in enumerate(draft.wish.shape) if size > 1]
    if not wide or draft.chance(0.5):
        return ()
    chosen = draft.random.choice(wide)
    return tuple(draft.random.randrange(1, d) if axis == chosen else d for axis, d in enumerate(draft.wish.shape))


def _narrowed(draft: OperatorDraft) -> list[int]:
    """The axis along which the first operand has fewer elements than the wished shape, if all its others are alike."""
    if draft.rank != len(draft.wish.shape):
        return []
    unlike = [axis for axis, (d, wished) in enumerate(zip(draft.shape, draft.wish.shape, strict=True)) if d != wished]
    return unlike if len(unlike) == 1 and draft.shape[unlike[0]] < draft.wish.shape[unlike[0]] else []


def _concat_axis(draft: OperatorDraft, name: str) -> Choice:
    return next(iter(_narrowed(draft)), None) if _narrowed(draft) and draft.chance(0.8) else one_axis(draft, name)


def split(draft: OperatorDraft, name: str) -> Choice:
    """The operand of a Split, its axis, or sizes whose sum is the size of the axis."""
    if name == "input":
        widest = [max(d, draft.random.choice((2, 3, 4))) for d in draft.wish.shape]
        return Type(tuple(widest) or (4,), draft.wish.dtype)
    if name == "axis":
        return one_axis(draft, name)
    axis = draft.attributes["axis"]
    width = draft.shape[axis] if isinstance(axis, int) and axis < draft.rank else 0
    if width < 2 or draft.chance(0.1):
        return (width,) if draft.chance(0.6) else (width, 0)
    if width % 2 == 0 and draft.chance(0.4):
        return (width // 2, width // 2)
    cuts = sorted(draft.random.sample(range(1, width), min(draft.random.choice((1, 1, 2, 3)), width - 1)))
    return tuple(b - a for a, b in zip((0, *cuts), (*cuts, width), strict=True))


_SCALES = (1.0, 2.0, 2.0, 0.5, 1.5, 1.2)
"""Scales of an axis of a Resize; the last one often keeps the size, but moves the positions."""


def _resize(draft: OperatorDraft, name: str) -> Choice:
    if name == "X":
        shape = image(draft)
        return Type(shape, draft.wish.dtype)
    random = draft.random
    if name == "mode":
        return random.choice(("nearest", "nearest", "linear", "linear", "cubic"))
    scales = tuple(random.choice(_SCALES) if i > 1 else 1.0 for i in range(draft.rank))
    sizes = [max(1, int(d * s)) for d, s in zip(draft.shape, scales, strict=True)]
    config: dict[str, object] = {"scales": list(scales)} if draft.chance(0.6) else {"sizes": sizes}
    config["coordinate_transformation_mode"] = random.choice(TRANSFORMATIONS)
    if "sizes" in config and draft.chance(0.2):
        config["keep_aspect_ratio_policy"] = random.choice(POLICIES[1:])
    if config["coordinate_transformation_mode"] == CROP:
        starts = [random.choice((0.0, 0.25, -0.25)) if i > 1 else 0.0 for i in range(draft.rank)]
        ends = [random.choice((1.0, 0.75, 1.5)) if i > 1 else 1.0 for i in range(draft.rank)]
        config |= {"roi": starts + ends, "extrapolation_value": random.choice((0.0, 3.0, -1.5))}
    if draft.chance(0.3):
        for setting in config.keys() & {"scales", "sizes"}:
            config[setting] = config[setting][2:]  # type: ignore[index]
        if "roi" in config:
            config["roi"] = config["roi"][2 : draft.rank] + config["roi"][draft.rank + 2 :]  # type: ignore[index]
        config["axes"] = list(range(2, draft.rank))
    if draft.attributes.get("mode") == "nearest":
        config["nearest_mode"] = random.choice(tuple(ROUNDINGS))
    if draft.attributes.get("mode") == "cubic":
        config["cubic_coeff_a"] = random.choice((-0.75, -0.5))
        config["exclude_outside"] = random.choice((0, 0, 1))
    # the encoder writes its configuration like this: sorted keys, and no defaults
    return json.dumps({k: v for k, v in config.items() if DEFAULTS.get(k) != v}, sort_keys=True)


_LAYOUT_OPERANDS: dict[str, Recipe] = {
    "Reshape": _reshape,
    "Squeeze": _squeeze_operand,
    "Unsqueeze": _unsqueeze_operand,
    "Transpose": _transpose_operand,
    "Slice": _slice_operand,
    "Gather": _gather_operand,
    "Pad": _pad_operand,
    "DepthToSpace": _blocks_operand,
    "SpaceToDepth": _blocks_operand,
    "Concat": _concat_operand,
    "Resize": _resize,
}
_LAYOUT_ATTRIBUTES: dict[str, Recipe] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Slice": _slice,
    "Gather": one_axis,
    "Pad": _pad,
    "DepthToSpace": _blocksize,
    "SpaceToDepth": _blocksize,
    "Concat": _concat_axis,
    "Resize": _resize,
}
