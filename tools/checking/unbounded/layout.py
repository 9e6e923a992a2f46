"""Operators that move, drop, repeat and join elements, as maps of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from .axes import Axes, axes_of
from .tensors import (
    Applied,
    Choice,
    Element,
    Expression,
    Index,
    NoMeaning,
    Parameter,
    Site,
    Tensor,
    broadcast,
    broadcast_index,
)
from .types import Type, class_of
from .vectors import Vector, written_out
from .world import Number, Truth, Unproved, plain


def mirrored(rank: Number, axis: Number) -> Number:
    """An axis counted from the other end."""
    return rank - 1 - axis


def inverse(site: Site, perm: Vector) -> Callable[[Number], Number]:
    """The inverse of a permutation. On a right side it is first proved to be one: its places are mapped into
    themselves, no two to the same, and what maps finitely many so has an inverse."""
    if "inverse" in perm.memory:
        return perm.memory["inverse"]  # type: ignore[return-value]
    world, count = site.world, perm.length
    if perm.counts:
        return lambda at: at

    def inside(at: Number) -> Truth:
        return z3.And(at >= 0, at < count)

    site.require_all(count, lambda at: inside(perm.get(at)))
    if not site.given:
        with world.supposing():
            one, other = (world.integer("place") for _ in range(2))
            world.assume(z3.And(inside(one), inside(other), one != other))
            if not world.follows(perm.get(one) != perm.get(other)):
                raise Unproved("the permutation of the right side may be none")
    if perm.items is not None:
        items = perm.items

        def place(at: Number) -> Number:
            result = z3.IntVal(0)
            for number, item in enumerate(items):
                result = z3.If(item == at, z3.IntVal(number), result)
            return result

        perm.memory["inverse"] = place
        world.permutations.append((perm.get, place))
        return place
    back = world.function("inverse")
    world.assume_all(lambda at: z3.Implies(inside(at), z3.And(inside(perm.get(at)), back(perm.get(at)) == at)))
    world.assume_all(lambda at: z3.Implies(inside(at), z3.And(inside(back(at)), perm.get(back(at)) == at)))
    perm.memory["inverse"] = back
    world.permutations.append((perm.get, back))
    return back


def _transpose(site: Site, x: Tensor, perm: Vector) -> Tensor:
    site.require(perm.length == x.rank)
    back, rank = inverse(site, perm), x.rank
    return Tensor(
        rank,
        lambda at: x.size(mirrored(rank, perm.get(mirrored(rank, at)))),
        lambda index: x.element(lambda at: index(mirrored(rank, back(mirrored(rank, at))))),
    )


def _expand(site: Site, x: Tensor, shape: Vector) -> Tensor:
    """ONNX widens the shape, too; here it is that of the result."""
    site.require(x.rank <= shape.length)
    site.require_all(
        shape.length,
        lambda at: z3.And(shape.tail(at) >= 0, z3.Or(x.extent(at) == 1, x.extent(at) == shape.tail(at))),
    )
    return Tensor(shape.length, shape.tail, lambda index: x.element(broadcast_index(x, index)))


def _squeeze(site: Site, x: Tensor, axes: Vector) -> Tensor:
    gone = axes_of(axes, x.rank, site)
    outer, inner = dropped(x.rank, gone)
    site.require_all(x.rank, lambda at: z3.Implies(gone.has(mirrored(x.rank, at)), x.size(at) == 1))
    return Tensor(
        x.rank - gone.count,
        lambda at: x.size(inner(at)),
        lambda index: x.element(lambda at: z3.If(gone.has(mirrored(x.rank, at)), z3.IntVal(0), index(outer(at)))),
    )


def dropped(rank: Number, gone: Axes) -> tuple[Index, Index]:
    """Where an axis stands once others are taken out of a tensor of this rank, and where it stood."""
    left = rank - gone.count

    def outer(at: Number) -> Number:
        front = mirrored(rank, at)
        return mirrored(left, front - gone.before(front))

    return outer, lambda at: mirrored(rank, gone.other(mirrored(left, at)))


def _unsqueeze(site: Site, x: Tensor, axes: Vector) -> Tensor:
    rank = x.rank + axes.length
    new = axes_of(axes, rank, site)
    outer, inner = dropped(rank, new)
    return Tensor(
        rank,
        lambda at: z3.If(new.has(mirrored(rank, at)), 1, x.size(outer(at))),
        lambda index: x.element(lambda at: index(inner(at))),
    )


def _slice(site: Site, x: Tensor, starts: Vector, ends: Vector, axes: Vector, steps: Vector) -> Tensor:
    rank, world = x.rank, site.world
    site.require(z3.And(starts.length == axes.length, ends.length == axes.length, steps.length == axes.length))
    count = next((len(v.items) for v in (starts, ends, axes, steps) if v.items is not None), None)
    if count is not None:
        starts, ends, axes, steps = (written_out(v, count, world) for v in (starts, ends, axes, steps))
    cut = axes_of(axes, rank, site)
    site.require_all(axes.length, lambda at: _canonical(starts.get(at), ends.get(at), steps.get(at)))

    def first(at: Number, place: Number) -> Number:
        return _first(starts.get(place), plain(steps.get(place)), x.size(at))

    def size(at: Number) -> Number:
        return cut.choose(
            mirrored(rank, at),
            lambda place: _count(first(at, place), ends.get(place), plain(steps.get(place)), x.size(at)),
            x.size(at),
        )

    def element(index: Index) -> Expression:
        return x.element(
            lambda at: cut.choose(
                mirrored(rank, at), lambda place: first(at, place) + steps.get(place) * index(at), index(at)
            )
        )

    return Tensor(rank, size, element)


def _canonical(start: Number, end: Number, step: Number) -> Any:
    """Positions count from 0, but where a slice is written to run downwards."""
    step = plain(step)
    if z3.is_int_value(step) and step.as_long() < 0:
        return z3.BoolVal(True)
    return z3.And(step > 0, start >= 0, end >= 0)


def _clamped(x: Number, low: Number, high: Number) -> Number:
    return z3.If(x < low, low, z3.If(x > high, high, x))


def _runs_down(step: Number) -> bool:
    return bool(z3.is_int_value(step) and step.as_long() < 0)


def _first(start: Number, step: Number, size: Number) -> Number:
    if _runs_down(step):
        return _clamped(z3.If(start < 0, start + size, start), z3.IntVal(0), size - 1)
    return z3.If(start > size, size, start)


def _count(first: Number, end: Number, step: Number, size: Number) -> Number:
    """How many positions there are from the first to the end, which is not among them."""
    if _runs_down(step):
        last = _clamped(z3.If(end < 0, end + size, end), z3.IntVal(-1), size - 1)
        return z3.If(size <= 0, z3.IntVal(0), _slots(first - last, plain(-step)))
    return _slots(z3.If(end > size, size, end) - first, step)


def _slots(length: Number, step: Number) -> Number:
    """A length in steps, rounded up."""
    if z3.is_int_value(step) and step.as_long() == 1:
        return z3.If(length > 0, length, 0)
    return z3.If(length > 0, (length + step - 1) / step, 0)


def _concat(site: Site, a: Tensor, b: Tensor, axis: Number) -> Tensor:
    rank = a.rank
    site.require(z3.And(rank == b.rank, axis >= 0, axis < rank))
    along = plain(mirrored(rank, axis))
    site.require_all(rank, lambda at: z3.Or(at == along, a.size(at) == b.size(at)))
    cut = a.size(along)
    result = Tensor(
        rank,
        lambda at: z3.If(at == along, cut + b.size(along), a.size(at)),
        lambda index: Choice(
            index(along) < cut,
            a.element(index),
            b.element(lambda at: z3.If(at == along, index(at) - cut, index(at))),
        ),
    )
    result.parts = (a, b, along)
    return result


def _split(site: Site, x: Tensor, sizes: Vector, axis: Number) -> Callable[[Number], Tensor]:
    """The part of a number: it begins where all before it end."""
    rank = x.rank
    site.require(z3.And(axis >= 0, axis < rank))
    along = plain(mirrored(rank, axis))
    begin = _running_sum(site, sizes)
    site.require_all(sizes.length, lambda at: sizes.get(at) >= 0)
    site.require(begin(sizes.length) == x.size(along))

    def part(number: Number) -> Tensor:
        site.require(z3.And(number >= 0, number < sizes.length))
        start, size = begin(number), sizes.get(number)
        site.world.assume(z3.And(start >= 0, start + size <= x.size(along)))
        return Tensor(
            rank,
            lambda at: z3.If(at == along, size, x.size(at)),
            lambda index: x.element(lambda at: z3.If(at == along, index(at) + start, index(at))),
            type=x.type,
        )

    return part


def _running_sum(site: Site, sizes: Vector) -> Callable[[Number], Number]:
    """The sum of all numbers before a place."""
    if sizes.items is not None:
        items = sizes.items

        def known(at: Number) -> Number:
            return z3.Sum([z3.If(place < at, item, 0) for place, item in enumerate(items)] or [z3.IntVal(0)])

        return known
    if "sum" not in sizes.memory:
        begin = site.world.function("sum")
        site.world.assume(begin(z3.IntVal(0)) == 0)
        site.world.assume_all(lambda at: z3.Implies(at >= 0, begin(at + 1) == begin(at) + sizes.get(at)))
        sizes.memory["sum"] = begin
    return sizes.memory["sum"]  # type: ignore[return-value]


def _pad(site: Site, x: Tensor, pads: Vector, fill: Tensor | None, mode: object) -> Tensor:
    if mode != "constant" and not site.given:
        raise NoMeaning(f"Pad with mode {mode}")
    rank, world = x.rank, site.world
    site.require(pads.length == 2 * rank)

    def low(at: Number) -> Number:
        return pads.get(mirrored(rank, at))

    def high(at: Number) -> Number:
        return pads.tail(at)

    site.require_all(rank, lambda at: x.size(at) + _negative(low(at)) + _negative(high(at)) >= 0)

    def element(index: Index) -> Expression:
        def moved(at: Number) -> Number:
            return index(at) - low(at)

        inside = world.every(rank, lambda at: z3.And(moved(at) >= 0, moved(at) < x.size(at)))
        outside: Expression
        if mode != "constant":
            outside = Element(elsewhere, index)  # whatever it is
        else:
            outside = Parameter(0.0, x.type) if fill is None else fill.element(lambda at: z3.IntVal(0))
        return Choice(inside, x.element(moved), outside)

    elsewhere = Tensor(rank, x.size, x.element, "padding", type=x.type)
    if fill is not None:
        one_element(site, fill)
    return Tensor(rank, lambda at: x.size(at) + low(at) + high(at), element)


def _negative(pad: Number) -> Number:
    return z3.If(pad < 0, pad, 0)


def one_element(site: Site, x: Tensor) -> None:
    """A tensor has one element."""
    site.require_all(x.rank, lambda at: x.size(at) == 1)


def _tile(site: Site, x: Tensor, repeats: Vector) -> Tensor:
    site.require(repeats.length == x.rank)
    site.require_all(x.rank, lambda at: repeats.tail(at) >= 0)
    return Tensor(
        x.rank,
        lambda at: x.size(at) * repeats.tail(at),
        lambda index: x.element(
            lambda at: z3.If(
                x.size(at) == 1, z3.IntVal(0), z3.If(repeats.tail(at) == 1, index(at), index(at) % x.size(at))
            )
        ),
    )


def full(site: Site, shape: Vector, value: Expression, dtype: object) -> Tensor:
    """A tensor of one number."""
    type_ = Type()
    if isinstance(dtype, Type):
        type_.unite(dtype)
    elif isinstance(dtype, str) and (known := class_of(dtype)):
        type_.restrict({known}, dtype)
    site.require_all(shape.length, lambda at: shape.tail(at) >= 0)
    number = Parameter(value.value, type_) if isinstance(value, Parameter) else value
    return Tensor(shape.length, shape.tail, lambda index: number, type=type_, value=number)


MEANINGS: dict[str, Callable[..., Any]] = {
    "Transpose": _transpose,
    "Expand": _expand,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Pad": _pad,
    "Tile": _tile,
}


def elementwise(site: Site, head: str, operands: list[Tensor | None], attributes: tuple[object, ...]) -> Tensor:
    """An element-wise operator. Operands broadcast, but the slope of PRelu to the first, and bounds are scalars."""
    given = [x for x in operands if x is not None]
    if head == "Clip":
        for bound in given[1:]:
            site.require(bound.rank == 0)
        rank, size = given[0].rank, given[0].size
    else:
        rank, size = broadcast(site, *given)
    if head == "PRelu":
        first = given[0]
        site.require(rank == first.rank)
        site.require_all(rank, lambda at: size(at) == first.size(at))

    def element(index: Index) -> Expression:
        parts = [None if x is None else x.element(_aligned(x, size, index)) for x in operands]
        return Applied(head, tuple(parts), attributes)

    return Tensor(rank, size, element)


def _aligned(x: Tensor, size: Index, index: Index) -> Index:
    return index if x.size is size else broadcast_index(x, index)
