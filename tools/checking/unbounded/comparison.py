"""Whether two elements are equal in every case that the facts allow.

Cases are those of the conditions on positions (inside of a Pad or not, in which part of a Concat). In each, elements of
a leaf that are at the same position along every axis are one, sums over the same positions of equal bodies are one, and
what is left is an identity of scalars, which the prover for scalars decides for each class of element types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, permutations
from typing import Any

import numpy as np
import z3

from ....ir import operators as semantics
from ....ir.operators import Array, Unsupported
from ..proving.proof import Assumption, leaf_array, prove_equal
from ..proving.symbolic import Bits, Real, Reals, Word
from .reading import Reading
from .sums import flattened, normal_forms
from .tensors import Applied, Binder, Choice, Count, Element, Expression, Index, Parameter, Reduced
from .types import CLASSES, Type, cases, too_many
from .world import Truth

_MOST_BINDERS = 3
Renaming = tuple[Index, Index]
"""Which axis of a second binder belongs to one of a first, and back."""
_SAME: Renaming = (lambda at: at, lambda at: at)


class _ByName(Reals):
    """The reals, with attributes that are numbers of which only the name is known."""

    def constant(self, value: float, like: Array) -> Array:
        """A scalar, or the attribute that stands for one."""
        named: object = value
        return np.asarray(named, dtype=object) if isinstance(named, Real) else super().constant(value, like)


@dataclass
class Comparison:
    """The elements of two tensors, compared under what a reading knows."""

    reading: Reading
    _memory: dict[tuple[int, int], bool] = field(default_factory=dict)
    _kept: list[Expression] = field(default_factory=list)

    def equal(self, left: Expression, right: Expression) -> bool:
        """Whether both are equal in every case."""
        open_ = next(chain(_choices(left), _choices(right)), None)
        if open_ is None:
            return self._equal_plain(left, right)
        world = self.reading.world
        for value in (True, False):
            with world.supposing(open_ if value else z3.Not(open_)):
                memory, self._memory = self._memory, dict(self._memory)
                try:
                    if world.possible() and not self.equal(_chosen(left, open_, value), _chosen(right, open_, value)):
                        return False
                finally:
                    self._memory = memory
        return True

    def _equal_plain(self, left: Expression, right: Expression) -> bool:
        left, right = (flattened(self.reading.world, x) for x in (left, right))
        return self.same(left, right) or self._by_scalars(left, right) or self._by_sums(left, right)

    # --- the same by their form

    def same(self, one: Expression, other: Expression) -> bool:
        """Whether two expressions are the same operators on the same elements."""
        if one is other:
            return True
        key = (id(one), id(other))
        if key not in self._memory:
            self._kept += (one, other)
            self._memory[key] = self._is_same(one, other)
        return self._memory[key]

    def _is_same(self, one: Expression, other: Expression) -> bool:
        if isinstance(one, Element) and isinstance(other, Element):
            return one.leaf is other.leaf and self.reading.world.follows_all(
                one.leaf.rank, lambda at: one.index(at) == other.index(at)
            )
        if isinstance(one, Parameter) and isinstance(other, Parameter):
            return self.reading.number(one) == self.reading.number(other) and _agree(one.type, other.type)
        if isinstance(one, Applied) and isinstance(other, Applied):
            return one.head == other.head and self._same_operands(one, other)
        if isinstance(one, Count) and isinstance(other, Count):
            return self._same_counts(one.binders, other.binders)
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

    def _same_counts(self, one: tuple[Binder, ...], other: tuple[Binder, ...]) -> bool:
        return len(one) == len(other) and any(
            all(self._same_positions(a, b) is not None for a, b in zip(one, order, strict=True))
            for order in permutations(other)
        )

    def _same_positions(self, one: Binder, other: Binder) -> Renaming | None:
        """How the axes of two binders correspond, if they run over the same positions; None if that is not proved."""
        world = self.reading.world
        for renaming in (*_single_axes(one, other), _SAME, *world.permutations, *map(_turned, world.permutations)):
            forth, back = partial(_maps, one, other, renaming), partial(_maps, other, one, _turned(renaming))
            if world.follows_all(one.rank, forth) and world.follows_all(other.rank, back):
                return renaming
        return None

    def _same_reductions(self, one: Reduced, other: Reduced) -> bool:
        """Whether the bodies are equal at every position, where both run over the same ones, in whatever order."""
        if one.total != other.total or len(one.binders) != len(other.binders) or len(one.binders) > _MOST_BINDERS:
            return False
        return any(self._same_bodies(one, other, order) for order in permutations(other.binders))

    def _same_bodies(self, one: Reduced, other: Reduced, order: tuple[Binder, ...]) -> bool:
        pairs = list(zip(one.binders, order, strict=True))
        renamings = [self._same_positions(a, b) for a, b in pairs]
        if any(r is None for r in renamings):
            return False
        with self.at_positions(*one.binders):
            for (a, b), renaming in zip(pairs, renamings, strict=True):
                assert renaming is not None
                _identify(self.reading, a, b, renaming)
            memory, self._memory = self._memory, dict(self._memory)
            try:
                return self.equal(one.body, other.body)
            finally:
                self._memory = memory

    def at_positions(self, *binders: Binder) -> Any:
        """A case in which binders are at some position."""
        return _Within(self.reading, binders)

    # --- the same by algebra

    def _by_sums(self, left: Expression, right: Expression) -> bool:
        """Whether both are the same sums of products, once these are multiplied out."""
        if not (_all_floating(left) and _all_floating(right)) and (_divides(left) or _divides(right)):
            return False  # whole numbers are rounded
        one, other = normal_forms(self, left), normal_forms(self, right)
        if one is None or other is None or len(one) != len(other):
            return False
        waiting = list(other)
        for term in one:
            match = next((t for t in waiting if t.factor == term.factor and self._same_terms(term.sum, t.sum)), None)
            if match is None:
                return False
            waiting.remove(match)
        return True

    def _same_terms(self, one: Reduced, other: Reduced) -> bool:
        if not one.binders and not other.binders:
            return self._equal_body(one.body, other.body)
        return self._same_reductions(one, other)

    def _equal_body(self, one: Expression, other: Expression) -> bool:
        return self.same(one, other) or self._by_scalars(one, other)

    def _by_scalars(self, left: Expression, right: Expression) -> bool:
        """Whether both are equal as scalars, elements that are one being one variable."""
        atoms: list[Expression] = []
        variables: dict[int, int] = {}
        for atom in (*_atoms(left), *_atoms(right)):
            number = next((i for i, known in enumerate(atoms) if self.same(known, atom)), len(atoms))
            if number == len(atoms):
                atoms.append(atom)
            variables[id(atom)] = number
        types = [t for atom in atoms if (t := _type(atom)) is not None]
        if too_many(types):
            return False
        checked = False
        for classes in cases(types):
            if not self._holds(left, right, atoms, variables, classes):
                return False
            checked = True
        return checked

    def _holds(
        self,
        left: Expression,
        right: Expression,
        atoms: list[Expression],
        variables: Mapping[int, int],
        classes: Mapping[Type, str],
    ) -> bool:
        typed = [(a, classes[t.root()]) for a in atoms if (t := _type(a)) is not None]
        kinds = {c for a, c in typed if c != "bool" and not self._is_number(a)} or {c for _, c in typed if c != "bool"}
        whole = bool(kinds) and kinds <= {"int", "uint"}
        if len(kinds & {"int", "uint"}) == 2:
            return False
        arithmetic = Bits(8, signed="uint" not in kinds) if whole else _ByName()
        assumptions: list[Assumption] = []
        values: list[Array] = []
        for number, atom in enumerate(atoms):
            name = f"v{number}"
            values.append(self._variable(atom, name, classes, arithmetic))
            assumptions += [Assumption(sign, name) for sign in self._signs(atom)]  # type: ignore[arg-type]
        try:
            one, other = (_evaluated(x, values, variables, arithmetic) for x in (left, right))
        except Unsupported:
            return False
        return prove_equal(one, other, assumptions, arithmetic).outcome == "proved"

    def _is_number(self, atom: Expression) -> bool:
        return isinstance(atom, Parameter) and isinstance(self.reading.number(atom), float)

    def _variable(self, atom: Expression, name: str, classes: Mapping[Type, str], arithmetic: Reals | Bits) -> Array:
        type_ = _type(atom)
        dtype = CLASSES[classes[type_.root()]] if type_ is not None else "float32"
        if isinstance(atom, Parameter) and isinstance(known := self.reading.number(atom), float):
            if dtype == "bool" and isinstance(arithmetic, Bits):
                return np.asarray(Word(z3.BoolVal(bool(known))), dtype=object)
            like = np.zeros((), dtype if dtype != "bool" else bool)
            return arithmetic.constant(bool(known) if dtype == "bool" else known, like)
        return leaf_array(name, (), dtype, arithmetic)

    def is_nonzero(self, x: Expression) -> bool:
        """Whether it is said of an expression that it is never zero."""
        if isinstance(x, Parameter) and isinstance(known := self.reading.number(x), float):
            return known != 0
        return "nonzero" in set(self._signs(x))

    def _signs(self, atom: Expression) -> Iterator[str]:
        if isinstance(atom, Element):
            yield from sorted(atom.leaf.signs)
        elif isinstance(atom, Parameter) and isinstance(atom.value, str):
            yield from sorted(self.reading.signs.get(atom.value, ()))
        elif isinstance(atom, Count):
            yield from ("nonneg", "nonzero")


class _Within:
    """A case in which binders are at some position: between 0 and the size along each of their axes."""

    def __init__(self, reading: Reading, binders: tuple[Binder, ...]) -> None:
        self._world, self._binders = reading.world, binders
        self._case = reading.world.supposing()

    def __enter__(self) -> None:
        self._case.__enter__()
        for binder in self._binders:
            self._world.assume_all(partial(_within_bounds, binder))

    def __exit__(self, *failure: Any) -> None:
        self._case.__exit__(*failure)


def _on(binder: Binder, at: Any) -> Truth:
    return z3.And(at >= 0, at < binder.rank, binder.among(at))


def _within_bounds(binder: Binder, at: Any) -> Truth:
    return z3.Implies(_on(binder, at), z3.And(binder.at(at) >= 0, binder.at(at) < binder.extent(at)))


def _turned(renaming: Renaming) -> Renaming:
    return renaming[1], renaming[0]


def _single_axes(one: Binder, other: Binder) -> Iterator[Renaming]:
    if one.axis is not None and other.axis is not None:
        yield lambda at: other.axis, lambda at: one.axis


def _maps(one: Binder, other: Binder, renaming: Renaming, at: Any) -> Truth:
    """An axis of one binder has its like among those of another, of the same size, and is the like of that."""
    there, back = renaming
    like = there(at)
    return z3.Implies(
        one.among(at),
        z3.And(like >= 0, like < other.rank, other.among(like), one.extent(at) == other.extent(like), back(like) == at),
    )


def _identify(reading: Reading, one: Binder, other: Binder, renaming: Renaming) -> None:
    """Two binders over the same positions are at the same one."""
    there, back = renaming
    reading.world.assume_all(lambda at: z3.Implies(_on(one, at), other.at(there(at)) == one.at(at)))
    reading.world.assume_all(lambda at: z3.Implies(_on(other, at), other.at(at) == one.at(back(at))))


# --- expressions


def _choices(x: Expression | None) -> Iterator[Truth]:
    """The conditions of choices that no reduction surrounds."""
    if isinstance(x, Choice):
        yield x.condition
    elif isinstance(x, Applied):
        for operand in x.operands:
            yield from _choices(operand)


def _chosen(x: Any, condition: Truth, value: bool) -> Any:
    if isinstance(x, Choice) and x.condition is condition:
        return _chosen(x.then if value else x.otherwise, condition, value)
    if isinstance(x, Choice):
        return Choice(x.condition, _chosen(x.then, condition, value), _chosen(x.otherwise, condition, value))
    if isinstance(x, Applied):
        return Applied(x.head, tuple(_chosen(o, condition, value) for o in x.operands), x.attributes)
    return x


def _atoms(x: Any) -> Iterator[Expression]:
    """What the prover for scalars takes for variables."""
    if isinstance(x, Applied):
        for part in (*x.operands, *x.attributes):
            yield from _atoms(part)
    elif isinstance(x, (Element, Parameter, Count, Reduced)):
        yield x


def _agree(one: Type | None, other: Type | None) -> bool:
    return one is None or other is None or one.root() is other.root() or bool(one.exact and one.exact == other.exact)


def _within(x: Any) -> Iterator[Expression]:
    """An expression and all parts of it, those of reductions too."""
    yield x
    parts: tuple[Any, ...] = ()
    if isinstance(x, Applied):
        parts = tuple(o for o in x.operands if o is not None)
    elif isinstance(x, Reduced):
        parts = (x.body,)
    elif isinstance(x, Choice):
        parts = (x.then, x.otherwise)
    for part in parts:
        yield from _within(part)


def _all_floating(x: Expression) -> bool:
    return all(t.root().allowed <= {"float"} for part in _within(x) if (t := _type(part)) is not None)


def _divides(x: Expression) -> bool:
    return any(isinstance(part, Applied) and part.head in ("Div", "Reciprocal") for part in _within(x))


def _type(x: Expression | None) -> Type | None:
    if isinstance(x, Element):
        return x.leaf.type
    return x.type if isinstance(x, (Parameter, Count, Reduced)) else None


def _evaluated(x: Any, values: list[Array], variables: Mapping[int, int], arithmetic: Reals | Bits) -> Any:
    if id(x) in variables:
        return values[variables[id(x)]]
    if isinstance(x, Applied):
        operands = [_evaluated(o, values, variables, arithmetic) for o in x.operands]
        attributes = [_attribute(a, values, variables, arithmetic) for a in x.attributes]
        return semantics.evaluate(x.head, [*operands, *attributes], arithmetic)
    if isinstance(x, Choice):
        raise Unsupported("a choice")
    return x


def _attribute(x: Any, values: list[Array], variables: Mapping[int, int], arithmetic: Reals | Bits) -> Any:
    if isinstance(x, Parameter) and isinstance(x.value, float):
        return x.value
    if isinstance(x, (Parameter, Applied)):
        return _evaluated(x, values, variables, arithmetic).item()
    if z3.is_expr(x):
        known = z3.simplify(x)
        if not z3.is_int_value(known):
            raise Unsupported("an attribute of unknown value")
        return known.as_long()
    if isinstance(x, Type) or (isinstance(x, str) and x.startswith("?")):
        raise Unsupported("an attribute of unknown value")
    return x
