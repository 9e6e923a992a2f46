"""Proofs that two symbolic arrays are equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from ....ir.operators.arithmetic import Array
from .proof_bits import word_equal
from .proof_cases import Finding, Question, follows
from .proof_facts import Values, leaves_of, point_of, polynomials_of
from .symbolic import Bits, Real, Reals, exact, leaf
from .symbolic_algebra import Algebra
from .symbolic_conditions import Conditions, rebuilt
from .symbolic_polynomial import NEGATIVE, ZERO, Atom, Polynomial, TooLarge, atom, number, of

Outcome = Literal["proved", "refuted", "unknown"]
Failure = Literal["", "value", "right-undefined", "left-undefined"]
Kind = Literal["nonneg", "nonzero", "value"]

_SLOW_ELEMENTS = 3
"""After so many elements on which z3 gave up, no more are asked about."""


@dataclass(frozen=True)
class Assumption:
    """A fact about all elements of a leaf: none is below zero, none is zero, or all are one number."""

    kind: Kind
    leaf: str
    value: float | None = None


@dataclass(frozen=True)
class Proof:
    """Whether two arrays are equal wherever the left one is defined, and defined in the same places.

    `needs`: it holds under the assumptions only. `failure` says what is not proved: the ``value``, that the right side
    is defined where the left is (``right-undefined``), or that the left is where the right is (``left-undefined``).
    ``refuted`` comes with a `counterexample`, the numbers of leaf elements, that was computed through.
    """

    outcome: Outcome
    needs: bool = False
    failure: Failure = ""
    reason: str = ""
    counterexample: Mapping[str, Fraction | bool] = field(default_factory=dict)


def leaf_array(name: str, shape: tuple[int, ...], dtype: str, arithmetic: Reals | Bits) -> Array:
    """An array of variables named ``name[i, j]``, or of one named ``name``."""
    make = leaf if isinstance(arithmetic, Reals) else arithmetic.leaf
    result = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        result[index] = make(name + (f"[{','.join(map(str, index))}]" if index else ""), dtype)
    return result


def prove_equal(
    left: Array, right: Array, assumptions: Sequence[Assumption], arithmetic: Reals | Bits, timeout_ms: int = 300
) -> Proof:
    """Compare two arrays of scalars of one arithmetic, first without the assumptions, then with them.

    z3 is given `timeout_ms` for each question that normal forms leave open.
    """
    if left.shape != right.shape:
        return Proof("refuted", failure="value", reason=f"shapes {list(left.shape)} and {list(right.shape)}")
    proof = _worst(_elements(left, right, (), arithmetic, timeout_ms))
    if proof.outcome == "proved" or not assumptions:
        return proof
    assumed = _worst(_elements(left, right, assumptions, arithmetic, timeout_ms))
    return replace(assumed, needs=True) if assumed.outcome == "proved" else assumed


def _elements(
    left: Array, right: Array, assumptions: Sequence[Assumption], arithmetic: Reals | Bits, timeout_ms: int
) -> Iterator[Proof]:
    if isinstance(arithmetic, Bits):
        return _words(left, right, assumptions, arithmetic, timeout_ms)
    return _reals(left, right, assumptions, timeout_ms)


def _worst(proofs: Iterable[Proof]) -> Proof:
    worst = Proof("proved")
    for proof in proofs:
        if _weight(proof) > _weight(worst):
            worst = proof
        if proof.outcome == "refuted" and proof.failure == "value":
            break
    return worst


def _weight(proof: Proof) -> tuple[int, int]:
    """A value that is wrong tells more than a missing proof, and that more than what is about definedness."""
    failures = ("", "left-undefined", "right-undefined", "value")
    return failures.index(proof.failure), ("proved", "unknown", "refuted").index(proof.outcome)


def _words(
    left: Array, right: Array, assumptions: Sequence[Assumption], arithmetic: Bits, timeout_ms: int
) -> Iterator[Proof]:
    facts = [(a.kind, a.leaf, a.value) for a in assumptions]
    for index in np.ndindex(left.shape):
        one, other = left.item(index), right.item(index)
        outcome, failure, reason, values = word_equal(one, other, facts, arithmetic.signed, timeout_ms)
        yield Proof(outcome, False, failure, _at(index, reason), values)


# --- reals


def _reals(left: Array, right: Array, assumptions: Sequence[Assumption], timeout_ms: int) -> Iterator[Proof]:
    question = Question(timeout_ms)
    done: set[tuple[Real, Real]] = set()
    base = _assumed((*left.flat, *right.flat), assumptions)
    for index in np.ndindex(left.shape):
        pair = (left.item(index), right.item(index))
        if pair[0] == pair[1] or pair in done:
            continue
        done.add(pair)
        if question.slow >= _SLOW_ELEMENTS:
            yield Proof("unknown", failure="value", reason="z3 gives no answer in time")
            return
        try:
            yield _element(_under(pair[0], base), _under(pair[1], base), index, question)
        except TooLarge:
            yield Proof("unknown", failure="value", reason=_at(index, "the expression gets too large"))


def _assumed(scalars: Iterable[Real], assumptions: Sequence[Assumption]) -> Algebra | None:
    """The algebra in which the leaves are as assumed."""
    if not assumptions:
        return None
    everything = [p for x in scalars for p in (x.value, *polynomials_of(x.defined))]
    return Algebra(replace={a: _assumed_leaf(a, assumptions) for a in leaves_of(everything)})


def _assumed_leaf(one: Atom, assumptions: Sequence[Assumption]) -> Polynomial:
    own = [a for a in assumptions if one.label == a.leaf or one.label.startswith(f"{a.leaf}[")]
    for assumption in own:
        if assumption.kind == "value" and assumption.value is not None:
            return exact(assumption.value)
    kinds = {a.kind for a in own}
    if one.kind == "truth":
        return number(1) if "nonzero" in kinds else of(one)
    signs = one.signs & ~(NEGATIVE if "nonneg" in kinds else 0) & ~(ZERO if "nonzero" in kinds else 0)
    return of(atom(one.kind, one.label, (), signs))


def _under(x: Real, algebra: Algebra | None) -> Real:
    return x if algebra is None else Real(algebra.rebuild(x.value), rebuilt(x.defined, algebra), x.truth)


def _element(left: Real, right: Real, index: tuple[int, ...], question: Question) -> Proof:
    difference = left.value - right.value
    finding = question.vanishes(difference, left.defined | right.defined) if difference else "holds"
    if finding != "holds":
        return _value_failure(finding, left, right, index, question.values)
    for given, wanted, failure, reason in (
        (left.defined, right.defined, "right-undefined", "right side undefined where the left is defined"),
        (right.defined, left.defined, "left-undefined", "left side undefined where the right is defined"),
    ):
        finding, values = follows(given, wanted, question.timeout_ms)
        if finding != "holds":
            shown = f"{reason}: {_numbers(values, wanted)}" if values else f"{reason} (not ruled out)"
            return Proof(_outcome(finding), False, _failure(failure), _at(index, shown), values)
    return Proof("proved")


def _failure(text: str) -> Failure:
    return "right-undefined" if text == "right-undefined" else "left-undefined"


def _outcome(finding: Finding) -> Outcome:
    return "refuted" if finding == "fails" else "unknown"


def _value_failure(finding: Finding, left: Real, right: Real, index: tuple[int, ...], values: Values) -> Proof:
    if finding == "unknown":
        return Proof("unknown", False, "value", _at(index, "neither proved nor refuted"))
    leaves = leaves_of((left.value, right.value))
    algebra = Algebra(replace=point_of(values, leaves))
    shown = [_shown(algebra.rebuild(x.value)) for x in (left, right)]
    where = f"differ at [{', '.join(map(str, index))}]" if index else "differ"
    reason = f"{where}: left {shown[0]}, right {shown[1]}"
    return Proof("refuted", False, "value", reason, values)


def _shown(x: Polynomial) -> str:
    known = x.constant
    return repr(x) if known is None else str(known)


def _numbers(values: Values, conditions: Conditions) -> str:
    """The values of the leaves that conditions are about."""
    names = [a.label for a in leaves_of(polynomials_of(conditions))]
    return ", ".join(f"{n} = {values[n]}" for n in dict.fromkeys(names) if n in values)


def _at(index: tuple[int, ...], reason: str) -> str:
    return f"[{', '.join(map(str, index))}] {reason}" if index and reason else reason
