"""Lists of axes of unknown length: which axes are in them, and the positions of the others after these are removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import z3

from .logic import choice, conjunction, disjunction, implication, negation
from .tensors import Side
from .vectors import Vector
from .world import Number, Truth, World


@dataclass(frozen=True)
class Axes:
    """Axes in rising order, counted from the first one.

    `has` tells whether an axis is in the list, `before` how many axes of the list are lower than an axis. `other` gives
    the axis at a position among those that are not in the list. `choose` maps an axis to the value at its place in the
    list, or to a default. `parts` are the lists that were joined into this one.
    """

    count: Number
    has: Callable[[Number], Truth]
    before: Callable[[Number], Number]
    other: Callable[[Number], Number]
    choose: Callable[[Number, Callable[[Number], Number], Number], Number]
    parts: tuple[Axes, ...] = ()


def axes_of(vector: Vector, rank: Number, side: Side) -> Axes:
    """The axes of a tensor of this rank that a vector lists, required to be in range and in rising order."""
    world = side.world
    side.require_all(vector.length, lambda at: conjunction(vector.get(at) >= 0, vector.get(at) < rank))
    if vector.items is None and vector.counts:
        return _leading(vector.length, rank)
    if vector.items is not None:
        return _of_items(vector.items, side)
    _require_rising(vector, side)
    if vector.memory.appended is not None:
        first, second = (axes_of(part, rank, side) for part in vector.memory.appended)
        return _join(first, second)
    if vector.memory.axes is None:
        vector.memory.axes = _unknown(vector, world)
    axes: Axes = vector.memory.axes
    others = rank - vector.length  # all listed axes are below the rank, and these are the remaining ones
    world.assume(others >= 0)
    world.assume_all(lambda at: implication(at >= 0, (axes.other(at) < rank) == (at < others)))
    world.assume_all(lambda at: implication(at >= rank, axes.before(at) == vector.length))
    return axes


def _leading(count: Number, rank: Number) -> Axes:
    def has(axis: Number) -> Truth:
        return conjunction(axis >= 0, axis < count)

    return Axes(
        count,
        has,
        lambda axis: choice(axis < count, axis, count),
        lambda at: at + count,
        lambda axis, value, default: choice(has(axis), value(axis), default),
    )


def _of_items(items: tuple[Number, ...], side: Side) -> Axes:
    for one, following in pairwise(items):
        side.require(one < following)

    def skip(at: Number) -> Number:
        for axis in items:
            at = choice(at >= axis, at + 1, at)
        return at

    def choose(axis: Number, value: Callable[[Number], Number], default: Number) -> Number:
        for place, item in enumerate(items):
            default = choice(axis == item, value(z3.IntVal(place)), default)
        return default

    return Axes(
        z3.IntVal(len(items)),
        lambda axis: disjunction(*[axis == item for item in items]),
        lambda axis: z3.Sum([choice(item < axis, 1, 0) for item in items]) if items else z3.IntVal(0),
        skip,
        choose,
    )


def _require_rising(vector: Vector, side: Side) -> None:
    """Require each axis to be above the one before it, and conclude, by induction over places, how far apart it is
    from the first and the last."""
    last = vector.length - 1

    def rises(at: Number) -> Truth:
        return implication(conjunction(at >= 0, at < last), vector.get(at) < vector.get(at + 1))

    if side.given:
        side.world.assume_all(rises, deepest=0)
    else:
        side.require_all(last, rises)
    first, highest = vector.get(z3.IntVal(0)), vector.get(last)
    side.world.assume_all(
        lambda at: implication(
            conjunction(at >= 0, at <= last),
            conjunction(vector.get(at) >= first + at, vector.get(at) <= highest - last + at),
        )
    )


def _join(first: Axes, second: Axes) -> Axes:
    """Two lists of axes one after the other, all of the first below all of the second. So removing the second list
    leaves the axes of the first where they were, and these are removed next."""
    return Axes(
        first.count + second.count,
        lambda axis: disjunction(first.has(axis), second.has(axis)),
        lambda axis: first.before(axis) + second.before(axis),
        lambda at: second.other(first.other(at)),
        lambda axis, value, default: first.choose(
            axis, value, second.choose(axis, lambda place: value(place + first.count), default)
        ),
        (first, second),
    )


def _unknown(vector: Vector, world: World) -> Axes:
    """The axes of an unknown list in rising order.

    `place` is the position of an axis in the list; this function exists because no axis is in the list twice. `before`
    and `other` are given by their defining equations: each step over an axis adds one if it is in the list, and the
    others are the rest of 0, 1, 2, ... in their order.
    """
    count = vector.length
    place, before, other = (world.function(name) for name in ("place", "before", "other"))

    def has(axis: Number) -> Truth:
        at = place(axis)
        return conjunction(at >= 0, at < count, vector.get(at) == axis)

    def is_other(at: Number) -> Truth:
        here = other(at)
        return conjunction(
            implication(at >= 0, conjunction(here >= at, negation(has(here)), here - before(here) == at)),
            implication(conjunction(at >= 0, negation(has(at))), other(at - before(at)) == at),
        )

    world.assume_all(lambda at: implication(conjunction(at >= 0, at < count), place(vector.get(at)) == at))
    world.assume_all(
        lambda at: implication(at >= 0, conjunction(before(at) >= 0, before(at) <= count, before(at) <= at))
    )
    world.assume_all(is_other)
    return Axes(
        count,
        has,
        before,
        other,
        lambda axis, value, default: choice(has(axis), value(place(axis)), default),
    )
