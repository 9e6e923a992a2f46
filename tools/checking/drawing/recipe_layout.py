"""Recipes of the operators that only move data, and of Split and Resize."""

from __future__ import annotations

import json
from random import Random

from ....ir.operators import OPERATORS
from ....ir.operators.resize import ROUNDINGS, TRANSFORMATIONS
from .conditions import Type
from .operator_draft import Choice, Misfit, Recipe, Site, image, one_axis, random_shape, some_axes


def _reshape(site: Site, name: str) -> Choice:
    if name == "data":
        known = site.attributes.get("shape")
        shape = _regrouped(known, site.random) if isinstance(known, tuple) else random_shape(site.random)
        return Type(shape, site.wish.dtype)
    return _regrouped(site.shape, site.random)


def _regrouped(shape: tuple[int, ...], random: Random) -> tuple[int, ...]:
    """The same elements as another shape: neighbours joined, split, or ones put in and taken out."""
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


def layout(site: Site, name: str) -> Choice:
    """An operand or attribute of an operator that moves data."""
    operands = {o.name for o in OPERATORS[site.head].operands}
    if name in operands:
        return _LAYOUT_OPERANDS.get(site.head, _plain)(site, name)
    return _LAYOUT_ATTRIBUTES[site.head](site, name)


def _plain(site: Site, name: str) -> Choice:
    shape = site.wish.shape if site.wish.shape and site.chance(0.7) else random_shape(site.random)
    return Type(shape, site.wish.dtype)


def _flatten(site: Site, name: str) -> Choice:
    return site.random.randrange(site.rank + 1) if site.chance(0.4) else min(1, site.rank)


def _transposable(site: Site, name: str) -> Choice:
    perm = site.attributes.get("perm")
    if not isinstance(perm, tuple):
        return _plain(site, name)
    shape = site.wish.shape if len(site.wish.shape) == len(perm) else random_shape(site.random, len(perm))
    return Type(tuple(shape[perm.index(i)] for i in range(len(perm))), site.wish.dtype)


def _unsqueezable(site: Site, name: str) -> Choice:
    axes = site.attributes.get("axes", ())
    shape = [d for i, d in enumerate(site.wish.shape) if not isinstance(axes, tuple) or i not in axes]
    return Type(tuple(shape) if axes else random_shape(site.random, site.random.choice((1, 2, 3))), site.wish.dtype)


def _squeezable(site: Site, name: str) -> Choice:
    shape = list(site.wish.shape)
    if "axes" in site.attributes:
        for axis in site.integers("axes"):
            shape.insert(axis, 1)
        return Type(tuple(shape), site.wish.dtype)
    for _ in range(site.random.choice((1, 1, 2))):
        shape.insert(site.random.randrange(len(shape) + 1), 1)
    return Type(tuple(shape), site.wish.dtype)


def _squeeze(site: Site, name: str) -> Choice:
    ones = [i for i, d in enumerate(site.shape) if d == 1]
    if not ones:
        raise Misfit
    return tuple(sorted(site.random.sample(ones, site.random.randint(1, len(ones)))))


def _unsqueeze(site: Site, name: str) -> Choice:
    count = site.random.choice((1, 1, 2))
    return tuple(sorted(site.random.sample(range(site.rank + count), count)))


def _transpose(site: Site, name: str) -> Choice:
    axes = list(range(site.rank))
    common = {3: ((0, 2, 1),), 4: ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (0, 1, 3, 2))}.get(site.rank, ())
    if common and site.chance(0.4):
        return site.random.choice(common)
    site.random.shuffle(axes)
    return tuple(axes)


def _expand(site: Site, name: str) -> Choice:
    shape = tuple(site.random.choice((1, 2, 3)) if d == 1 else d for d in site.shape)
    return (site.random.choice((1, 2, 3, *shape[:1])), *shape) if site.chance(0.4) and len(shape) < 5 else shape


def _tile(site: Site, name: str) -> Choice:
    return tuple(site.random.choice((1, 1, 2, 3, 0) if site.chance(0.2) else (1, 1, 2, 3)) for _ in range(site.rank))


