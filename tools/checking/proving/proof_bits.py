"""Proofs about whole numbers of a few bits: z3 decides them all, given time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import z3

from .proof_solver import limited_solver
from .symbolic_bits import Word

Outcome = Literal["proved", "refuted", "unknown"]
Failure = Literal["", "value", "right-undefined", "left-undefined"]
Values = Mapping[str, Fraction | bool]


def word_equal(
    left: Word, right: Word, facts: Sequence[tuple[str, str, float | None]], signed: bool, timeout_ms: int
) -> tuple[Outcome, Failure, str, Values]:
    """Whether two words are equal where both are defined, and defined in the same places: the outcome, what is not
    proved, the reason, and the leaves of a counterexample. `facts` are kind, leaf and value of the assumptions."""
    if _parts(left) == _parts(right):  # the same element was moved; z3 takes milliseconds to see that
        return "proved", "", "", {}
    leaves = _leaves((left, right))
    given = [f for name, term in leaves.items() for f in _facts(name, term, facts, signed)]
    both = [*given, *left.defined, *right.defined]
    questions: list[tuple[Failure, list[Any], str]] = [
        ("value", [*both, z3.simplify(left.term != right.term, som=True)], "differ"),
        ("right-undefined", _undefined(given, left, right), "right side undefined where the left is defined"),
        ("left-undefined", _undefined(given, right, left), "left side undefined where the right is defined"),
    ]
    for failure, constraints, text in questions:
        model = _model(constraints, timeout_ms)
        if model == "unknown":
            return "unknown", failure, f"{text}: z3 gives no answer in time", {}
        if model is not None:
            values = {name: _number(model.eval(term, True), signed) for name, term in leaves.items()}
            sides = [_number(model.eval(x.term, True), signed) for x in (left, right)]
            return "refuted", failure, f"{text}: {_shown(failure, sides, values)}", values
    return "proved", "", "", {}


def _parts(word: Word) -> tuple[int, ...]:
    """The numbers of its terms: z3 has one for equal ones."""
    return (word.term.get_id(), *(condition.get_id() for condition in word.defined))


def _undefined(given: Sequence[Any], defined: Word, undefined: Word) -> list[Any]:
    broken = z3.Not(z3.And([*undefined.defined, z3.BoolVal(True)]))
    return [*given, *defined.defined, broken]


def _model(constraints: Sequence[Any], timeout_ms: int) -> Any:
    """An example, None where there is none, or ``unknown``."""
    solver = limited_solver(timeout_ms)
    solver.add(*constraints)
    status = solver.check()
    return solver.model() if status == z3.sat else None if status == z3.unsat else "unknown"


def _shown(failure: str, sides: Sequence[Fraction | bool], values: Values) -> str:
    if failure == "value":
        return f"left {sides[0]}, right {sides[1]}"
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _number(term: Any, signed: bool) -> Fraction | bool:
    if z3.is_bool(term):
        return bool(z3.is_true(term))
    return Fraction(term.as_signed_long() if signed else term.as_long())


def _facts(name: str, term: Any, facts: Sequence[tuple[str, str, float | None]], signed: bool) -> Iterator[Any]:
    for kind, leaf, value in facts:
        if name != leaf and not name.startswith(f"{leaf}["):
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


def _leaves(words: Sequence[Word]) -> dict[str, Any]:
    """The variables of some words."""
    waiting = [t for w in words for t in (w.term, *w.defined)]
    found: dict[str, Any] = {}
    seen = set()
    while waiting:
        term = waiting.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_const(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[term.decl().name()] = term
        waiting += term.children()
    return dict(sorted(found.items()))
