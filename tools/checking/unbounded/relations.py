"""The facts, functions and primitives of the rule language, for tensors of unknown rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol

import z3

from ....rules.sexpr import Node
from . import layout, vectors
from .logic import choice, conjunction, disjunction, implication, negation
from .tensors import Applied, NoMeaning, Parameter, Side, Tensor, broadcast
from .vectors import Vector, from_back, from_front, vector_of
from .world import Number, World, plain


class Reader(Protocol):
    """Reads the facts of a rule (see `reading.Reading`)."""

    world: World
    side: Side
    signs: dict[str, set[str]]

    def number(self, x: Parameter) -> float | str:
        """The value of a parameter if a fact gives it, else its name."""

    def value(self, node: Node, sort: str = "") -> Any:
        """The value of a term."""

    def bind(self, node: Node, value: Any) -> None:
        """Bind a variable to a value."""


def _true() -> Any:
    return z3.BoolVal(True)


# --- functions of tensors


def _value(reading: Reader, x: Tensor) -> Any:
    """The number that all elements are equal to, and by which they may therefore be replaced."""
    if x.value is None:
        x.value = Parameter(f"value of {x.name or id(x)}", x.type)
        number = x.value
        x.element = lambda index: number
    return x.value


LOOKUPS: dict[str, Callable[[Any, Tensor], Any]] = {
    "shape": lambda reading, x: x.shape,
    "dtype": lambda reading, x: x.type,
    "value": _value,
}


# --- functions of numbers and vectors


def _arithmetic(head: str, whole: Callable[[Number, Number], Number]) -> Callable[..., Any]:
    """A function of two or more numbers: `whole` on whole ones, the operator `head` on others."""

    def compute(reading: Reader, *items: Any) -> Any:
        if all(map(z3.is_expr, items)):
            return _true(), reduce(whole, items)
        if all(isinstance(i, (Parameter, Applied)) for i in items):
            return _true(), reduce(lambda x, y: Applied(head, (x, y)), items)
        return NotImplemented

    return compute


def _divide(reading: Reader, a: Any, b: Any) -> Any:
    if not (z3.is_expr(a) and z3.is_expr(b)):
        return _arithmetic("Div", lambda x, y: x)(reading, a, b)
    quotient = choice(disjunction(a >= 0, a % b == 0), a / b, a / b + choice(b > 0, 1, -1))  # z3's remainders are >= 0
    return b != 0, quotient


def _remainder(reading: Reader, a: Any, b: Any) -> Any:
    if not (z3.is_expr(a) and z3.is_expr(b)):
        return NotImplemented
    holds, quotient = _divide(reading, a, b)
    return holds, a - b * quotient


def _on_vectors(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(reading: Reader, *items: Any) -> Any:
        if any(isinstance(i, (Parameter, Applied, str, Tensor)) for i in items):
            return NotImplemented
        return function(reading.world, *items)

    return compute


def _inverse(reading: Reader, perm: Vector) -> Any:
    back = layout.inverse(Side(reading.world), perm)
    result = from_front(perm.length, back)
    result.memory.inverse = perm.get
    return _true(), result


def _pick(reading: Reader, vector: Vector, places: Vector) -> Any:
    """The numbers of a vector at some places, in their order."""
    inside = reading.world.every(
        places.length, lambda at: conjunction(places.get(at) >= 0, places.get(at) < vector.length)
    )
    if places.items is not None:
        return inside, vector_of([vector.get(i) for i in places.items], reading.world)
    result = from_front(places.length, lambda at: vector.get(places.get(at)))
    first, then = vector.memory.inverse, places.memory.inverse
    if first is not None and then is not None:
        result.memory.inverse = lambda at: then(first(at))
    return inside, result


def _broadcast(reading: Reader, s: Vector, t: Vector) -> Any:
    tensors = [Tensor(v.length, v.tail, lambda index: Parameter(0.0)) for v in (s, t)]
    rank, size = broadcast(Side(reading.world), *tensors)
    return _true(), from_back(rank, size)


def _half(second: bool) -> Callable[..., Any]:
    def compute(reading: Reader, vector: Vector) -> Any:
        half = reading.side.name("half", vector.length / 2)
        start, count = (half, vector.length - half) if second else (z3.IntVal(0), half)
        return _true(), from_front(count, lambda at: vector.get(at + start))

    return compute


def _by_place(function: Callable[[Number, Number], Number]) -> Callable[..., Any]:
    """A function of two vectors of one length, applied number by number."""

    def compute(reading: Reader, u: Vector, v: Vector) -> Any:
        result = Vector(
            u.length, lambda at: function(u.get(at), v.get(at)), lambda at: function(u.tail(at), v.tail(at))
        )
        return u.length == v.length, result

    return compute


PRIMITIVES: dict[str, Callable[..., Any]] = {
    "+": _arithmetic("Add", lambda a, b: a + b),
    "-": _arithmetic("Sub", lambda a, b: a - b),
    "*": _arithmetic("Mul", lambda a, b: a * b),
    "min": _arithmetic("Min", lambda a, b: choice(a < b, a, b)),
    "max": _arithmetic("Max", lambda a, b: choice(a < b, b, a)),
    "/": _divide,
    "%": _remainder,
    "neg": lambda reading, a: (_true(), -a if z3.is_expr(a) else Applied("Neg", (a,))),
    "abs": lambda reading, a: (_true(), choice(a < 0, -a, a) if z3.is_expr(a) else Applied("Abs", (a,))),
    "vec-of": lambda reading, *items: (
        (_true(), vector_of(items, reading.world)) if all(map(z3.is_expr, items)) else NotImplemented
    ),
    "vec-empty": lambda reading: (_true(), vector_of((), reading.world)),
    "vec-append": _on_vectors(vectors.append),
    "vec-pop": _on_vectors(vectors.pop),
    "vec-push": _on_vectors(vectors.push),
    "vec-set": _on_vectors(vectors.replace),
    "vec-remove": _on_vectors(vectors.remove),
    "vec-get": _on_vectors(vectors.get),
    "vec-length": _on_vectors(lambda world, vector: (_true(), vector.length)),
    "vec-range": _on_vectors(vectors.count_up),
    "ones": _on_vectors(lambda world, count: vectors.repeat(world, 1, count)),
    "zeros": _on_vectors(lambda world, count: vectors.repeat(world, 0, count)),
    "inverse": _inverse,
    "compose": _pick,
    "broadcast": _broadcast,
    "vector-pick": _pick,
    "vector-sum": _by_place(lambda a, b: a + b),
    "vector-difference": _by_place(lambda a, b: a - b),
    "vector-product": _by_place(lambda a, b: a * b),
    "vector-maximum": _by_place(lambda a, b: choice(a < b, b, a)),
    "first-half": _half(False),
    "second-half": _half(True),
}


# --- facts


def _compare(whole: Callable[[Any, Any], Any], signs: Callable[[float], tuple[str, ...]]) -> Callable[..., None]:
    """Assume a comparison. `signs` gives the signs of an unknown number from the number on its right."""

    def assume(reading: Reader, *items: Node) -> None:
        values = [reading.value(i) for i in items]
        for one, other in pairwise(values):
            if z3.is_expr(one) and z3.is_expr(other):
                reading.world.assume(whole(one, other))
            elif isinstance(one, Parameter) and isinstance(other, Parameter) and isinstance(one.value, str):
                number = reading.number(other)
                if isinstance(number, float):
                    reading.signs.setdefault(one.value, set()).update(signs(number))
            elif isinstance(one, Vector) and isinstance(other, Vector) and whole is _unequal:
                reading.world.assume(negation(vectors.equal(one, other, reading.world)))
            else:
                raise NoMeaning("a comparison of other things than whole numbers")

    return assume


def _unequal(a: Any, b: Any) -> Any:
    return a != b


def _sign(name: str) -> Callable[..., None]:
    def assume(reading: Reader, x: Node) -> None:
        tensor = reading.value(x, "T")
        tensor.signs.add(name)
        if isinstance(tensor.value, Parameter) and isinstance(tensor.value.value, str):
            reading.signs.setdefault(tensor.value.value, set()).add(name)

    return assume


def _scalar(reading: Reader, x: Node) -> None:
    """Assume rank 0, or rank 1 and one element."""
    tensor = reading.value(x, "T")
    reading.world.assume(tensor.rank <= 1)
    reading.world.assume(implication(tensor.rank == 1, tensor.size(z3.IntVal(0)) == 1))


def _row(reading: Reader, x: Node, count: Node, rank: Node) -> None:
    tensor = reading.value(x, "T")
    reading.bind(rank, tensor.rank)
    reading.bind(count, tensor.size(z3.IntVal(0)))
    reading.world.assume(tensor.rank >= 1)
    inside = tensor.rank
    reading.world.assume_all(lambda at: implication(conjunction(at >= 1, at < inside), tensor.size(at) == 1))


def _per_channel(reading: Reader, x: Node, rank: Node, count: Node) -> None:
    """Assume that a tensor that broadcasts to this rank has the channels at axis 1 of it, and size 1 elsewhere."""
    tensor, world = reading.value(x, "T"), reading.world
    reading.bind(rank, world.integer("rank"))
    whole = reading.value(rank)
    channels = plain(whole - 2)
    reading.bind(count, tensor.size(channels))
    own = tensor.rank
    world.assume(conjunction(disjunction(own == whole, own == whole - 1), whole >= 2))
    world.assume_all(lambda at: implication(conjunction(at >= 0, at < own, at != channels), tensor.size(at) == 1))


def _matrix(reading: Reader, x: Node, rows: Node, columns: Node) -> None:
    tensor = reading.value(x, "T")
    reading.world.assume(tensor.rank == 2)
    reading.bind(rows, tensor.size(z3.IntVal(1)))
    reading.bind(columns, tensor.size(z3.IntVal(0)))


def _static(reading: Reader, shape: Node) -> None:
    """Assume that no size is below zero, so that none is symbolic."""
    vector = reading.value(shape)
    reading.world.assume_all(lambda at: implication(conjunction(at >= 0, at < vector.length), vector.tail(at) >= 0))


def _reduces_some(reading: Reader, shape: Node, axes: Node) -> None:
    """Assume that no size of a shape at some axes is 0."""
    sizes, places = reading.value(shape), reading.value(axes)
    count = places.length
    reading.world.assume_all(lambda at: implication(conjunction(at >= 0, at < count), sizes.get(places.get(at)) >= 1))


def _swaps_last(reading: Reader, perm: Node) -> None:
    vector = reading.value(perm)
    count = vector.length
    reading.world.assume(count >= 2)
    reading.world.assume(conjunction(vector.get(count - 1) == count - 2, vector.get(count - 2) == count - 1))
    reading.world.assume_all(lambda at: implication(conjunction(at >= 0, at < count - 2), vector.get(at) == at))


def _contains(wanted: bool) -> Callable[..., None]:
    def assume(reading: Reader, vector: Node, *items: Node) -> None:
        for item in items:
            is_inside = vectors.contains(reading.world, reading.value(vector), reading.value(item))
            reading.world.assume(is_inside if wanted else negation(is_inside))

    return assume


def _at_most(reading: Reader, first: Node, second: Node) -> None:
    u, v = reading.value(first), reading.value(second)
    count = u.length
    reading.world.assume(count == v.length)
    reading.world.assume_all(lambda at: implication(conjunction(at >= 0, at < count), u.tail(at) <= v.tail(at)))
    reading.world.assume_all(lambda at: implication(conjunction(at >= 0, at < count), u.get(at) <= v.get(at)))


def _split_at(reading: Reader, shape: Node, place: Node, before: Node, rest: Node) -> None:
    vector, cut = reading.value(shape), reading.value(place)
    reading.world.assume(conjunction(cut >= 0, cut <= vector.length))
    reading.bind(before, from_front(cut, vector.get))
    reading.bind(rest, from_back(vector.length - cut, vector.tail))


def _ignore(reading: Reader, *items: Node) -> None:
    """Assume nothing: the relation only says that a rule asks for a fact, or how often something occurs in a model."""


RELATIONS: dict[str, Callable[..., None]] = {
    "!=": _compare(_unequal, lambda n: ("nonzero",) if n == 0 else ()),
    "<": _compare(lambda a, b: a < b, lambda n: ()),
    ">": _compare(lambda a, b: a > b, lambda n: ("nonneg", "nonzero") if n >= 0 else ()),
    "<=": _compare(lambda a, b: a <= b, lambda n: ()),
    ">=": _compare(lambda a, b: a >= b, lambda n: ("nonneg",) if n >= 0 else ()),
    "nonneg": _sign("nonneg"),
    "nonzero": _sign("nonzero"),
    "floating": lambda reading, x: reading.value(x, "T").type.restrict({"float"}),
    "constant": lambda reading, x, shape: reading.bind(shape, reading.value(x, "T").shape),
    "scalar": _scalar,
    "row": _row,
    "per-channel": _per_channel,
    "matrix": _matrix,
    "static": _static,
    "swaps-last": _swaps_last,
    "reduces-some": _reduces_some,
    "vec-contains": _contains(True),
    "vec-not-contains": _contains(False),
    "split-at": _split_at,
    "vectors-at-most": _at_most,
    **dict.fromkeys(("const", "stored", "shrinks", "product", "movable", "convolved", "finite"), _ignore),
}
