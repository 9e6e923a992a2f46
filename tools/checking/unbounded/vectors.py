"""Vectors of integers of unknown length: the attributes and shapes of the rule language, and its functions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import z3

from .world import Number, Truth, World, plain

At = Callable[[Number], Number]


@dataclass(frozen=True, eq=False)
class Vector:
    """`get` counts places from the front, `tail` from the back. `items`: all of it, where the length is known.

    `counts`: it is 0, 1, 2, ...
    """

    length: Number
    get: At
    tail: At
    items: tuple[Number, ...] | None = None
    counts: bool = False

    @cached_property
    def memory(self) -> dict[str, object]:
        """What was worked out about it."""
        return {}


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
            result = z3.If(at == place, numbers[place], result)
        return result

    length = z3.IntVal(len(numbers))
    return Vector(length, get, lambda at: get(length - 1 - at), numbers)


def unknown(name: str, length: int | None, world: World) -> Vector:
    """A vector of which at most the length is known."""
    if length is not None:
        return vector_of([world.integer(f"{name}{i}") for i in range(length)], world)
    count = world.integer(f"{name}.length")
    world.assume(count >= 0)
    return from_front(count, world.function(name))


def written_out(vector: Vector, length: int, world: World) -> Vector:
    """A vector that is known to have this length, by its numbers."""
    if vector.items is not None:
        return vector
    if "items" not in vector.memory:
        vector.memory["items"] = vector_of([vector.get(z3.IntVal(i)) for i in range(length)], world)
    return vector.memory["items"]  # type: ignore[return-value]


def equal(one: Vector, other: Vector, world: World) -> Truth:
    """Whether two vectors are the same."""
    if one is other:
        return z3.BoolVal(True)
    if one.items is not None and other.items is not None and len(one.items) == len(other.items):
        return z3.And([a == b for a, b in zip(one.items, other.items, strict=True)])
    return z3.And(one.length == other.length, world.every(one.length, lambda at: one.tail(at) == other.tail(at)))


def assume_equal(one: Vector, other: Vector, world: World) -> None:
    """Two vectors are the same."""
    world.assume(one.length == other.length)
    for place, item in enumerate(one.items or other.items or ()):
        world.assume((other if one.items is not None else one).get(z3.IntVal(place)) == item)
    inside = one.length
    world.assume_all(lambda at: z3.Implies(z3.And(at >= 0, at < inside), one.tail(at) == other.tail(at)))
    world.assume_all(lambda at: z3.Implies(z3.And(at >= 0, at < inside), one.get(at) == other.get(at)))


# --- the functions of the rule language; each says too when it has a value


def append(world: World, *vectors: Vector) -> tuple[Truth, Vector]:
    """One after the other."""
    result = vectors[0]
    for vector in vectors[1:]:
        result = _appended(result, vector, world)
    return z3.BoolVal(True), result


def _appended(first: Vector, second: Vector, world: World) -> Vector:
    if first.items is not None and second.items is not None:
        return vector_of((*first.items, *second.items), world)
    cut, rest = first.length, second.length
    result = Vector(
        cut + rest,
        lambda at: z3.If(at < cut, first.get(at), second.get(at - cut)),
        lambda at: z3.If(at < rest, second.tail(at), first.tail(at - rest)),
    )
    result.memory["parts"] = (first, second)
    return result


def pop(world: World, vector: Vector) -> tuple[Truth, Vector]:
    """Without the last."""
    if vector.items:
        return z3.BoolVal(True), vector_of(vector.items[:-1], world)
    return vector.length > 0, Vector(vector.length - 1, vector.get, lambda at: vector.tail(at + 1))


def push(world: World, vector: Vector, item: Number) -> tuple[Truth, Vector]:
    """With one more at the end."""
    return append(world, vector, vector_of([item], world))


def replace(world: World, vector: Vector, place: Number, item: Number) -> tuple[Truth, Vector]:
    """With another number at one place."""
    inside = _inside(vector, place)
    if vector.items is not None and z3.is_int_value(place) and 0 <= place.as_long() < len(vector.items):
        cut = place.as_long()
        return inside, vector_of((*vector.items[:cut], item, *vector.items[cut + 1 :]), world)
    back = plain(vector.length - 1 - place)
    return inside, Vector(
        vector.length,
        lambda at: z3.If(at == place, item, vector.get(at)),
        lambda at: z3.If(at == back, item, vector.tail(at)),
    )


def remove(world: World, vector: Vector, place: Number) -> tuple[Truth, Vector]:
    """Without the number at one place."""
    inside = _inside(vector, place)
    if vector.items is not None and z3.is_int_value(place) and 0 <= place.as_long() < len(vector.items):
        cut = place.as_long()
        return inside, vector_of((*vector.items[:cut], *vector.items[cut + 1 :]), world)
    back = plain(vector.length - 1 - place)
    return inside, Vector(
        vector.length - 1,
        lambda at: z3.If(at < place, vector.get(at), vector.get(at + 1)),
        lambda at: z3.If(at < back, vector.tail(at), vector.tail(at + 1)),
    )


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
        return z3.Or([i == item for i in vector.items])
    return z3.Not(world.every(vector.length, lambda at: vector.tail(at) != item))


def _inside(vector: Vector, place: Number) -> Truth:
    return z3.And(place >= 0, place < vector.length)
