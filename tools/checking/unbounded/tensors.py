"""Tensors of unknown rank and sizes, whose elements are expressions over elements of the leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import z3

from .logic import choice, conjunction, disjunction, implication
from .types import ElementType
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
    """A number: a literal, or an unknown number by its name. If it is an element, it has a type."""

    value: float | str
    type: ElementType | None = None


@dataclass(frozen=True, eq=False)
class Applied:
    """An element-wise operator of the rule language and its operands; `attributes` stand behind them."""

    head: str
    operands: tuple[Expression | None, ...]
    attributes: tuple[object, ...] = ()


@dataclass(frozen=True, eq=False)
class Conditional:
    """One of two expressions, chosen by a condition on positions."""

    condition: Truth
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, eq=False)
class Binder:
    """A position that runs along some axes of a reduction: `at(axis)` lies below `extent(axis)`, for each axis with
    `among(axis)`.

    The axes are those of a tensor of this rank and count from the first one: if a reduction drops axes, those before
    them keep their numbers. If there is only one axis, it is `axis`.
    """

    rank: Number
    among: Callable[[Number], Truth]
    extent: Index
    at: Index
    axis: Number | None = None


@dataclass(frozen=True, eq=False)
class Count:
    """The number of positions that a reduction runs over, as a scalar."""

    binders: tuple[Binder, ...]
    type: ElementType


@dataclass(frozen=True, eq=False)
class Reduced:
    """The values of a body at all positions, combined."""

    total: Total
    binders: tuple[Binder, ...]
    body: Expression
    type: ElementType


Expression = Element | Parameter | Applied | Conditional | Count | Reduced


@dataclass(frozen=True, eq=False)
class Joined:
    """Two tensors and the axis along which they are joined, counted from the last one."""

    first: Tensor
    second: Tensor
    axis: Number


@dataclass(eq=False)
class Tensor:
    """A tensor of unknown rank. `size` and `element` count axes from the last one. `rank` is a number of z3; leaves
    have a name.

    `value` is the value of all elements, if they have the same. `joined` has the parts, if a Concat made the tensor.
    """

    rank: Number
    size: Index
    element: Callable[[Index], Expression]
    name: str = ""
    signs: set[str] = field(default_factory=set)
    type: ElementType = field(default_factory=ElementType)
    value: Expression | None = None
    joined: Joined | None = None

    @cached_property
    def shape(self) -> Vector:
        """The sizes as a vector."""
        return from_back(self.rank, self.size)

    def extent(self, axis: Number) -> Number:
        """The size along an axis, 1 in front of the first."""
        return choice(axis < self.rank, self.size(axis), 1)


def leaf(name: str, world: World) -> Tensor:
    """A tensor of which nothing is known."""
    rank = world.integer(f"{name}.rank")
    size = world.function(f"{name}.size")
    world.assume(rank >= 0)
    world.assume_all(lambda at: conjunction(size(at) >= 0, size(at) <= LARGEST))
    tensor = Tensor(rank, size, lambda index: Parameter(0.0), name)

    def element(index: Index) -> Expression:
        return tensor.value if tensor.value is not None else Element(tensor, index)

    tensor.element = element
    return tensor


_WRITTEN_OUT = 8
"""The largest number of places for which a condition on the first places is written out for each of them."""


LARGEST = 2**62
"""Elements of a tensor, and so positions along an axis, at most: more would fit no memory."""


class NoMeaning(Exception):
    """The prover does not know an operator, a fact or a function for unknown ranks; the message says which."""


@dataclass
class Side:
    """The side of a rule whose operators are applied. `given`: it is the left side, which a model contains, so that the
    requirements of its operators hold; those of a right side have to be proved before anything relies on them."""

    world: World
    given: bool = True

    def require(self, holds: Truth) -> None:
        """Require a condition on numbers. Raises Unproved if it does not follow on a right side."""
        if self.given:
            self.world.assume(holds)
        elif not self.world.follows(holds):
            raise Unproved("the right side may have no value")

    def require_all(self, count: Number, holds: Callable[[Number], Truth]) -> None:
        """Require a condition on the first `count` axes or places. Raises Unproved if it does not follow on a right
        side."""
        number = z3.simplify(count)
        if z3.is_int_value(number) and number.as_long() <= _WRITTEN_OUT:
            for at in range(number.as_long()):
                self.require(holds(z3.IntVal(at)))
        elif self.given:
            self.world.assume_all(lambda at: implication(conjunction(at >= 0, at < count), holds(at)))
        elif not self.world.follows_all(count, holds):
            raise Unproved("the right side may have no value")

    def name(self, name: str, number: Number) -> Number:
        """Give a number a name of its own, which keeps questions short."""
        literal = z3.simplify(number)
        if z3.is_int_value(literal):
            return literal
        variable = self.world.integer(name)
        self.world.assume(variable == number)
        return variable


def broadcast(side: Side, *tensors: Tensor) -> tuple[Number, Index]:
    """The rank and sizes that tensors broadcast to."""
    rank, size = tensors[0].rank, tensors[0].size
    for other in tensors[1:]:
        first = Tensor(rank, size, lambda index: Parameter(0.0))
        rank, size = _broadcast_two(side, first, other)
    return rank, size


def _broadcast_two(side: Side, a: Tensor, b: Tensor) -> tuple[Number, Index]:
    if a.size is b.size:
        return a.rank, a.size
    rank = side.name("rank", choice(a.rank >= b.rank, a.rank, b.rank))

    def agree(at: Number) -> Truth:
        m, n = a.extent(at), b.extent(at)
        return disjunction(m == n, m == 1, n == 1)

    def widest(at: Number) -> Number:
        m, n = a.extent(at), b.extent(at)
        return choice(m == 1, n, m)

    side.require_all(rank, agree)
    return rank, widest


def broadcast_index(tensor: Tensor, index: Index) -> Index:
    """The position in an operand that belongs to a position in the tensor that it broadcasts to."""
    return lambda at: choice(tensor.size(at) == 1, z3.IntVal(0), index(at))
