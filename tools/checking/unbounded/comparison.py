"""Whether two elements are equal in every case that the facts allow.

The cases are those of the conditions on positions (inside of a Pad or not, in which part of a Concat). In each case
elements of a leaf at the same position along every axis are the same, sums of equal bodies over the same positions are
the same, and the rest is an identity of scalars, which the prover for scalars decides for each class of element types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial, reduce
from itertools import chain, permutations
from math import isfinite
from typing import Any

import numpy as np
import z3

from ....ir import operators as semantics
from ....ir.operators import Array, Unsupported
from ..proving.arithmetics import Bits, Reals, Word
from ..proving.equality import Assumption, leaf_array, prove_equal
from ..proving.scalars import Real
from .logic import conjunction, implication, negation
from .reading import Reading
from .tensors import Applied, Binder, Conditional, Count, Element, Expression, Parameter, Reduced
from .types import CLASSES, ElementType, cases
from .world import Renaming, Truth, World

_MOST_BINDERS = 3
"""Binders of a reduction at most, because all their orders are tried."""
_MOST_TERMS = 16
"""Products of one expression, at most: all pairs of them are compared."""
_SAME = Renaming(lambda at: at, lambda at: at)


class _RealsWithSymbols(Reals):
    """The reals, with attributes that may be symbolic."""

    def constant(self, value: float, like: Array) -> Array:
        """A scalar, or the attribute that stands for one."""
        attribute: object = value
        return np.asarray(attribute, dtype=object) if isinstance(attribute, Real) else super().constant(value, like)


@dataclass
class ElementComparison:
    """Compares the elements of two tensors under the facts of a reading."""

    reading: Reading
    _memory: dict[tuple[int, int], bool] = field(default_factory=dict)
    """By the ids of two expressions whether they are the same; `_alive` keeps the expressions, so that ids stay
    unique."""
    _alive: list[Expression] = field(default_factory=list)

    @contextmanager
    def _case(self, *facts: Truth) -> Iterator[None]:
        """A case, whose results are forgotten at its end."""
        with self.reading.world.supposing(*facts):
            memory, self._memory = self._memory, dict(self._memory)
            try:
                yield
            finally:
                self._memory = memory

    def equal(self, left: Expression, right: Expression) -> bool:
        """Whether both are equal in every case."""
        condition = next(chain(_choices(left), _choices(right)), None)
        if condition is None:
            if self.same(_flatten(left, _is_never_single), _flatten(right, _is_never_single)):
                return True  # without a question about the size of any axis
            is_single = partial(_is_single, self.reading.world, set())
            left, right = (_flatten(x, is_single) for x in (left, right))
            return self.same(left, right) or self._equal_scalars(left, right) or self._equal_sums(left, right)
        for value in (True, False):
            with self._case(condition if value else negation(condition)):
                one, other = (_choose(x, condition, value) for x in (left, right))
                if self.reading.world.possible() and not self.equal(one, other):
                    return False
        return True

    # --- the same by their form

    def same(self, one: Expression, other: Expression) -> bool:
        """Whether two expressions are the same operators on the same elements."""
        if one is other:
            return True
        key = (id(one), id(other))
        if key not in self._memory:
            self._alive += (one, other)
            self._memory[key] = self._has_same_form(one, other)
        return self._memory[key]

    def _has_same_form(self, one: Expression, other: Expression) -> bool:
        if isinstance(one, Element) and isinstance(other, Element):
            return one.leaf is other.leaf and self.reading.world.follows_all(
                one.leaf.rank, lambda at: one.index(at) == other.index(at)
            )
        if isinstance(one, Parameter) and isinstance(other, Parameter):
            return self.reading.number(one) == self.reading.number(other) and _agree(one.type, other.type)
        if isinstance(one, Applied) and isinstance(other, Applied):
            return one.head == other.head and self._same_operands(one, other)
        if isinstance(one, Count) and isinstance(other, Count):
            return len(one.binders) == len(other.binders) and any(
                all(self._same_positions(a, b) is not None for a, b in zip(one.binders, order, strict=True))
                for order in permutations(other.binders)
            )
        return isinstance(one, Reduced) and isinstance(other, Reduced) and self._same_reductions(one, other)

    def _same_operands(self, one: Applied, other: Applied) -> bool:
        if len(one.operands) != len(other.operands) or len(one.attributes) != len(other.attributes):
            return False
        attributes = zip(one.attributes, other.attributes, strict=True)
        operands = zip(one.operands, other.operands, strict=True)
        return all(self._same_attribute(a, b) for a, b in attributes) and all(
            a is b or (a is not None and b is not None and self.same(a, b)) for a, b in operands
        )

    def _same_attribute(self, one: object, other: object) -> bool:
        if isinstance(one, (Parameter, Applied)) and isinstance(other, (Parameter, Applied)):
            return self.same(one, other)
        if z3.is_expr(one) and z3.is_expr(other):
            return self.reading.world.follows(one == other)
        return type(one) is type(other) and one == other

    # --- reductions

    def _same_positions(self, one: Binder, other: Binder) -> Renaming | None:
        """How the axes of two binders correspond, if they run over the same positions; None if that is not proved."""
        world = self.reading.world
        candidates = [_SAME, *world.permutations, *(permutation.inverse for permutation in world.permutations)]
        if one.axis is not None and other.axis is not None:
            candidates.insert(0, Renaming(lambda at: other.axis, lambda at: one.axis))
        for renaming in candidates:
            forth, back = partial(_maps, one, other, renaming), partial(_maps, other, one, renaming.inverse)
            if world.follows_all(one.rank, forth) and world.follows_all(other.rank, back):
                return renaming
        return None

    def _same_reductions(self, one: Reduced, other: Reduced) -> bool:
        """Whether both run over the same positions, in whatever order, and the bodies are equal at each of them."""
        if one.total != other.total or len(one.binders) != len(other.binders) or len(one.binders) > _MOST_BINDERS:
            return False
        return any(self._same_bodies(one, other, order) for order in permutations(other.binders))

    def _same_bodies(self, one: Reduced, other: Reduced, order: tuple[Binder, ...]) -> bool:
        renamings = [self._same_positions(a, b) for a, b in zip(one.binders, order, strict=True)]
        if None in renamings:
            return False
        with self._case():
            for binder in one.binders:
                self.reading.world.assume_all(partial(_is_inside, binder))
            for a, b, renaming in zip(one.binders, order, renamings, strict=True):
                assert renaming is not None
                _identify(self.reading, a, b, renaming)
            return self.equal(one.body, other.body)

    # --- the same by algebra

    def _equal_sums(self, left: Expression, right: Expression) -> bool:
        """Whether both are the same sums of products after these are multiplied out."""
        if not (_all_floating(left) and _all_floating(right)) and (_divides(left) or _divides(right)):
            return False  # quotients of whole numbers are rounded
        one, other = _normal_form(self.reading, left), _normal_form(self.reading, right)
        if one is None or other is None or len(one) != len(other):
            return False
        waiting = list(other)
        for term in one:
            match = next((t for t in waiting if t.factor == term.factor and self._equal_terms(term.sum, t.sum)), None)
            if match is None:
                return False
            waiting.remove(match)
        return True

    def _equal_terms(self, one: Reduced, other: Reduced) -> bool:
        if one.binders or other.binders:
            return self._same_reductions(one, other)
        return self.same(one.body, other.body) or self._equal_scalars(one.body, other.body)

    def _equal_scalars(self, left: Expression, right: Expression) -> bool:
        """Whether both are equal as scalars in which each element, wherever it occurs, is one variable."""
        atoms: list[Expression] = []
        variables: dict[int, int] = {}
        for atom in (*_atoms(left), *_atoms(right)):
            number = next((i for i, other in enumerate(atoms) if self.same(other, atom)), len(atoms))
            if number == len(atoms):
                atoms.append(atom)
            variables[id(atom)] = number
        choices = list(cases([t for atom in atoms if (t := _type(atom)) is not None]))
        return bool(choices) and all(self._holds(left, right, atoms, variables, classes) for classes in choices)

    def _holds(
        self,
        left: Expression,
        right: Expression,
        atoms: list[Expression],
        variables: Mapping[int, int],
        classes: Mapping[ElementType, str],
    ) -> bool:
        """Whether two scalars are equal for one choice of element types."""
        typed = [(a, classes[t.root()]) for a in atoms if (t := _type(a)) is not None]
        kinds = {c for a, c in typed if c != "bool" and not self._is_number(a)} or {c for _, c in typed if c != "bool"}
        whole = bool(kinds) and kinds <= {"int", "uint"}
        if len(kinds & {"int", "uint"}) == 2:
            return False
        arithmetic = Bits(8, signed="uint" not in kinds) if whole else _RealsWithSymbols()
        assumptions: list[Assumption] = []
        values: list[Array] = []
        for number, atom in enumerate(atoms):
            name = f"v{number}"
            values.append(self._variable(atom, name, classes, arithmetic))
            assumptions += [Assumption(sign, name) for sign in self.reading.signs_of(atom)]  # type: ignore[arg-type]
        try:
            one, other = (_evaluate(x, values, variables, arithmetic) for x in (left, right))
        except Unsupported:
            return False
        return prove_equal(one, other, assumptions, arithmetic).outcome == "proved"

    def _is_number(self, atom: Expression) -> bool:
        return isinstance(atom, Parameter) and isinstance(self.reading.number(atom), float)

    def _variable(
        self, atom: Expression, name: str, classes: Mapping[ElementType, str], arithmetic: Reals | Bits
    ) -> Array:
        """The scalar of an atom: a constant if the rule gives its number, else a variable."""
        type_ = _type(atom)
        dtype = CLASSES[classes[type_.root()]] if type_ is not None else "float32"
        if isinstance(atom, Parameter) and isinstance(value := self.reading.number(atom), float):
            if dtype == "bool" and isinstance(arithmetic, Bits):
                return np.asarray(Word(z3.BoolVal(bool(value))), dtype=object)
            return arithmetic.constant(bool(value) if dtype == "bool" else value, np.zeros((), dtype))
        return leaf_array(name, (), dtype, arithmetic)


# --- binders


def _runs_along(binder: Binder, at: Any) -> Truth:
    return conjunction(at >= 0, at < binder.rank, binder.among(at))


def _is_inside(binder: Binder, at: Any) -> Truth:
    """The condition that a position lies between 0 and the size along each of its axes."""
    return implication(_runs_along(binder, at), conjunction(binder.at(at) >= 0, binder.at(at) < binder.extent(at)))


def _maps(one: Binder, other: Binder, renaming: Renaming, at: Any) -> Truth:
    """The condition that a renaming maps an axis of one binder to one of another, of the same size, and back."""
    image = renaming.forth(at)
    return implication(
        one.among(at),
        conjunction(
            image >= 0,
            image < other.rank,
            other.among(image),
            one.extent(at) == other.extent(image),
            renaming.back(image) == at,
        ),
    )


def _identify(reading: Reading, one: Binder, other: Binder, renaming: Renaming) -> None:
    """Assume that two binders are at the same position."""
    world = reading.world
    world.assume_all(lambda at: implication(_runs_along(one, at), other.at(renaming.forth(at)) == one.at(at)))
    world.assume_all(lambda at: implication(_runs_along(other, at), other.at(at) == one.at(renaming.back(at))))


# --- expressions


def _choices(x: Expression | None) -> Iterator[Truth]:
    """The conditions of choices outside of reductions."""
    if isinstance(x, Conditional):
        yield x.condition
    elif isinstance(x, Applied):
        for operand in x.operands:
            yield from _choices(operand)


def _choose(x: Any, condition: Truth, value: bool) -> Any:
    """The expression under the assumption that a condition of its choices holds, or does not hold."""
    if isinstance(x, Conditional) and x.condition is condition:
        return _choose(x.then if value else x.otherwise, condition, value)
    if isinstance(x, Conditional):
        return Conditional(x.condition, _choose(x.then, condition, value), _choose(x.otherwise, condition, value))
    if isinstance(x, Applied):
        return Applied(x.head, tuple(_choose(o, condition, value) for o in x.operands), x.attributes)
    return x


def _atoms(x: Any) -> Iterator[Expression]:
    """The parts of an expression that are variables for the prover for scalars."""
    if isinstance(x, Applied):
        for part in (*x.operands, *x.attributes):
            yield from _atoms(part)
    elif isinstance(x, (Element, Parameter, Count, Reduced)):
        yield x


def _agree(one: ElementType | None, other: ElementType | None) -> bool:
    return one is None or other is None or one.root() is other.root() or bool(one.exact and one.exact == other.exact)


def _within(x: Any) -> Iterator[Expression]:
    """An expression and all parts of it, those of reductions too."""
    yield x
    parts: tuple[Any, ...] = ()
    if isinstance(x, Applied):
        parts = tuple(o for o in x.operands if o is not None)
    elif isinstance(x, Reduced):
        parts = (x.body,)
    elif isinstance(x, Conditional):
        parts = (x.then, x.otherwise)
    for part in parts:
        yield from _within(part)


def _all_floating(x: Expression) -> bool:
    return all(t.root().allowed <= {"float"} for part in _within(x) if (t := _type(part)) is not None)


def _divides(x: Expression) -> bool:
    return any(isinstance(part, Applied) and part.head in ("Div", "Reciprocal") for part in _within(x))


def _type(x: Expression | None) -> ElementType | None:
    if isinstance(x, Element):
        return x.leaf.type
    return x.type if isinstance(x, (Parameter, Count, Reduced)) else None


def _evaluate(x: Any, values: list[Array], variables: Mapping[int, int], arithmetic: Reals | Bits) -> Any:
    if id(x) in variables:
        return values[variables[id(x)]]
    if isinstance(x, Applied):
        operands = [_evaluate(o, values, variables, arithmetic) for o in x.operands]
        attributes = [_attribute(a, values, variables, arithmetic) for a in x.attributes]
        return semantics.evaluate(x.head, [*operands, *attributes], arithmetic)
    if isinstance(x, Conditional):
        raise Unsupported("a choice")
    return x


def _attribute(x: Any, values: list[Array], variables: Mapping[int, int], arithmetic: Reals | Bits) -> Any:
    if isinstance(x, Parameter) and isinstance(x.value, float):
        return x.value
    if isinstance(x, (Parameter, Applied)):
        return _evaluate(x, values, variables, arithmetic).item()
    if z3.is_expr(x):
        number = z3.simplify(x)
        if not z3.is_int_value(number):
            raise Unsupported("an attribute of unknown value")
        return number.as_long()
    if isinstance(x, ElementType) or (isinstance(x, str) and x.startswith("?")):
        raise Unsupported("an attribute of unknown value")
    return x


# --- sums of products, multiplied out: the normal form in which two linear expressions are compared
#
# Each step is an equation of finite sums that holds in every commutative ring, by induction over the number of terms:
# a sum of sums is the sum over pairs, a sum of f + g is that of f plus that of g, a factor that does not depend on the
# position may stand inside or outside, and a sum over axes of size 1 is its only term.


@dataclass(frozen=True, eq=False)
class _Summand:
    """A number times a sum of products."""

    factor: Fraction
    sum: Reduced


@dataclass(frozen=True, eq=False)
class _Product:
    """A number times the sum, over all positions of the binders, of a product."""

    factor: Fraction
    binders: tuple[Binder, ...] = ()
    factors: tuple[Expression, ...] = ()


def _normal_form(reading: Reading, x: Expression) -> list[_Summand] | None:
    """The summands of an expression; None if there are too many."""
    products = _expand(reading, x)
    if products is None or len(products) > _MOST_TERMS:
        return None
    return [_Summand(p.factor, Reduced("add", p.binders, _multiply(p.factors), ElementType())) for p in products]


def _multiply(factors: tuple[Expression, ...]) -> Expression:
    return reduce(lambda x, y: Applied("Mul", (x, y)), factors) if factors else Parameter(1.0)


def _expand(reading: Reading, x: Expression | None) -> list[_Product] | None:
    """The products whose sum an expression is; None if there are too many."""
    if x is None:
        return None
    atom = [_Product(Fraction(1), (), (x,))]
    if isinstance(x, Parameter) and isinstance(number := reading.number(x), float) and isfinite(number):
        return [_Product(Fraction(number))] if number else []
    if isinstance(x, Reduced):
        if x.total != "add" or isinstance(x.body, Conditional):
            return atom
        inner = _expand(reading, x.body)
        return None if inner is None else [replace(p, binders=x.binders + p.binders) for p in inner]
    if not isinstance(x, Applied):
        return atom
    operands: list[list[_Product]] = []
    for operand in x.operands:
        products = _expand(reading, operand)
        if products is None or len(products) > _MOST_TERMS:
            return None
        operands.append(products)
    if x.head == "Add":
        return operands[0] + operands[1]
    if x.head == "Sub":
        return operands[0] + _negate(operands[1])
    if x.head == "Neg":
        return _negate(operands[0])
    if x.head == "Mul":
        return _pairs(operands[0], operands[1])
    if x.head == "Div":
        return _divide(reading, operands[0], x.operands[1])
    return atom


def _negate(terms: list[_Product]) -> list[_Product]:
    return [replace(t, factor=-t.factor) for t in terms]


def _pairs(one: list[_Product], other: list[_Product]) -> list[_Product] | None:
    """All products of a term of one with a term of the other; None if two such terms share a binder."""
    if any(set(a.binders) & set(b.binders) for a in one for b in other):
        return None
    return [_Product(a.factor * b.factor, a.binders + b.binders, a.factors + b.factors) for a in one for b in other]


def _divide(reading: Reading, terms: list[_Product], divisor: Expression | None) -> list[_Product] | None:
    """Each term divided. A quotient by zero of an empty sum has no value, but an empty sum of quotients has one."""
    if divisor is None or not (reading.is_nonzero(divisor) or all(not t.binders for t in terms)):
        return None
    inverse = Applied("Reciprocal", (divisor,))
    return [replace(t, factors=(*t.factors, inverse)) for t in terms]


def _flatten(x: Any, is_single: Callable[[Binder], bool]) -> Any:
    """Merge reductions of reductions of the same kind, and drop those with a single position."""
    if isinstance(x, Applied):
        return Applied(x.head, tuple(_flatten(o, is_single) for o in x.operands), x.attributes)
    if not isinstance(x, (Count, Reduced)):
        return x
    binders = tuple(b for b in x.binders if not is_single(b))
    if isinstance(x, Count):
        return Count(binders, x.type) if binders else Parameter(1.0, x.type)
    body = _flatten(x.body, is_single)
    if isinstance(body, Reduced) and body.total == x.total:
        binders, body = binders + body.binders, body.body
    return Reduced(x.total, binders, body, x.type) if binders else body


def _is_never_single(binder: Binder) -> bool:
    return False


def _is_single(world: World, longer: set[Binder], binder: Binder) -> bool:
    """Whether a binder has only one position; then this is assumed to be 0 along every axis.

    `longer` keeps the binders of which this did not follow since a fact was last assumed: a mean asks twice.
    """
    if binder in longer:
        return False
    if not world.follows_all(binder.rank, lambda at: implication(binder.among(at), binder.extent(at) == 1)):
        longer.add(binder)
        return False
    world.assume_all(
        lambda at: implication(conjunction(at >= 0, at < binder.rank, binder.among(at)), binder.at(at) == 0)
    )
    longer.clear()
    return True