def _slice(site: Site, name: str) -> Choice:
    random = site.random
    if name == "axes":
        return some_axes(site)
    dims = [site.shape[a] for a in site.integers("axes")]
    if name == "starts":
        return tuple(random.choice((0, 0, 1, max(0, d - 2), d // 2)) for d in dims)
    if name == "ends":
        begins = site.integers("starts")
        return tuple(random.choice((d, d, b + 1, (d + 1) // 2, d + 3)) for d, b in zip(dims, begins, strict=True))
    return (1,) * len(dims) if site.chance(0.6) else tuple(random.choice((1, 2, 3)) for _ in dims)


def _gathered(site: Site, name: str) -> Choice:
    if name == "data":
        shape = site.wish.shape if site.chance(0.3) else tuple(max(d, 2) for d in site.wish.shape)
        return Type(shape or (3, 2), site.wish.dtype)
    return Type(site.random.choice(((), (1,), (2,), (2, 2), (3,), (1, 2))), site.random.choice(("int64", "int32")))


def _pad(site: Site, name: str) -> Choice:
    if name == "mode":
        return "constant" if site.chance(0.7) else site.random.choice(("edge", "reflect", "wrap"))
    before = 2 if site.rank > 2 and site.chance(0.6) else 0
    widths = site.random.choice(((0, 1, 2), (0, 1, 2), (0, 0, 3), (-1, 0, 1), (-2, -1, 0)))
    return tuple(0 if i % site.rank < before else site.random.choice(widths) for i in range(2 * site.rank))


def _padded(site: Site, name: str) -> Choice:
    if name == "data":
        return _plain(site, name)
    return None if site.chance(0.6) else Type((), site.operands["data"].dtype)


def _blocks(site: Site, name: str) -> Choice:
    random = site.random
    block = site.attributes.get("blocksize", 2)
    if not isinstance(block, int) or block < 1:
        raise Misfit
    channels, height, width = (random.choice((1, 2)) for _ in range(3))
    if site.head == "DepthToSpace":
        return Type((random.choice((1, 2)), block**2 * channels, 1 + height, width), site.wish.dtype)
    return Type((random.choice((1, 2)), channels, block * (1 + height), block * width), site.wish.dtype)


def _blocksize(site: Site, name: str) -> Choice:
    return site.random.choice((2, 2, 3, 1)) if name == "blocksize" else site.random.choice(("DCR", "CRD"))


def _joined(site: Site, name: str) -> Choice:
    if name == "A" or not site.operands:
        return Type(site.wish.shape or (3,), site.wish.dtype)
    other, axis = next(iter(site.operands.values())), site.attributes.get("axis", 0)
    if not isinstance(axis, int) or not 0 <= axis < len(other.shape):
        raise Misfit
    width = other.shape[axis] if site.chance(0.5) else site.random.choice((0, 1, 2, 3))
    return Type((*other.shape[:axis], width, *other.shape[axis + 1 :]), other.dtype)


def split(site: Site, name: str) -> Choice:
    """The operand of a Split, its axis, or sizes that make up the axis."""
    if name == "input":
        widest = [max(d, site.random.choice((2, 3, 4))) for d in site.wish.shape]
        return Type(tuple(widest) or (4,), site.wish.dtype)
    if name == "axis":
        return one_axis(site, name)
    axis = site.attributes["axis"]
    width = site.shape[axis] if isinstance(axis, int) and axis < site.rank else 0
    if width < 2 or site.chance(0.1):
        return (width,) if site.chance(0.6) else (width, 0)
    if width % 2 == 0 and site.chance(0.4):
        return (width // 2, width // 2)
    cuts = sorted(site.random.sample(range(1, width), min(site.random.choice((1, 1, 2, 3)), width - 1)))
    return tuple(b - a for a, b in zip((0, *cuts), (*cuts, width), strict=True))


def _resize(site: Site, name: str) -> Choice:
    if name == "X":
        shape = image(site)
        return Type(shape, site.wish.dtype)
    random = site.random
    if name == "mode":
        return random.choice(("nearest", "nearest", "linear", "linear", "cubic"))
    scales = tuple(random.choice((1.0, 2.0, 2.0, 0.5, 1.5)) if i > 1 else 1.0 for i in range(site.rank))
    sizes = [max(1, int(d * s)) for d, s in zip(site.shape, scales, strict=True)]
    extent: dict[str, object] = {"scales": list(scales)} if site.chance(0.6) else {"sizes": sizes}
    if site.chance(0.3):
        extent = {name: values[2:] for name, values in extent.items() if isinstance(values, list)}
        extent["axes"] = list(range(2, site.rank))
    config = {"coordinate_transformation_mode": random.choice(TRANSFORMATIONS), **extent}
    if site.attributes.get("mode") == "nearest":
        config["nearest_mode"] = random.choice(tuple(ROUNDINGS))
    if site.attributes.get("mode") == "cubic":
        config["cubic_coeff_a"] = random.choice((-0.75, -0.5))
        config["exclude_outside"] = random.choice((0, 0, 1))
    # the encoder writes its configuration like this: sorted keys
    return json.dumps(config, sort_keys=True)


_LAYOUT_OPERANDS: dict[str, Recipe] = {
    "Reshape": _reshape,
    "Squeeze": _squeezable,
    "Unsqueeze": _unsqueezable,
    "Transpose": _transposable,
    "Gather": _gathered,
    "Pad": _padded,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
    "Concat": _joined,
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
    "Concat": one_axis,
    "Resize": _resize,
}
