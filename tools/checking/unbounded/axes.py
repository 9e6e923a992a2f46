"""Lists of axes of unknown length: which axes are in them, and where the others stand once these are taken out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import z3

from .tensors import Site
from .vectors import Vector
from .world import Number, Truth, World


@dataclass(frozen=True)
class Axes:
    """Axes in rising order, counted from the first one.

    `has`: an axis is among them. `before`: how many of them are lower. `other`: which axis not among them comes at a
    position among those. `choose` takes, for an axis, what belongs to its place in the list, or a default. `parts`:
    lists that it was joined from.
    """

    count: Number
    has: Callable[[Number], Truth]
    before: Callable[[Number], Number]
    other: Callable[[Number], Number]
    choose: Callable[[Number, Callable[[Number], Number], Number], Number]
    parts: tuple[Axes, ...] = ()


def axes_of(vector: Vector, rank: Number, site: Site) -> Axes:
    """The axes of a tensor of this rank that a vector lists: in rising order and in range."""
    world = site.world
    site.require_all(vector.length, lambda at: z3.And(vector.get(at) >= 0, vector.get(at) < rank))
    if vector.items is None and vector.counts:
        return _leading(vector.length, rank)
    if vector.items is not None:
        return _listed(vector.items, site)
    _require_rising(vector, site)
    if (parts := vector.memory.get("parts")) is not None:
        return _joined(*(axes_of(part, rank, site) for part in parts))  # type: ignore[attr-defined]
    if "axes" not in vector.memory:
        vector.memory["axes"] = _unknown(vector, world)
    axes: Axes = vector.memory["axes"]  # type: ignore[assignment]
    others = rank - vector.length  # all axes are below the rank, so that as many positions are left below it
    world.assume(others >= 0)
    world.assume_all(lambda at: z3.Implies(at >= 0, (axes.other(at) < rank) == (at < others)))
    world.assume_all(lambda at: z3.Implies(at >= rank, axes.before(at) == vector.length))
    return axes


def _leading(count: Number, rank: Number) -> Axes:
    def has(axis: Number) -> Truth:
        return z3.And(axis >= 0, axis < count)

    return Axes(
        count,
        has,
        lambda axis: z3.If(axis < count, axis, count),
        lambda at: at + count,
        lambda axis, value, default: z3.If(has(axis), value(axis), default),
    )


def _listed(items: tuple[Number, ...], site: Site) -> Axes:
    for one, following in pairwise(items):
        site.require(one < following)

    def skip(at: Number) -> Number:
        for axis in items:
            at = z3.If(at >= axis, at + 1, at)
        return at

    def choose(axis: Number, value: Callable[[Number], Number], default: Number) -> Number:
        for place, item in enumerate(items):
            default = z3.If(axis == item, value(z3.IntVal(place)), default)
        return default

    return Axes(
        z3.IntVal(len(items)),
        lambda axis: z3.Or([axis == item for item in items]),
        lambda axis: z3.Sum([z3.If(item < axis, 1, 0) for item in items]) if items else z3.IntVal(0),
        skip,
        choose,
    )


def _require_rising(vector: Vector, site: Site) -> None:
    """Each axis is above the one before it, and so, by induction over places, between the first and the last."""
    last = vector.length - 1

    def rises(at: Number) -> Truth:
        return z3.Implies(z3.And(at >= 0, at < last), vector.get(at) < vector.get(at + 1))

    if site.given:
        site.world.assume_all(rises, deepest=0)
    else:
        site.require_all(last, rises)
    first, highest = vector.get(z3.IntVal(0)), vector.get(last)
    site.world.assume_all(
        lambda at: z3.Implies(
            z3.And(at >= 0, at <= last), z3.And(vector.get(at) >= first + at, vector.get(at) <= highest - last + at)
        )
    )


def _joined(first: Axes, second: Axes) -> Axes:
    """Two lists of axes one after the other, all of the first below all of the second. What is left once the second is
    taken out keeps the axes of the first where they were, so that it can be taken out next."""
    return Axes(
        first.count + second.count,
        lambda axis: z3.Or(first.has(axis), second.has(axis)),
        lambda axis: first.before(axis) + second.before(axis),
        lambda at: second.other(first.other(at)),
        lambda axis, value, default: first.choose(
            axis, value, second.choose(axis, lambda place: value(place + first.count), default)
        ),
        (first, second),
    )


def _unknown(vector: Vector, world: World) -> Axes:
    """Axes of which only the list is known, in rising order.

    `place` is where in the list an axis stands, for there is such a function where no axis stands there twice. `before`
    and `other` are given by what defines them: each step over an axis adds one if it is in the list, and what is left
    out of 0, 1, 2, ... are the others, in their order.
    """
    count = vector.length
    place, before, other = (world.function(name) for name in ("place", "before", "other"))

    def has(axis: Number) -> Truth:
        at = place(axis)
        return z3.And(at >= 0, at < count, vector.get(at) == axis)

    world.assume_all(lambda at: z3.Implies(z3.And(at >= 0, at < count), place(vector.get(at)) == at))
    world.assume_all(lambda at: _bounds(at, count, before))
    world.assume_all(lambda at: _is_other(at, before, other, has))
    return Axes(
        count,
        has,
        before,
        other,
        lambda axis, value, default: z3.If(has(axis), value(place(axis)), default),
    )


def _bounds(at: Number, count: Number, before: Callable[[Number], Number]) -> Truth:
    return z3.Implies(at >= 0, z3.And(before(at) >= 0, before(at) <= count, before(at) <= at))


def _is_other(
    at: Number, before: Callable[[Number], Number], other: Callable[[Number], Number], has: Callable[[Number], Truth]
) -> Truth:
    here = other(at)
    return z3.And(
        z3.Implies(at >= 0, z3.And(here >= at, z3.Not(has(here)), here - before(here) == at)),
        z3.Implies(z3.And(at >= 0, z3.Not(has(at))), other(at - before(at)) == at),
    )
