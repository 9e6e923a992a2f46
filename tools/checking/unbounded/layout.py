"""Operators that move, drop, repeat and join elements, as maps of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from .axes import Axes, axes_of
from .logic import choice, conjunction, disjunction, implication
from .tensors import (
    Applied,
    Conditional,
    Element,
    Expression,
    Index,
    Joined,
    NoMeaning,
    Parameter,
    Side,
    Tensor,
    broadcast,
    broadcast_index,
)
from .types import ElementType, class_of
from .vectors import Vector, list_items
from .world import Number, Renaming, Truth, Unproved, plain


def mirror(rank: Number, axis: Number) -> Number:
    """The number of an axis counted from the other end."""
    return rank - 1 - axis


def inverse(side: Side, perm: Vector) -> Callable[[Number], Number]:
    """The inverse of a permutation.

    On a right side the vector is first proved to be a permutation: it maps its places into themselves, no two to the
    same one, and such a map of finitely many places has an inverse.
    """
    if perm.memory.inverse is not None:
        return perm.memory.inverse
    world, count = side.world, perm.length
    if perm.counts:
        return lambda at: at

    def inside(at: Number) -> Truth:
        return conjunction(at >= 0, at < count)

    side.require_all(count, lambda at: inside(perm.get(at)))
    if not side.given:
        with world.supposing():
            one, other = (world.integer("place") for _ in range(2))
            world.assume(conjunction(inside(one), inside(other), one != other))
            if not world.follows(perm.get(one) != perm.get(other)):
                raise Unproved("the permutation of the right side may be none")
    if perm.items is not None:
        items = perm.items

        def place(at: Number) -> Number:
            result = z3.IntVal(0)
            for number, item in enumerate(items):
                result = choice(item == at, z3.IntVal(number), result)
            return result

        perm.memory.inverse = place
        world.permutations.append(Renaming(perm.get, place))
        return place
    back = world.function("inverse")
    world.assume_all(lambda at: implication(inside(at), conjunction(inside(perm.get(at)), back(perm.get(at)) == at)))
    world.assume_all(lambda at: implication(inside(at), conjunction(inside(back(at)), perm.get(back(at)) == at)))
    perm.memory.inverse = back
    world.permutations.append(Renaming(perm.get, back))
    return back


def _transpose(side: Side, x: Tensor, perm: Vector) -> Tensor:
    side.require(perm.length == x.rank)
    back, rank = inverse(side, perm), x.rank
    return Tensor(
        rank,
        lambda at: x.size(mirror(rank, perm.get(mirror(rank, at)))),
        lambda index: x.element(lambda at: index(mirror(rank, back(mirror(rank, at))))),
    )


def _expand(side: Side, x: Tensor, shape: Vector) -> Tensor:
    """Broadcast to a shape, which is taken to be that of the result, although ONNX would broadcast the shape, too."""
    side.require(x.rank <= shape.length)
    side.require_all(
        shape.length,
        lambda at: conjunction(shape.tail(at) >= 0, disjunction(x.extent(at) == 1, x.extent(at) == shape.tail(at))),
    )
    return Tensor(shape.length, shape.tail, lambda index: x.element(broadcast_index(x, index)))


def _squeeze(side: Side, x: Tensor, axes: Vector) -> Tensor:
    gone = axes_of(axes, x.rank, side)
    outer, inner = drop_axes(x.rank, gone)
    side.require_all(x.rank, lambda at: implication(gone.has(mirror(x.rank, at)), x.size(at) == 1))
    return Tensor(
        x.rank - gone.count,
        lambda at: x.size(inner(at)),
        lambda index: x.element(lambda at: choice(gone.has(mirror(x.rank, at)), z3.IntVal(0), index(outer(at)))),
    )


def drop_axes(rank: Number, gone: Axes) -> tuple[Index, Index]:
    """Two maps of axes for a tensor of this rank from which some axes are removed: from the numbers of the remaining
    axes before to those afterwards, and back."""
    rest = rank - gone.count

    def outer(at: Number) -> Number:
        front = mirror(rank, at)
        return mirror(rest, front - gone.before(front))

    return outer, lambda at: mirror(rank, gone.other(mirror(rest, at)))


def _unsqueeze(side: Side, x: Tensor, axes: Vector) -> Tensor:
    rank = x.rank + axes.length
    new = axes_of(axes, rank, side)
    outer, inner = drop_axes(rank, new)
    return Tensor(
        rank,
        lambda at: choice(new.has(mirror(rank, at)), 1, x.size(outer(at))),
        lambda index: x.element(lambda at: index(inner(at))),
    )


def _slice(side: Side, x: Tensor, starts: Vector, ends: Vector, axes: Vector, steps: Vector) -> Tensor:
    rank, world = x.rank, side.world
    side.require(conjunction(starts.length == axes.length, ends.length == axes.length, steps.length == axes.length))
    count = next((len(v.items) for v in (starts, ends, axes, steps) if v.items is not None), None)
    if count is not None:
        starts, ends, axes, steps = (list_items(v, count, world) for v in (starts, ends, axes, steps))
    cut = axes_of(axes, rank, side)
    side.require_all(axes.length, lambda at: _is_canonical(starts.get(at), ends.get(at), steps.get(at)))

    def first(at: Number, place: Number) -> Number:
        return _first(starts.get(place), plain(steps.get(place)), x.size(at))

    def size(at: Number) -> Number:
        return cut.choose(
            mirror(rank, at),
            lambda place: _count(first(at, place), ends.get(place), plain(steps.get(place)), x.size(at)),
            x.size(at),
        )

    def element(index: Index) -> Expression:
        return x.element(
            lambda at: cut.choose(
                mirror(rank, at), lambda place: first(at, place) + steps.get(place) * index(at), index(at)
            )
        )

    return Tensor(rank, size, element)


def _is_canonical(start: Number, end: Number, step: Number) -> Any:
    """Whether start and end count from 0; those of a slice that runs downwards need not."""
    step = plain(step)
    return z3.BoolVal(True) if _runs_down(step) else conjunction(step > 0, start >= 0, end >= 0)


def _runs_down(step: Number) -> bool:
    return bool(z3.is_int_value(step) and step.as_long() < 0)


def _clamp(x: Number, low: Number, high: Number) -> Number:
    return choice(x < low, low, choice(x > high, high, x))


def _first(start: Number, step: Number, size: Number) -> Number:
    """The first position of a slice."""
    if _runs_down(step):
        return _clamp(choice(start < 0, start + size, start), z3.IntVal(0), size - 1)
    return choice(start > size, size, start)


def _count(first: Number, end: Number, step: Number, size: Number) -> Number:
    """The number of positions from the first up to, and without, the end."""
    if _runs_down(step):
        last = _clamp(choice(end < 0, end + size, end), z3.IntVal(-1), size - 1)
        return choice(size <= 0, z3.IntVal(0), _divide_up(first - last, plain(-step)))
    return _divide_up(choice(end > size, size, end) - first, step)


def _divide_up(length: Number, step: Number) -> Number:
    """A length in steps, rounded up; 0 for a negative one."""
    if z3.is_int_value(step) and step.as_long() == 1:
        return choice(length > 0, length, 0)
    return choice(length > 0, (length + step - 1) / step, 0)


def _concat(side: Side, a: Tensor, b: Tensor, axis: Number) -> Tensor:
    rank = a.rank
    side.require(conjunction(rank == b.rank, axis >= 0, axis < rank))
    along = plain(mirror(rank, axis))
    side.require_all(rank, lambda at: disjunction(at == along, a.size(at) == b.size(at)))
    cut = a.size(along)
    result = Tensor(
        rank,
        lambda at: choice(at == along, cut + b.size(along), a.size(at)),
        lambda index: Conditional(
            index(along) < cut,
            a.element(index),
            b.element(lambda at: choice(at == along, index(at) - cut, index(at))),
        ),
    )
    result.joined = Joined(a, b, along)
    return result


def _split(side: Side, x: Tensor, sizes: Vector, axis: Number) -> Callable[[Number], Tensor]:
    """The parts by number: each begins where the one before it ends."""
    rank = x.rank
    side.require(conjunction(axis >= 0, axis < rank))
    along = plain(mirror(rank, axis))
    begin = _running_sum(side, sizes)
    side.require_all(sizes.length, lambda at: sizes.get(at) >= 0)
    side.require(begin(sizes.length) == x.size(along))

    def part(number: Number) -> Tensor:
        side.require(conjunction(number >= 0, number < sizes.length))
        start, size = begin(number), sizes.get(number)
        side.world.assume(conjunction(start >= 0, start + size <= x.size(along)))
        return Tensor(
            rank,
            lambda at: choice(at == along, size, x.size(at)),
            lambda index: x.element(lambda at: choice(at == along, index(at) + start, index(at))),
            type=x.type,
        )

    return part


def _running_sum(side: Side, sizes: Vector) -> Callable[[Number], Number]:
    """The sum of all numbers before a place."""
    if sizes.items is not None:
        items = sizes.items
        return lambda at: z3.Sum([choice(place < at, item, 0) for place, item in enumerate(items)] or [z3.IntVal(0)])
    if sizes.memory.running_sum is None:
        begin = side.world.function("sum")
        side.world.assume(begin(z3.IntVal(0)) == 0)
        side.world.assume_all(lambda at: implication(at >= 0, begin(at + 1) == begin(at) + sizes.get(at)))
        sizes.memory.running_sum = begin
    return sizes.memory.running_sum


def _pad(side: Side, x: Tensor, pads: Vector, fill: Tensor | None, mode: object) -> Tensor:
    if mode != "constant" and not side.given:
        raise NoMeaning(f"Pad with mode {mode}")
    rank, world = x.rank, side.world
    side.require(pads.length == 2 * rank)

    def low(at: Number) -> Number:
        return pads.get(mirror(rank, at))

    def high(at: Number) -> Number:
        return pads.tail(at)

    def cut(pad: Number) -> Number:
        return choice(pad < 0, pad, 0)

    side.require_all(rank, lambda at: x.size(at) + cut(low(at)) + cut(high(at)) >= 0)

    def element(index: Index) -> Expression:
        def position(at: Number) -> Number:
            return index(at) - low(at)

        inside = world.every(rank, lambda at: conjunction(position(at) >= 0, position(at) < x.size(at)))
        outside: Expression
        if mode != "constant":
            outside = Element(padding, index)  # an element of which nothing is known
        else:
            outside = Parameter(0.0, x.type) if fill is None else fill.element(lambda at: z3.IntVal(0))
        return Conditional(inside, x.element(position), outside)

    padding = Tensor(rank, x.size, x.element, "padding", type=x.type)
    if fill is not None:
        side.require_all(fill.rank, lambda at: fill.size(at) == 1)
    return Tensor(rank, lambda at: x.size(at) + low(at) + high(at), element)


def _tile(side: Side, x: Tensor, repeats: Vector) -> Tensor:
    side.require(repeats.length == x.rank)
    side.require_all(x.rank, lambda at: repeats.tail(at) >= 0)
    return Tensor(
        x.rank,
        lambda at: x.size(at) * repeats.tail(at),
        lambda index: x.element(
            lambda at: choice(
                x.size(at) == 1, z3.IntVal(0), choice(repeats.tail(at) == 1, index(at), index(at) % x.size(at))
            )
        ),
    )


def full(side: Side, shape: Vector, value: Expression, dtype: object) -> Tensor:
    """A tensor all of whose elements are one number."""
    type_ = ElementType()
    if isinstance(dtype, ElementType):
        type_.unite(dtype)
    elif isinstance(dtype, str) and (class_ := class_of(dtype)):
        type_.restrict({class_}, dtype)
    side.require_all(shape.length, lambda at: shape.tail(at) >= 0)
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


def elementwise(side: Side, head: str, operands: list[Tensor | None], attributes: tuple[object, ...]) -> Tensor:
    """An element-wise operator. Operands broadcast; PRelu's slope only to the first, and Clip's bounds are scalars."""
    first, *others = (x for x in operands if x is not None)
    if head == "Clip":
        for bound in others:
            side.require(bound.rank == 0)
        rank, size = first.rank, first.size
    else:
        rank, size = broadcast(side, first, *others)
    if head == "PRelu":
        side.require(rank == first.rank)
        side.require_all(rank, lambda at: size(at) == first.size(at))

    def operand_element(x: Tensor | None, index: Index) -> Expression | None:
        if x is None:
            return None
        return x.element(index if x.size is size else broadcast_index(x, index))

    return Tensor(
        rank, size, lambda index: Applied(head, tuple(operand_element(x, index) for x in operands), attributes)
    )
