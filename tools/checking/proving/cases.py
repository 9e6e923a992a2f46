"""Whether an expression is zero wherever conditions hold: by normal forms, by points, by cases, by z3."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from .algebra import Algebra
from .definedness import NEVER, Condition, Conditions, rebuild_conditions
from .fractions import canonical, clear_denominators, is_multiple, split_content
from .polynomial import ANY, NEGATIVE, POSITIVE, ZERO, Atom, Number, Polynomial, number
from .signs import product_signs, signs_of_atom, signs_of_number, signs_of_power
from .solver import ask

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
        for narrowed, replace in _branches(switch):
            algebra = _algebra_given(conditions | narrowed, replace)
            inside = rebuild_conditions(conditions | narrowed, Algebra(replace=replace))
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
    for leaf in leaves:  # one variable under several facts is several atoms of one name
        signs[leaf.label] = signs.get(leaf.label, ANY) & leaf.signs
    truths = {leaf.label for leaf in leaves if leaf.kind == "truth"}
    for attempt in range(_POINTS):
        chosen = {}
        for name, allowed in signs.items():
            numbers = [n for n in (_TRUTHS if name in truths else _NUMBERS) if signs_of_number(n) & allowed]
            if not numbers:
                return
            chosen[name] = numbers[attempt] if attempt < min(4, len(numbers)) else choose.choice(numbers)
        yield {leaf: number(chosen[leaf.label]) for leaf in leaves}


def point_of(values: Values, leaves: Sequence[Atom]) -> dict[Atom, Polynomial]:
    """The values of leaves as polynomials; leaves without a value are zero."""
    return {leaf: number(Fraction(values.get(leaf.label, 0))) for leaf in leaves}


def _values_at(point: Mapping[Atom, Polynomial]) -> Values:
    """The values of leaves by name."""
    values: dict[str, Fraction | bool] = {}
    for leaf, value in point.items():
        constant = Fraction(value.constant or 0)
        values[leaf.label] = bool(constant) if leaf.kind == "truth" else constant
    return values
