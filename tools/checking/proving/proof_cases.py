"""Whether an expression is zero wherever conditions hold: by normal forms, by cases, by z3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from .proof_facts import Values, atoms_within, leaves_of, named, point_of, points, polynomials_of, under
from .proof_solver import ask
from .symbolic_algebra import Algebra
from .symbolic_conditions import NEVER, Condition, Conditions, rebuilt
from .symbolic_fractions import canonical, is_multiple
from .symbolic_polynomial import ANY, NEGATIVE, POSITIVE, ZERO, Atom, Polynomial, number

Finding = Literal["holds", "fails", "unknown"]
_MOST_CASES = 120


@dataclass
class Question:
    """Is an expression zero wherever conditions hold? `values` is an example of where it is not."""

    timeout_ms: int
    cases: int = 0
    values: Values = field(default_factory=dict)
    slow: int = 0

    def vanishes(self, x: Polynomial, conditions: Conditions) -> Finding:
        """The answer; ``fails`` only with an example that was computed through."""
        algebra = under(conditions)
        x = canonical(algebra.rebuild(x))
        if not x:
            return "holds"
        if self._differs_somewhere(x, conditions):
            return "fails"
        if _may_ask(x):
            answer = self._ask(x, conditions)
            if answer != "unknown":
                return answer
        self.cases = 0
        return self._by_cases(x, conditions)

    def _differs_somewhere(self, x: Polynomial, conditions: Conditions) -> bool:
        return any(self._differs(point, x, conditions) for point in points(leaves_of((x, *polynomials_of(conditions)))))

    def _differs(self, point: Mapping[Atom, Polynomial], x: Polynomial, conditions: Conditions) -> bool:
        algebra = Algebra(replace=point)
        if rebuilt(conditions, algebra) or algebra.signs(algebra.rebuild(x)) & ZERO:
            return False
        self.values = named(point)
        return True

    def _ask(self, x: Polynomial, conditions: Conditions) -> Finding:
        answer, values = ask(conditions, x, (), self.timeout_ms)
        if answer == "never":
            return "holds"
        leaves = leaves_of((x, *polynomials_of(conditions)))
        if answer == "sometimes" and self._differs(point_of(values, leaves), x, conditions):
            return "fails"
        self.slow += answer == "unknown"
        return "unknown"

    # --- cases

    def _by_cases(self, x: Polynomial, facts: Conditions) -> Finding:
        """One sign after the other is taken for each of its values."""
        self.cases += 1
        if self.cases > _MOST_CASES:
            return "unknown"
        switch = _innermost(x)
        if switch is None:
            return self._ask(x, facts)
        for narrowed, replace in _branches(switch):
            algebra = under(facts | narrowed, replace)
            inside = rebuilt(facts | narrowed, Algebra(replace=replace))
            if inside >= NEVER or rebuilt(facts, algebra) >= NEVER:
                continue
            left = canonical(algebra.rebuild(x))
            if not left or _zero_on(left, narrowed):
                continue
            finding = self._by_cases(left, inside)
            if finding != "holds":
                return finding
        return "holds"


def _may_ask(x: Polynomial) -> bool:
    """Whether z3 is asked before any cases: not where signs stand inside of functions, of which it knows little."""
    return not any(
        a.kind in ("exp", "function", "magnitude") and any(b.kind == "sign" for b in atoms_within(a.arguments))
        for a in atoms_within((x,))
    )


def _innermost(x: Polynomial) -> Atom | None:
    switches = [a for a in atoms_within((x,)) if a.kind in ("sign", "truth", "maximum")]
    for one in sorted(switches, key=lambda a: a.serial):
        if not any(a in switches for a in atoms_within(one.arguments)):
            return one
    return None


def _branches(switch: Atom) -> Iterator[tuple[Conditions, dict[Atom, Polynomial]]]:
    """The cases of a sign, a truth value or a maximum: what holds in it, and what replaces what."""
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
                yield frozenset({Condition("signs", (inside,), sign)}), _solved(inside) if sign == ZERO else {}


def _solved(x: Polynomial) -> dict[Atom, Polynomial]:
    """A leaf, by the others, for which a polynomial is zero; nothing where it is not linear in any."""
    for monomial, coefficient in x.terms.items():
        if len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].kind == "leaf" and monomial[0][0].signs == ANY:
            leaf = monomial[0][0]
            rest = Polynomial({m: c for m, c in x.terms.items() if m != monomial})
            if leaf not in atoms_within((rest,)):
                return {leaf: rest.scaled(Fraction(-1) / coefficient)}
    return {}


def _zero_on(x: Polynomial, narrowed: Conditions) -> bool:
    """Whether x is a multiple of what is zero in this case."""
    return any(c.allowed == ZERO and is_multiple(x, c.arguments[0]) for c in narrowed)


# --- conditions that follow from others


def follows(given: Conditions, wanted: Conditions, timeout_ms: int) -> tuple[Finding, Values]:
    """Whether some conditions imply others; with ``fails`` an example."""
    if wanted <= given:
        return "holds", {}
    left = rebuilt(wanted, under(given)) - rebuilt(given, under(given)) - given
    if not left:
        return "holds", {}
    missing = [c for c in wanted if c not in given]
    leaves = leaves_of(polynomials_of((*given, *missing)))
    for point in points(leaves):
        if _breaks(point, given, missing):
            return "fails", named(point)
    answer, values = ask(given, None, missing, timeout_ms)
    if answer == "never":
        return "holds", {}
    point = point_of(values, leaves)
    if answer == "sometimes" and _breaks(point, given, missing):
        return "fails", named(point)
    return "unknown", {}


def _breaks(point: Mapping[Atom, Polynomial], given: Conditions, missing: Sequence[Condition]) -> bool:
    algebra = Algebra(replace=point)
    return not rebuilt(given, algebra) and any(rebuilt((c,), algebra) >= NEVER for c in missing)
