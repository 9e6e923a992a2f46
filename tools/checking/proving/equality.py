"""Proofs that two symbolic arrays are equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import z3

from ....ir.operators.arithmetic import Array
from .algebra import Algebra
from .arithmetics import Bits, Reals, Word
from .cases import Finding, Values, ZeroTest, follows, leaves_of, point_of, polynomials_of
from .definedness import Conditions, rebuild_conditions
from .polynomial import NEGATIVE, ZERO, Atom, Polynomial, TooLarge, atom, number, of
from .scalars import Real, exact, leaf
from .solver import limited_solver

Outcome = Literal["proved", "refuted", "unknown"]
Failure = Literal["", "left-undefined", "right-undefined", "value"]
_FAILURES: tuple[Failure, ...] = ("", "left-undefined", "right-undefined", "value")
"""From the least to the most telling: a wrong value tells more than an undefined side."""
_OUTCOMES: tuple[Outcome, ...] = ("proved", "unknown", "refuted")
_RIGHT_UNDEFINED = "right side undefined where the left is defined"
_LEFT_UNDEFINED = "left side undefined where the right is defined"
_MOST_UNANSWERED = 3
"""Stop asking about further elements once z3 gave up on this many."""


@dataclass(frozen=True)
class Assumption:
    """A fact about all elements of a leaf: none is below zero, none is zero, or all are one number."""

    kind: Literal["nonneg", "nonzero", "value"]
    leaf: str
    value: float | None = None

    def is_about(self, variable: str) -> bool:
        """Whether a variable is an element of the leaf."""
        return variable == self.leaf or variable.startswith(f"{self.leaf}[")


@dataclass(frozen=True)
class EqualityProof:
    """Whether two arrays are equal wherever the left one is defined, and defined for the same values of leaves.

    `needs`: the proof needs the assumptions. `failure` is the part without a proof: that the values are equal
    (``value``), that the right side is defined if the left is (``right-undefined``), or that the left side is defined
    if the right is (``left-undefined``). ``refuted`` comes with a `counterexample`: values of leaf elements at which
    both sides were computed.
    """

    outcome: Outcome
    needs: bool = False
    failure: Failure = ""
    reason: str = ""
    counterexample: Mapping[str, Fraction | bool] = field(default_factory=dict)


def leaf_array(name: str, shape: tuple[int, ...], dtype: str, arithmetic: Reals | Bits) -> Array:
    """An array of variables named ``name[i, j]``; of rank 0 one variable named ``name``."""
    make = leaf if isinstance(arithmetic, Reals) else arithmetic.leaf
    result = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        result[index] = make(name + (f"[{','.join(map(str, index))}]" if index else ""), dtype)
    return result


def prove_equal(
    left: Array, right: Array, assumptions: Sequence[Assumption], arithmetic: Reals | Bits
) -> EqualityProof:
    """Compare two arrays of scalars of one arithmetic, first without the assumptions, then with them.

    Normal forms answer first; z3 is asked what they leave open.
    """
    if left.shape != right.shape:
        return EqualityProof("refuted", failure="value", reason=f"shapes {list(left.shape)} and {list(right.shape)}")

    def prove(given: Sequence[Assumption]) -> EqualityProof:
        if isinstance(arithmetic, Bits):
            return _worst(_prove_words(left, right, given, arithmetic.signed))
        return _worst(_prove_reals(left, right, given))

    proof = prove(())
    if proof.outcome == "proved" or not assumptions:
        return proof
    proof = prove(assumptions)
    return replace(proof, needs=True) if proof.outcome == "proved" else proof


def _worst(proofs: Iterable[EqualityProof]) -> EqualityProof:
    """The proof that says most against equality, among those of the elements."""
    worst = EqualityProof("proved")
    for proof in proofs:
        if _weight(proof) > _weight(worst):
            worst = proof
        if proof.outcome == "refuted" and proof.failure == "value":
            break
    return worst


def _weight(proof: EqualityProof) -> tuple[int, int]:
    return _FAILURES.index(proof.failure), _OUTCOMES.index(proof.outcome)


def _at(index: tuple[int, ...], reason: str) -> str:
    return f"[{', '.join(map(str, index))}] {reason}" if index else reason


# --- reals


def _prove_reals(left: Array, right: Array, assumptions: Sequence[Assumption]) -> Iterator[EqualityProof]:
    test = ZeroTest()
    compared: set[tuple[Real, Real]] = set()
    algebra = _algebra_under(assumptions, (*left.flat, *right.flat)) if assumptions else None
    for index in np.ndindex(left.shape):
        pair = (left.item(index), right.item(index))
        if pair[0] == pair[1] or pair in compared:
            continue
        compared.add(pair)
        if test.unanswered >= _MOST_UNANSWERED:
            yield EqualityProof("unknown", failure="value", reason="z3 gives no answer in time")
            return
        try:
            one, other = pair if algebra is None else (_rebuild(x, algebra) for x in pair)
            yield _prove_real(one, other, index, test)
        except TooLarge:
            yield EqualityProof("unknown", failure="value", reason=_at(index, "the expression gets too large"))


def _algebra_under(assumptions: Sequence[Assumption], scalars: Iterable[Real]) -> Algebra:
    """The algebra in which the leaves of scalars are as assumed."""
    polynomials = [p for x in scalars for p in (x.value, *polynomials_of(x.defined))]
    return Algebra(replace={a: _assume_of_leaf(a, assumptions) for a in leaves_of(polynomials)})


def _assume_of_leaf(variable: Atom, assumptions: Sequence[Assumption]) -> Polynomial:
    own = [a for a in assumptions if a.is_about(variable.label)]
    for assumption in own:
        if assumption.kind == "value" and assumption.value is not None:
            return exact(assumption.value)
    kinds = {a.kind for a in own}
    if variable.kind == "truth":
        return number(1) if "nonzero" in kinds else of(variable)
    signs = variable.signs & ~(NEGATIVE if "nonneg" in kinds else 0) & ~(ZERO if "nonzero" in kinds else 0)
    return of(atom(variable.kind, variable.label, (), signs))


def _rebuild(x: Real, algebra: Algebra) -> Real:
    return Real(algebra.rebuild(x.value), rebuild_conditions(x.defined, algebra), x.truth)


_UNKNOWN = "no number refutes it, and the prover knows too little of its operators"


def _prove_real(left: Real, right: Real, index: tuple[int, ...], test: ZeroTest) -> EqualityProof:
    difference = left.value - right.value
    finding = test.vanishes(difference, left.defined | right.defined) if difference else "holds"
    if finding == "unknown":
        return EqualityProof("unknown", False, "value", _at(index, _UNKNOWN))
    if finding == "fails":
        return _refute_value(left, right, index, test.values)
    directions: tuple[tuple[Conditions, Conditions, Failure, str], ...] = (
        (left.defined, right.defined, "right-undefined", _RIGHT_UNDEFINED),
        (right.defined, left.defined, "left-undefined", _LEFT_UNDEFINED),
    )
    for given, wanted, failure, reason in directions:
        finding, values = follows(given, wanted)
        if finding != "holds":
            numbers = f": {_values_of_leaves(values, wanted)}" if values else " (not ruled out)"
            return EqualityProof(_outcome(finding), False, failure, _at(index, reason + numbers), values)
    return EqualityProof("proved")


def _outcome(finding: Finding) -> Outcome:
    return "refuted" if finding == "fails" else "unknown"


def _refute_value(left: Real, right: Real, index: tuple[int, ...], values: Values) -> EqualityProof:
    algebra = Algebra(replace=point_of(values, leaves_of((left.value, right.value))))
    one, other = (algebra.rebuild(x.value) for x in (left, right))
    where = f"differ at [{', '.join(map(str, index))}]" if index else "differ"
    sides = f"left {_with_decimals(one)}, right {_with_decimals(other)}"
    return EqualityProof("refuted", False, "value", f"{where}: {sides}", values)


def _with_decimals(x: Polynomial) -> str:
    """A value as text, a fraction with its decimals."""
    return repr(x) if x.constant is None else number_text(Fraction(x.constant))


def number_text(value: Fraction | bool) -> str:
    """A number as text, a fraction with its decimals: ``1/3 (0.333333)``."""
    is_fraction = isinstance(value, Fraction) and value.denominator != 1
    return f"{value} ({float(value):.6g})" if is_fraction else str(value)


def _values_of_leaves(values: Values, conditions: Conditions) -> str:
    """The values of the leaves that conditions are about, as text."""
    names = [a.label for a in leaves_of(polynomials_of(conditions))]
    return ", ".join(f"{n} = {number_text(values[n])}" for n in dict.fromkeys(names) if n in values)


# --- whole numbers of a few bits: z3 decides them all, given time


def _prove_words(left: Array, right: Array, assumptions: Sequence[Assumption], signed: bool) -> Iterator[EqualityProof]:
    for index in np.ndindex(left.shape):
        proof = _prove_word(left.item(index), right.item(index), assumptions, signed)
        yield replace(proof, reason=_at(index, proof.reason)) if proof.reason else proof


def _prove_word(left: Word, right: Word, assumptions: Sequence[Assumption], signed: bool) -> EqualityProof:
    if _term_ids(left) == _term_ids(right):  # z3 would take milliseconds to see that equal terms are equal
        return EqualityProof("proved")
    leaves = _leaves_of_words((left, right))
    facts = [fact for name, term in leaves.items() for fact in _facts_about(name, term, assumptions, signed)]
    differ = z3.simplify(left.term != right.term, som=True)
    questions: tuple[tuple[Failure, list[Any], str], ...] = (
        ("value", [*left.defined, *right.defined, differ], "differ"),
        ("right-undefined", [*left.defined, _is_undefined(right)], _RIGHT_UNDEFINED),
        ("left-undefined", [*right.defined, _is_undefined(left)], _LEFT_UNDEFINED),
    )
    for failure, constraints, reason in questions:
        solver = limited_solver()
        solver.add(*facts, *constraints)
        status = solver.check()
        if status == z3.unknown:
            return EqualityProof("unknown", False, failure, f"{reason}: z3 gives no answer in time")
        if status == z3.sat:
            model = solver.model()
            values = {name: _number_of(model.eval(term, True), signed) for name, term in leaves.items()}
            sides = [_number_of(model.eval(word.term, True), signed) for word in (left, right)]
            numbers = ", ".join(f"{name} = {value}" for name, value in values.items())
            numbers = f"left {sides[0]}, right {sides[1]}" if failure == "value" else numbers
            return EqualityProof("refuted", False, failure, f"{reason}: {numbers}", values)
    return EqualityProof("proved")


def _term_ids(word: Word) -> tuple[int, ...]:
    """z3's numbers of the word's terms: equal terms have one number."""
    return (word.term.get_id(), *(condition.get_id() for condition in word.defined))


def _is_undefined(word: Word) -> Any:
    return z3.Not(z3.And([*word.defined, z3.BoolVal(True)]))


def _number_of(term: Any, signed: bool) -> Fraction | bool:
    if z3.is_bool(term):
        return bool(z3.is_true(term))
    return Fraction(term.as_signed_long() if signed else term.as_long())


def _facts_about(name: str, term: Any, assumptions: Sequence[Assumption], signed: bool) -> Iterator[Any]:
    """The assumptions about a variable, as z3 truth values."""
    for assumption in assumptions:
        kind, value = assumption.kind, assumption.value
        if not assumption.is_about(name):
            continue
        if z3.is_bool(term):
            truth = value if kind == "value" else kind == "nonzero" or None
            yield from () if truth is None else (term == bool(truth),)
        elif kind == "value" and value is not None:
            yield term == int(value)
        elif kind == "nonzero":
            yield term != 0
        elif signed:
            yield term >= 0


def _leaves_of_words(words: Sequence[Word]) -> dict[str, Any]:
    """The variables of some words, by name in alphabetical order."""
    waiting = [t for w in words for t in (w.term, *w.defined)]
    leaves: dict[str, Any] = {}
    seen = set()
    while waiting:
        term = waiting.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_const(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            leaves[term.decl().name()] = term
        waiting += term.children()
    return dict(sorted(leaves.items()))
