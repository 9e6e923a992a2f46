"""Tensors of unknown rank and sizes, and what one of their elements is: an expression over elements of the leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import z3

from .types import Type
from .vectors import Vector, from_back
from .world import Number, Truth, Unproved, World

Index = Callable[[Number], Number]
"""The position along each axis; axes count from the last one."""
Total = Literal["add", "multiply", "maximum", "minimum"]


@dataclass(frozen=True, eq=False)
class Element:
    """One element of a leaf."""

    leaf: Tensor
    index: Index


@dataclass(frozen=True)
class Parameter:
    """A number: a literal, or the one of that name. As an element it has a type."""

    value: float | str
    type: Type | None = None


@dataclass(frozen=True, eq=False)
class Applied:
    """An element-wise operator of the rule language and its operands; `attributes` stand behind them."""

    head: str
    operands: tuple[Expression | None, ...]
    attributes: tuple[object, ...] = ()


@dataclass(frozen=True, eq=False)
class Choice:
    """One of two, by a condition on positions."""

    condition: Truth
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, eq=False)
class Binder:
    """A position along each of some axes that a reduction runs over: `at` is it, where `among` holds, below `extent`.

    The axes are those of a tensor of this rank and count from the first one: where a reduction drops axes, those before
    them keep their numbers. `axis` is the only one, where there is one only.
    """

    rank: Number
    among: Callable[[Number], Truth]
    extent: Index
    at: Index
    axis: Number | None = None


@dataclass(frozen=True, eq=False)
class Count:
    """How many positions a reduction runs over, as a number."""

    binders: tuple[Binder, ...]
    type: Type


@dataclass(frozen=True, eq=False)
class Reduced:
    """All values of a body, for all positions, put together."""

    total: Total
    binders: tuple[Binder, ...]
    body: Expression
    type: Type


Expression = Element | Parameter | Applied | Choice | Count | Reduced


@dataclass(eq=False)
class Tensor:
    """`size` and `element` count axes from the last one. `rank` is a number of z3; leaves have a name.

    `value`: what all elements are. `parts`: what was joined, along which axis."""

    rank: Number
    size: Index
    element: Callable[[Index], Expression]
    name: str = ""
    signs: set[str] = field(default_factory=set)
    type: Type = field(default_factory=Type)
    value: Expression | None = None
    parts: tuple[Tensor, Tensor, Number] | None = None

    @cached_property
    def shape(self) -> Vector:
        """The sizes as a vector."""
        return from_back(self.rank, self.size)

    def extent(self, axis: Number) -> Number:
        """The size along an axis, 1 in front of the first."""
        return z3.If(axis < self.rank, self.size(axis), 1)


def leaf(name: str, world: World) -> Tensor:
    """A tensor of which nothing is known."""
    rank = world.integer(f"{name}.rank")
    size = world.function(f"{name}.size")
    world.assume(rank >= 0)
    world.assume_all(lambda at: z3.And(size(at) >= 0, size(at) <= LARGEST))
    tensor = Tensor(rank, size, lambda index: Parameter(0.0), name)

    def element(index: Index) -> Expression:
        return tensor.value if tensor.value is not None else Element(tensor, index)

    tensor.element = element
    return tensor


_WRITTEN_OUT = 8
"""For a count up to this number a condition is written out."""


LARGEST = 2**62
"""No tensor has more elements, and so no axis more positions: it would not fit any memory."""


class NoMeaning(Exception):
    """The prover does not know an operator, a fact or a function for unknown ranks; the message says which."""


@dataclass
class Site:
    """Where operators are applied. `given`: what they ask of their operands is taken for granted, as on a left side,
    which a model has; on a right side it has to follow from that before anything is built on it."""

    world: World
    given: bool = True

    def require(self, holds: Truth) -> None:
        """A condition on numbers. Raises Unproved."""
        if self.given:
            self.world.assume(holds)
        elif not self.world.follows(holds):
            raise Unproved("the right side may have no value")

    def require_all(self, count: Number, holds: Callable[[Number], Truth]) -> None:
        """A condition on the first `count` axes or places. Raises Unproved."""
        known = z3.simplify(count)
        if z3.is_int_value(known) and known.as_long() <= _WRITTEN_OUT:
            for at in range(known.as_long()):
                self.require(holds(z3.IntVal(at)))
        elif self.given:
            self.world.assume_all(lambda at: z3.Implies(z3.And(at >= 0, at < count), holds(at)))
        elif not self.world.follows_all(count, holds):
            raise Unproved("the right side may have no value")

    def named(self, name: str, number: Number) -> Number:
        """A number by a name of its own, which keeps questions short."""
        known = z3.simplify(number)
        if z3.is_int_value(known):
            return known
        own = self.world.integer(name)
        self.world.assume(own == number)
        return own


def broadcast(site: Site, *tensors: Tensor) -> tuple[Number, Index]:
    """The rank and sizes that tensors broadcast to."""
    rank, size = tensors[0].rank, tensors[0].size
    for other in tensors[1:]:
        first = Tensor(rank, size, lambda index: Parameter(0.0))
        rank, size = _broadcast_two(site, first, other)
    return rank, size


def _broadcast_two(site: Site, a: Tensor, b: Tensor) -> tuple[Number, Index]:
    if a.size is b.size:
        return a.rank, a.size
    rank = site.named("rank", z3.If(a.rank >= b.rank, a.rank, b.rank))
    site.require_all(rank, lambda at: _agree(a.extent(at), b.extent(at)))
    return rank, lambda at: _wider(a.extent(at), b.extent(at))


def _agree(m: Number, n: Number) -> Truth:
    return z3.Or(m == n, m == 1, n == 1)


def _wider(m: Number, n: Number) -> Number:
    return z3.If(m == 1, n, m)


def broadcast_index(tensor: Tensor, index: Index) -> Index:
    """The position in an operand that belongs to a position in what it broadcasts to."""
    return lambda at: z3.If(tensor.size(at) == 1, z3.IntVal(0), index(at))
