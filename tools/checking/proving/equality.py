"""Proofs that two symbolic arrays are equal: that an expression is zero wherever conditions hold, by normal forms, by
points, by cases, by z3."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import z3

from ....ir.operators.arithmetic import Array
from .algebra import Algebra
from .arithmetics import Bits, Reals, Word
from .definedness import NEVER, Condition, Conditions, rebuild_conditions
from .fractions import canonical, clear_denominators, is_multiple, split_content
from .polynomial import ANY, NEGATIVE, POSITIVE, ZERO, Atom, Number, Polynomial, TooLarge, atom, number, of
from .scalars import Real, exact, leaf
from .signs import product_signs, signs_of_atom, signs_of_number, signs_of_power
from .solver import ask, limited_solver

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


Values = Mapping[str, Fraction | bool]
"""The values of leaves by name: numbers and truth values."""
Finding = Literal["holds", "fails", "unknown"]
_MOST_CASES = 120
"""Cases of one test, at most: with more, the answer is ``unknown``."""
_POINTS = 24
"""Choices of numbers for the leaves that are tried before z3: most wrong equalities fail at one of them."""
_NUMBERS = tuple(Fraction(n) for n in ("1", "-1", "0", "2", "-2", "1/2", "-1/2", "3"))
_TRUTHS = (Fraction(1), Fraction(0))


@dataclass
class ZeroTest:
    """Tests whether expressions are zero wherever conditions hold.

    `values` is an example at which the last expression is not zero; `unanswered` counts the questions on which z3 gave
    up.
    """

    values: Values = field(default_factory=dict)
    unanswered: int = 0
    _cases: int = 0

    def vanishes(self, x: Polynomial, conditions: Conditions) -> Finding:
        """Test one expression. ``fails`` comes only with an example at which the expression was computed."""
        x = canonical(_algebra_given(conditions).rebuild(x))
        if not x:
            return "holds"
        leaves = leaves_of((x, *polynomials_of(conditions)))
        if any(self._is_nonzero_at(point, x, conditions) for point in _points(leaves)):
            return "fails"
        # z3 knows little of functions: if signs stand inside of functions, it is only asked within cases
        functions = (a for a in atoms_within((x,)) if a.kind in ("exp", "function", "magnitude"))
        if not any(inner.kind == "sign" for a in functions for inner in atoms_within(a.arguments)):
            answer = self._ask_solver(x, conditions)
            if answer != "unknown":
                return answer
        self._cases = 0
        return self._test_cases(x, conditions)

    def _is_nonzero_at(self, point: Mapping[Atom, Polynomial], x: Polynomial, conditions: Conditions) -> bool:
        algebra = Algebra(replace=point)
        if rebuild_conditions(conditions, algebra) or algebra.signs(algebra.rebuild(x)) & ZERO:
            return False
        self.values = _values_at(point)
        return True

    def _ask_solver(self, x: Polynomial, conditions: Conditions) -> Finding:
        answer, values = ask(conditions, x, ())
        if answer == "never":
            return "holds"
        leaves = leaves_of((x, *polynomials_of(conditions)))
        if answer == "sometimes" and self._is_nonzero_at(point_of(values, leaves), x, conditions):
            return "fails"
        self.unanswered += answer == "unknown"
        return "unknown"

    def _test_cases(self, x: Polynomial, conditions: Conditions) -> Finding:
        """Test each value of the innermost sign, truth value or maximum by itself."""
        self._cases += 1
        if self._cases > _MOST_CASES:
            return "unknown"
        switch = _innermost_switch(x)
        if switch is None:
            return self._ask_solver(x, conditions)
        for narrowed, instead in _branches(switch):
            algebra = _algebra_given(conditions | narrowed, instead)
            inside = rebuild_conditions(conditions | narrowed, Algebra(replace=instead))
            if inside >= NEVER or rebuild_conditions(conditions, algebra) >= NEVER:
                continue
            rest = canonical(algebra.rebuild(x))
            if not rest or any(c.allowed == ZERO and is_multiple(rest, c.arguments[0]) for c in narrowed):
                continue
            finding = self._test_cases(rest, inside)
            if finding != "holds":
                return finding
        return "holds"


def _innermost_switch(x: Polynomial) -> Atom | None:
    """A sign, truth value or maximum without another one inside."""
    switches = [a for a in atoms_within((x,)) if a.kind in ("sign", "truth", "maximum")]
    for switch in sorted(switches, key=lambda a: a.serial):
        if not any(a in switches for a in atoms_within(switch.arguments)):
            return switch
    return None


def _branches(switch: Atom) -> Iterator[tuple[Conditions, dict[Atom, Polynomial]]]:
    """The cases of a switch: the conditions that hold in each, and which atoms it replaces."""
    if switch.kind == "truth":
        yield frozenset(), {switch: number(0)}
        yield frozenset(), {switch: number(1)}
    elif switch.kind == "maximum":
        for largest in switch.arguments:
            above = (Condition("signs", (largest - o,), POSITIVE | ZERO) for o in switch.arguments if o is not largest)
            yield frozenset(above), {switch: largest}
    else:
        inside = switch.arguments[0]
        for sign in (POSITIVE, NEGATIVE, ZERO):
            if switch.signs & sign:
                yield frozenset({Condition("signs", (inside,), sign)}), _solve(inside) if sign == ZERO else {}


def _solve(x: Polynomial) -> dict[Atom, Polynomial]:
    """A leaf in terms of the others, so that the polynomial is zero; {} if it is linear in no leaf."""
    for monomial, coefficient in x.terms.items():
        if len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].kind == "leaf" and monomial[0][0].signs == ANY:
            leaf = monomial[0][0]
            rest = Polynomial({m: c for m, c in x.terms.items() if m != monomial})
            if leaf not in atoms_within((rest,)):
                return {leaf: rest.times(Fraction(-1) / coefficient)}
    return {}


def follows(given: Conditions, wanted: Conditions) -> tuple[Finding, Values]:
    """Whether some conditions imply others; ``fails`` comes with an example."""
    if wanted <= given:
        return "holds", {}
    algebra = _algebra_given(given)
    if not rebuild_conditions(wanted, algebra) - rebuild_conditions(given, algebra) - given:
        return "holds", {}
    missing = [c for c in wanted if c not in given]

    def breaks(point: Mapping[Atom, Polynomial]) -> bool:
        algebra = Algebra(replace=point)
        return not rebuild_conditions(given, algebra) and any(
            rebuild_conditions((c,), algebra) >= NEVER for c in missing
        )

    leaves = leaves_of(polynomials_of((*given, *missing)))
    for point in _points(leaves):
        if breaks(point):
            return "fails", _values_at(point)
    answer, values = ask(given, None, missing)
    if answer == "never":
        return "holds", {}
    point = point_of(values, leaves)
    return ("fails", _values_at(point)) if answer == "sometimes" and breaks(point) else ("unknown", {})


# --- atoms, wherever they stand


def atoms_within(polynomials: Iterable[Polynomial]) -> set[Atom]:
    """The atoms of polynomials and of their arguments."""
    atoms: set[Atom] = set()
    waiting = [a for p in polynomials for a in p.atoms()]
    while waiting:
        atom = waiting.pop()
        if atom not in atoms:
            atoms.add(atom)
            waiting += [a for p in atom.arguments for a in p.atoms()]
    return atoms


def polynomials_of(conditions: Iterable[Condition]) -> Iterator[Polynomial]:
    """The polynomials that conditions are about."""
    for condition in conditions:
        yield from condition.arguments
        if condition.inner is not None:
            yield from polynomials_of((condition.inner,))


def leaves_of(polynomials: Iterable[Polynomial]) -> list[Atom]:
    """The variables of polynomials, oldest first."""
    leaves = (a for a in atoms_within(polynomials) if a.kind in ("leaf", "truth"))
    return sorted(leaves, key=lambda a: a.serial)


# --- conditions as facts


def _algebra_given(conditions: Iterable[Condition], replace: Mapping[Atom, Polynomial] | None = None) -> Algebra:
    """The algebra that takes conditions for granted."""
    signs = [(c.arguments[0], c.allowed) for c in conditions if c.kind == "signs"]
    facts: dict[Atom | Polynomial, int] = {}
    for x, allowed in signs:
        single = x.single
        if single is not None and single.kind == "leaf":
            facts[single] = facts.get(single, ANY) & allowed
    others = [(x, allowed) for x, allowed in signs if x.single not in facts]
    for _ in range(2):  # a fact may simplify another one
        algebra = Algebra(facts, replace)
        for x, allowed in others:
            if rebuild_conditions := canonical(algebra.rebuild(x)):
                _add_fact(facts, algebra, rebuild_conditions, allowed)
    return Algebra(facts, replace)


def _add_fact(facts: dict[Atom | Polynomial, int], algebra: Algebra, x: Polynomial, allowed: int) -> None:
    """Conclude from the signs of a product the signs of its only factor of unknown sign."""
    known_signs = POSITIVE
    unknown: list[tuple[Atom | Polynomial, Number]] = []
    for factor, exponent in _factors(x):
        own = signs_of_atom(factor, facts) if isinstance(factor, Atom) else algebra.signs(factor)
        signs = signs_of_power(own, exponent)
        if signs in (POSITIVE, NEGATIVE):
            known_signs = product_signs(known_signs, signs)
        else:
            unknown.append((factor, exponent))
    if len(unknown) != 1:
        return
    factor, exponent = unknown[0]
    if exponent % 2 == 1:
        facts[factor] = facts.get(factor, ANY) & product_signs(allowed, known_signs)
    elif not allowed & ZERO:
        facts[factor] = facts.get(factor, ANY) & ~ZERO


def _factors(x: Polynomial) -> Iterator[tuple[Atom | Polynomial, Number]]:
    """The atoms and sums of which a polynomial is the product, with their exponents."""
    numerator, denominators = clear_denominators(x)
    rest, common, coefficient = split_content(numerator)
    yield number(coefficient), 1
    yield from common
    yield from ((f.arguments[0], -e) for f, e in denominators.items() if e)
    if rest.constant is None:
        yield rest, 1


# --- numbers for the leaves


def _points(leaves: Sequence[Atom]) -> Iterator[dict[Atom, Polynomial]]:
    """Numbers to try, of the signs that the leaves have."""
    choose = random.Random(0)
    signs: dict[str, int] = {}
    for each in leaves:  # one variable under several facts is several atoms of one name
        signs[each.label] = signs.get(each.label, ANY) & each.signs
    truths = {each.label for each in leaves if each.kind == "truth"}
    for attempt in range(_POINTS):
        chosen = {}
        for name, allowed in signs.items():
            numbers = [n for n in (_TRUTHS if name in truths else _NUMBERS) if signs_of_number(n) & allowed]
            if not numbers:
                return
            chosen[name] = numbers[attempt] if attempt < min(4, len(numbers)) else choose.choice(numbers)
        yield {each: number(chosen[each.label]) for each in leaves}


def point_of(values: Values, leaves: Sequence[Atom]) -> dict[Atom, Polynomial]:
    """The values of leaves as polynomials; leaves without a value are zero."""
    return {each: number(Fraction(values.get(each.label, 0))) for each in leaves}


def _values_at(point: Mapping[Atom, Polynomial]) -> Values:
    """The values of leaves by name."""
    values: dict[str, Fraction | bool] = {}
    for variable, value in point.items():
        constant = Fraction(value.constant or 0)
        values[variable.label] = bool(constant) if variable.kind == "truth" else constant
    return values
