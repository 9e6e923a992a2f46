"""What conditions say, and numbers that leaves may have."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from .symbolic_algebra import Algebra
from .symbolic_conditions import Condition
from .symbolic_fractions import canonical, cleared, primitive
from .symbolic_polynomial import ANY, NEGATIVE, POSITIVE, ZERO, Atom, Number, Polynomial, number
from .symbolic_signs import of_atom, of_number, of_power, times

Values = Mapping[str, Fraction | bool]
_POINTS = 24
_NUMBERS = tuple(Fraction(n) for n in ("1", "-1", "0", "2", "-2", "1/2", "-1/2", "3"))
_TRUTHS = (Fraction(1), Fraction(0))


# --- atoms, wherever they stand


def atoms_within(polynomials: Iterable[Polynomial]) -> set[Atom]:
    """The atoms of polynomials and of their arguments."""
    found: set[Atom] = set()
    waiting = [a for p in polynomials for a in p.atoms()]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += [a for p in one.arguments for a in p.atoms()]
    return found


def polynomials_of(conditions: Iterable[Condition]) -> Iterator[Polynomial]:
    """What conditions are about."""
    for condition in conditions:
        yield from condition.arguments
        if condition.inner is not None:
            yield from polynomials_of((condition.inner,))


# --- conditions as facts


def under(conditions: Iterable[Condition], replace: Mapping[Atom, Polynomial] | None = None) -> Algebra:
    """The algebra that takes conditions for granted."""
    plain = [(c.arguments[0], c.allowed) for c in conditions if c.kind == "signs"]
    facts: dict[Atom | Polynomial, int] = {}
    for x, allowed in plain:
        single = x.single
        if single is not None and single.kind == "leaf":
            facts[single] = facts.get(single, ANY) & allowed
    plain = [(x, allowed) for x, allowed in plain if x.single not in facts]
    for _ in range(2):  # what one says may help to read another
        algebra = Algebra(facts, replace)
        for x, allowed in plain:
            if made := canonical(algebra.rebuild(x)):
                _add_fact(facts, algebra, made, allowed)
    return Algebra(facts, replace)


def _add_fact(facts: dict[Atom | Polynomial, int], algebra: Algebra, x: Polynomial, allowed: int) -> None:
    """What the sign of a product says of its only factor of unknown sign."""
    known = POSITIVE
    unknown: list[tuple[Atom | Polynomial, Number]] = []
    for factor, exponent in _factors(x):
        own = of_atom(factor, facts) if isinstance(factor, Atom) else algebra.signs(factor)
        signs = of_power(own, exponent)
        if signs in (POSITIVE, NEGATIVE):
            known = times(known, signs)
        else:
            unknown.append((factor, exponent))
    if len(unknown) != 1:
        return
    factor, exponent = unknown[0]
    if exponent % 2 == 1:
        facts[factor] = facts.get(factor, ANY) & times(allowed, known)
    elif not allowed & ZERO:
        facts[factor] = facts.get(factor, ANY) & ~ZERO


def _factors(x: Polynomial) -> Iterator[tuple[Atom | Polynomial, Number]]:
    """Atoms and sums, and with which exponents they make a product."""
    numerator, denominators = cleared(x)
    rest, common, coefficient = primitive(numerator)
    yield number(coefficient), 1
    yield from common
    yield from ((f.arguments[0], -e) for f, e in denominators.items() if e)
    if rest.constant is None:
        yield rest, 1


# --- numbers for the leaves


def points(leaves: Sequence[Atom]) -> Iterator[dict[Atom, Polynomial]]:
    """Numbers to try, of the signs that the leaves have."""
    choose = random.Random(0)
    signs: dict[str, int] = {}
    for leaf in leaves:  # one variable under several facts is several atoms of one name
        signs[leaf.label] = signs.get(leaf.label, ANY) & leaf.signs
    truths = {leaf.label for leaf in leaves if leaf.kind == "truth"}
    for attempt in range(_POINTS):
        chosen = {}
        for name, allowed in signs.items():
            numbers = [n for n in (_TRUTHS if name in truths else _NUMBERS) if of_number(n) & allowed]
            if not numbers:
                return
            chosen[name] = numbers[attempt] if attempt < min(4, len(numbers)) else choose.choice(numbers)
        yield {leaf: number(chosen[leaf.label]) for leaf in leaves}


def point_of(values: Values, leaves: Sequence[Atom]) -> dict[Atom, Polynomial]:
    """The point of numbers by name; leaves without one are zero."""
    return {leaf: number(Fraction(values.get(leaf.label, 0))) for leaf in leaves}


def named(point: Mapping[Atom, Polynomial]) -> dict[str, Fraction | bool]:
    """A point by the names of its leaves."""
    values: dict[str, Fraction | bool] = {}
    for leaf, value in point.items():
        known = Fraction(value.constant or 0)
        values[leaf.label] = bool(known) if leaf.kind == "truth" else known
    return values


def leaves_of(polynomials: Iterable[Polynomial]) -> list[Atom]:
    """The variables, in the order of their making."""
    found = (a for a in atoms_within(polynomials) if a.kind in ("leaf", "truth"))
    return sorted(found, key=lambda a: a.serial)
