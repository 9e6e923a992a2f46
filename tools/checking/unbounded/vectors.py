"""Vectors of integers of unknown length: the attributes and shapes of the rule language, and its functions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import z3

from .logic import choice, conjunction, disjunction, implication, negation
from .world import Number, Truth, World, plain

At = Callable[[Number], Number]


@dataclass(eq=False)
class Memory:
    """Results computed for a vector: its numbers, if its length is known; the two vectors that were appended to make
    it; its inverse, if it is a permutation; its axes, if it is a list of axes; its sums up to each place."""

    items: Vector | None = None
    appended: tuple[Vector, Vector] | None = None
    inverse: At | None = None
    axes: Any = None
    running_sum: At | None = None


@dataclass(frozen=True, eq=False)
class Vector:
    """A vector of integers. `get` counts places from the front, `tail` from the back. `items` are its numbers, if the
    length is known. `counts`: it is 0, 1, 2, ...
    """

    length: Number
    get: At
    tail: At
    items: tuple[Number, ...] | None = None
    counts: bool = False
    memory: Memory = field(default_factory=Memory)


def from_front(length: Number, get: At) -> Vector:
    """A vector by its places from the front."""
    return Vector(length, get, lambda at: get(length - 1 - at))


def from_back(length: Number, tail: At) -> Vector:
    """A vector by its places from the back."""
    return Vector(length, lambda at: tail(length - 1 - at), tail)


def vector_of(items: Sequence[Number], world: World) -> Vector:
    """A vector of known length."""
    numbers = tuple(z3.IntVal(i) if isinstance(i, int) else i for i in items)

    def get(at: Number) -> Number:
        at = plain(at)
        if z3.is_int_value(at) and 0 <= at.as_long() < len(numbers):
            return numbers[at.as_long()]
        result = numbers[-1] if numbers else z3.IntVal(0)
        for place in range(len(numbers) - 2, -1, -1):
            result = choice(at == place, numbers[place], result)
        return result

    length = z3.IntVal(len(numbers))
    return Vector(length, get, lambda at: get(length - 1 - at), numbers)


def unknown(name: str, length: int | None, world: World) -> Vector:
    """A vector of unknown numbers; its length is unknown, too, if `length` is None."""
    if length is not None:
        return vector_of([world.integer(f"{name}{i}") for i in range(length)], world)
    count = world.integer(f"{name}.length")
    world.assume(count >= 0)
    return from_front(count, world.function(name))


def list_items(vector: Vector, length: int, world: World) -> Vector:
    """A vector that is known to have this length, with its `items`."""
    if vector.items is not None:
        return vector
    if vector.memory.items is None:
        vector.memory.items = vector_of([vector.get(z3.IntVal(i)) for i in range(length)], world)
    return vector.memory.items


def equal(one: Vector, other: Vector, world: World) -> Truth:
    """Whether two vectors are the same."""
    if one is other:
        return z3.BoolVal(True)
    if one.items is not None and other.items is not None and len(one.items) == len(other.items):
        return conjunction(*[a == b for a, b in zip(one.items, other.items, strict=True)])
    return conjunction(one.length == other.length, world.every(one.length, lambda at: one.tail(at) == other.tail(at)))


def assume_equal(one: Vector, other: Vector, world: World) -> None:
    """Assume that two vectors are the same."""
    world.assume(one.length == other.length)
    for place, item in enumerate(one.items or other.items or ()):
        world.assume((other if one.items is not None else one).get(z3.IntVal(place)) == item)
    inside = one.length
    world.assume_all(lambda at: implication(conjunction(at >= 0, at < inside), one.tail(at) == other.tail(at)))
    world.assume_all(lambda at: implication(conjunction(at >= 0, at < inside), one.get(at) == other.get(at)))


# --- the functions of the rule language; each returns the condition under which it has a value, and the value


def append(world: World, *vectors: Vector) -> tuple[Truth, Vector]:
    """Join vectors, one after the other."""

    def append_two(first: Vector, second: Vector) -> Vector:
        if first.items is not None and second.items is not None:
            return vector_of((*first.items, *second.items), world)
        cut, rest = first.length, second.length
        return Vector(
            cut + rest,
            lambda at: choice(at < cut, first.get(at), second.get(at - cut)),
            lambda at: choice(at < rest, second.tail(at), first.tail(at - rest)),
            memory=Memory(appended=(first, second)),
        )

    return z3.BoolVal(True), reduce(append_two, vectors)


def pop(world: World, vector: Vector) -> tuple[Truth, Vector]:
    """Remove the last number."""
    if vector.items:
        return z3.BoolVal(True), vector_of(vector.items[:-1], world)
    return vector.length > 0, Vector(vector.length - 1, vector.get, lambda at: vector.tail(at + 1))


def push(world: World, vector: Vector, item: Number) -> tuple[Truth, Vector]:
    """Add one number at the end."""
    return append(world, vector, vector_of([item], world))


def replace(world: World, vector: Vector, place: Number, item: Number) -> tuple[Truth, Vector]:
    """Put another number at one place."""
    if (written := _splice(world, vector, place, (item,))) is not None:
        return _inside(vector, place), written
    back = plain(vector.length - 1 - place)
    return _inside(vector, place), Vector(
        vector.length,
        lambda at: choice(at == place, item, vector.get(at)),
        lambda at: choice(at == back, item, vector.tail(at)),
    )


def remove(world: World, vector: Vector, place: Number) -> tuple[Truth, Vector]:
    """Remove the number at one place."""
    if (written := _splice(world, vector, place, ())) is not None:
        return _inside(vector, place), written
    back = plain(vector.length - 1 - place)
    return _inside(vector, place), Vector(
        vector.length - 1,
        lambda at: choice(at < place, vector.get(at), vector.get(at + 1)),
        lambda at: choice(at < back, vector.tail(at), vector.tail(at + 1)),
    )


def _splice(world: World, vector: Vector, place: Number, items: tuple[Number, ...]) -> Vector | None:
    """A vector of known numbers with others at a known place; None if the numbers or the place are unknown."""
    if vector.items is None or not z3.is_int_value(place) or not 0 <= place.as_long() < len(vector.items):
        return None
    cut = place.as_long()
    return vector_of((*vector.items[:cut], *items, *vector.items[cut + 1 :]), world)


def get(world: World, vector: Vector, place: Number) -> tuple[Truth, Number]:
    """The number at a place."""
    return _inside(vector, place), vector.get(place)


def count_up(world: World, count: Number) -> tuple[Truth, Vector]:
    """0, 1, 2, ..."""
    if z3.is_int_value(count) and count.as_long() <= 8:
        return z3.BoolVal(True), vector_of(list(range(count.as_long())), world)
    return count >= 0, Vector(count, lambda at: at, lambda at: count - 1 - at, counts=True)


def repeat(world: World, item: int, count: Number) -> tuple[Truth, Vector]:
    """One number `count` times."""
    return count >= 0, from_back(count, lambda at: z3.IntVal(item))


def contains(world: World, vector: Vector, item: Number) -> Truth:
    """Whether a number is in a vector."""
    if vector.items is not None:
        return disjunction(*[i == item for i in vector.items])
    return negation(world.every(vector.length, lambda at: vector.tail(at) != item))


def _inside(vector: Vector, place: Number) -> Truth:
    return conjunction(place >= 0, place < vector.length)
