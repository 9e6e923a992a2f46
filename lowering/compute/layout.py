"""Operators that move, drop, repeat, join and select elements.

A computed place outside the tensor, which ONNX forbids, reads its nearest element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod

from tvm import te, tirx

from ...ir.operators import VIEWS
from ...ir.sizes import ONE, Size, dimension_as_size, exact_quotient
from ...ir.types import TensorType
from .call import Expr, Lowering, NotLowered, Shape, TensorCall, read, sizes
from .extents import Extent, as_number, is_number, may_differ
from .windows import pad_around


def _reshape(call: TensorCall) -> te.Tensor:
    """Only axes that are split or joined cost a division; the others keep their index."""
    x, shape = call.source(0), call.shape
    old, new = _sizes_of(call.types[0]), _sizes_of(call.results[0])
    if all(size.number is not None for size in (*old, *new)) and prod(sizes(x)) != prod(shape):
        raise NotLowered("the shape has another number of elements")
    groups = list(_groups(old, new))

    def element(*indices: Expr) -> Expr:
        places: list[Expr] = []
        for before, after in groups:
            own = list(indices[after.start : after.stop])
            same = old[before.start : before.stop] == new[after.start : after.stop]
            ravelled = own if same else _ravel(own, shape[after.start : after.stop])
            places += own if same else _unravel(ravelled, sizes(x)[before.start : before.stop])
        return x(*places)

    return call.stage(shape, element)


def _sizes_of(type_: TensorType | None) -> tuple[Size, ...]:
    sizes = [dimension_as_size(d) for d in (type_.shape or ())] if type_ is not None else []
    return tuple(size for size in sizes if size is not None)


def _groups(old: Sequence[Size], new: Sequence[Size]) -> Iterator[tuple[range, range]]:
    """The shortest runs of axes of both shapes with as many elements each, whatever the sizes of a call."""
    i = j = 0
    while i < len(old) or j < len(new):
        ends, sides = [i + (i < len(old)), j + (j < len(new))], (old, new)
        while (totals := [_total(old[i : ends[0]]), _total(new[j : ends[1]])])[0] != totals[1]:
            fits = exact_quotient(totals[1], totals[0]) is not None
            side = 0 if (fits or ends[1] == len(new)) and ends[0] < len(old) else 1
            if ends[side] == len(sides[side]):
                break  # all that is left, as many elements by what only the sizes of a call say
            ends[side] += 1
        yield range(i, ends[0]), range(j, ends[1])
        i, j = ends


def _total(sizes: Sequence[Size]) -> Size:
    total = ONE
    for size in sizes:
        total = total * size
    return total


def _ravel(indices: Sequence[Expr], shape: Shape) -> Expr:
    result: Expr = 0
    for index, size in zip(indices, shape, strict=True):
        result = result if is_number(size, 1) else index if isinstance(result, int) else result * size + index
    return result


def _unravel(index: Expr, shape: Shape) -> list[Expr]:
    if isinstance(index, int):
        return [0] * len(shape)
    places: list[Expr] = []
    first = next((a for a, size in enumerate(shape) if not is_number(size, 1)), 0)
    for axis in reversed(range(len(shape))):
        size = shape[axis]
        places.append(0 if is_number(size, 1) else index if axis == first else index % size)
        index = index if is_number(size, 1) or axis == first else index // size
    return places[::-1]


def _transpose(call: TensorCall) -> te.Tensor:
    x, perm = call.source(0), call.ints("perm")
    inverse = sorted(range(len(perm)), key=perm.__getitem__)
    return call.stage(call.shape, lambda *i: x(*(i[a] for a in inverse)))


def _expand(call: TensorCall) -> te.Tensor:
    x = call.source(0)
    return call.stage(call.shape, lambda *i: read(x, i, call.shape))


def _tile(call: TensorCall) -> te.Tensor:
    x = call.source(0)
    repeated = [may_differ(n, m) for n, m in zip(sizes(x), call.shape, strict=True)]
    axes = list(zip(sizes(x), repeated, strict=True))
    return call.stage(call.shape, lambda *i: x(*(p % n if r else p for p, (n, r) in zip(i, axes, strict=True))))


def _slice(call: TensorCall) -> te.Tensor:
    x = call.source(0)
    starts = [_begin(start, sizes(x)[axis]) for start, axis in zip(call.ints("starts"), call.ints("axes"), strict=True)]
    cuts = dict(zip(call.ints("axes"), zip(starts, call.ints("steps"), strict=True), strict=True))

    def element(*indices: Expr) -> Expr:
        return x(*(i * cuts[a][1] + cuts[a][0] if a in cuts else i for a, i in enumerate(indices)))

    return call.stage(call.shape, element)


def _begin(start: int, size: Extent) -> Expr:
    """Where a slice begins; a negative start counts from the end of an axis, which may be shorter."""
    return start if start >= 0 else te.max(as_number(size + start, "int32"), tirx.const(0, "int32"))


def _pad(call: TensorCall) -> te.Tensor:
    if "pads" not in call.operator.attributes:
        return _pad_by_operand(call)
    x, pads, mode = call.source(0), call.ints("pads"), call.text("mode", "constant")
    before, after = pads[: len(x.shape)], pads[len(x.shape) :]
    fill = call.optional(1)
    if mode != "constant":
        return _pad_with_own(call, before, after, mode)
    if fill is not None and prod(sizes(fill)) != 1:
        raise NotLowered("several elements to pad with")
    value = call.constant(0) if fill is None else fill(*(0 for _ in fill.shape))
    result = pad_around(call, x, before, after, value, call.shape)
    return result if any(pads) else call.stage(call.shape, lambda *i: result(*i))


def _pad_by_operand(call: TensorCall) -> te.Tensor:
    """Padding by as much along some `axes` as an operand says."""
    x, pads, fill = call.source(0), call.source(1), call.optional(2)
    value = call.constant(0) if fill is None else fill(*(0 for _ in fill.shape))

    def element(*indices: Expr) -> Expr:
        places, inside = list(indices), []
        for axis in call.ints("axes"):
            places[axis] = indices[axis] - pads(axis).astype("int32")
            inside += [tirx.GE(places[axis], 0), tirx.LT(places[axis], sizes(x)[axis])]
        return te.if_then_else(tirx.all(*inside), x(*places), value)

    return call.stage(call.shape, element)


def _pad_with_own(call: TensorCall, before: Sequence[int], after: Sequence[int], mode: str) -> te.Tensor:
    """Padding with elements of the tensor itself; negative padding cuts some off first."""
    x = call.source(0)
    inner = [n + min(a, 0) + min(b, 0) for n, a, b in zip(sizes(x), before, after, strict=True)]
    axes = list(zip(inner, before, after, strict=True))
    if any(mode == "reflect" and max(a, b) >= n for n, a, b in axes if isinstance(n, int) and max(a, b) > 0):
        raise NotLowered("a reflection longer than the tensor")

    def element(*indices: Expr) -> Expr:
        return x(*(_place(i, n, a, b, mode) for i, (n, a, b) in zip(indices, axes, strict=True)))

    return call.stage(call.shape, element)


def _place(index: Expr, size: Extent, before: int, after: int, mode: str) -> Expr:
    """The place on an axis of the element that the padded axis shows at an index."""
    if before <= 0 and after <= 0:
        return index - before
    place = index - before if before > 0 else index
    start = max(0, -before)
    if mode == "edge":
        place = keep_inside(place, size)
    elif mode == "wrap":
        place = tirx.floormod(place, size)
    elif mode == "reflect":
        place = tirx.Select(tirx.LT(place, 0), -place, place)
        place = tirx.Select(tirx.GE(place, size), 2 * (size - 1) - place, place)
        place = place if isinstance(size, int) else keep_inside(place, size)
    else:
        raise NotLowered(f"padding by {mode}")
    return place + start if start else place


def _depth_to_space(call: TensorCall) -> te.Tensor:
    x, block = call.source(0), call.integer("blocksize")
    channels = call.shape[1]
    blocks_first = call.text("mode", "DCR") == "DCR"

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        offset = h % block * block + w % block
        channel = offset * channels + c if blocks_first else c * block**2 + offset
        return x(n, channel, h // block, w // block)

    return call.stage(call.shape, element)


def _space_to_depth(call: TensorCall) -> te.Tensor:
    x, block = call.source(0), call.integer("blocksize")
    channels = sizes(x)[1]

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        offset = c // channels
        return x(n, c % channels, h * block + offset // block, w * block + offset % block)

    return call.stage(call.shape, element)


def _concat(call: TensorCall) -> te.Tensor:
    parts, axis = call.operands, call.integer("axis")
    starts = list(accumulate((sizes(part)[axis] for part in parts), initial=0))

    def element(*indices: Expr) -> Expr:
        here = indices[axis]
        value: Expr = None
        for part, start, end in reversed(list(zip(parts, starts[:-1], starts[1:], strict=True))):
            own = part(*indices[:axis], here if is_number(start, 0) else here - start, *indices[axis + 1 :])
            value = own if value is None else te.if_then_else(tirx.LT(here, end), own, value)
        return value

    return call.stage(call.shape, element)


def _split(call: TensorCall) -> tuple[te.Tensor, ...]:
    x, axis, parts = call.source(0), call.integer("axis", 0), call.ints("split")
    shape = sizes(x)

    def part(start: int, number: int, size: int) -> te.Tensor:
        def element(*indices: Expr) -> Expr:
            here = indices[axis] + start if start else indices[axis]
            return x(*indices[:axis], here, *indices[axis + 1 :])

        return call.stage((*shape[:axis], size, *shape[axis + 1 :]), element, f"part{number}")

    starts = accumulate(parts, initial=0)
    return tuple(part(start, number, size) for number, (start, size) in enumerate(zip(starts, parts, strict=False)))


def _trilu(call: TensorCall) -> te.Tensor:
    """The elements above or below a diagonal, and zeros."""
    x, offset, is_upper = call.source(0), call.optional(1), call.integer("upper", 1)
    diagonal: Expr = tirx.const(0, "int32")
    if offset is not None:
        low, high = (tirx.const(bound, "int64") for bound in (-(2**30), 2**30))  # beyond any axis, in 32 bits
        diagonal = te.max(te.min(offset(*(0 for _ in offset.shape)), high), low).astype("int32")

    def element(*indices: Expr) -> Expr:
        distance = indices[-1] - indices[-2] - diagonal
        is_kept = tirx.GE(distance, 0) if is_upper else tirx.LE(distance, 0)
        return tirx.Select(is_kept, x(*indices), call.constant(0))

    return call.stage(call.shape, element)


def _shape(call: TensorCall) -> te.Tensor:
    """A list of numbers, and of dynamic extents."""
    end = None if call.operator.attributes.get("end") is None else call.integer("end")
    dimensions = sizes(call.source(0))[call.integer("start", 0) : end]

    def element(i: Expr) -> Expr:
        value = as_number(dimensions[-1] if dimensions else 0, call.dtype)
        for position in reversed(range(len(dimensions) - 1)):
            value = tirx.Select(tirx.EQ(i, position), as_number(dimensions[position], call.dtype), value)
        return value

    return call.stage(call.shape, element)


def _dropout(call: TensorCall) -> tuple[te.Tensor, ...]:
    """A Dropout of inference, which drops nothing."""
    if call.optional(2) is not None:
        raise NotLowered("it may be of training")
    x = call.source(0)
    result = call.stage(call.shape, lambda *i: x(*i))
    mask = [call.stage(call.shape, lambda *_: tirx.const(True, "bool"), "mask")] if len(call.results) > 1 else []
    return (result, *mask)


# --- computed places


def keep_inside(place: Expr, size: Extent) -> Expr:
    """The place, or the nearest one on an axis of that size."""
    return te.max(te.min(place, as_number(size - 1, "int32")), tirx.const(0, "int32"))


def _wrap_negative(index: Expr, size: Extent) -> Expr:
    """An index of an axis: a negative one counts from its end."""
    place = tirx.convert(index).astype("int32")
    return keep_inside(tirx.Select(tirx.LT(place, 0), place + size, place), size)


def _gather(call: TensorCall) -> te.Tensor:
    x, places = call.source(0), call.source(1)
    axis, rank = call.integer("axis", 0), len(places.shape)

    def element(*indices: Expr) -> Expr:
        place = places(*indices[axis : axis + rank])
        return x(*indices[:axis], _wrap_negative(place, sizes(x)[axis]), *indices[axis + rank :])

    return call.stage(call.shape, element)


def _gather_nd(call: TensorCall) -> te.Tensor:
    x, places = call.source(0), call.source(1)
    batch, outer = call.integer("batch_dims", 0), len(places.shape) - 1
    depth = sizes(places)[-1]
    if not isinstance(depth, int):
        raise NotLowered("the number of parts of its indices is not fixed")
    if batch + depth > len(x.shape):
        raise NotLowered("its indices have more parts than the tensor has axes")

    def element(*indices: Expr) -> Expr:
        inner = [_wrap_negative(places(*indices[:outer], p), sizes(x)[batch + p]) for p in range(depth)]
        return x(*indices[:batch], *inner, *indices[outer:])

    return call.stage(call.shape, element)


def _gather_elements(call: TensorCall) -> te.Tensor:
    x, places = call.source(0), call.source(1)
    axis = call.integer("axis", 0) % len(x.shape)

    def element(*indices: Expr) -> Expr:
        place = _wrap_negative(places(*indices), sizes(x)[axis])
        return x(*indices[:axis], place, *indices[axis + 1 :])

    return call.stage(call.shape, element)


def _range(call: TensorCall) -> te.Tensor:
    if call.optional(1) is not None:
        raise NotLowered("its end may be computed")
    start, step = (call.source(n)() for n in (0, 2))
    return call.stage(call.shape, lambda i: start + i.astype(call.dtype) * step)


LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(VIEWS, _reshape),
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Slice": _slice,
    "Pad": _pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Concat": _concat,
    "Split": _split,
    "Trilu": _trilu,
    "Shape": _shape,
    "Dropout": _dropout,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Range": _range,
}
