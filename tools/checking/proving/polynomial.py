"""Polynomials over atoms: the normal form of symbolic numbers.

An atom is a leaf element or an expression that arithmetic cannot take apart (``exp(x)``, ``sign(x - y)``). A monomial
is a product of atoms with exponents, which may be negative, and also fractions if the atom is not negative. Every
relation between the atoms of a monomial is applied when the monomial is made (``sign(x)**3 = sign(x)``), so that equal
sums of products are equal dictionaries. Quotients by a sum `p` are powers of an atom ``reciprocal`` that stands for
``1/p``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import reduce
from itertools import count
from math import floor
from typing import Final, Literal
from weakref import WeakValueDictionary

Number = int | Fraction
Kind = Literal["leaf", "truth", "number", "sign", "magnitude", "reciprocal", "exp", "function", "maximum", "choice"]

NEGATIVE: Final = 1
ZERO: Final = 2
POSITIVE: Final = 4
ANY: Final = 7
"""The set of signs that a number may have, as bits: here all three."""

MAX_TERMS: Final = 3000
"""Terms of a polynomial, at most, so that products stay fast."""
MAX_EXPONENT: Final = 64
"""The largest power of a sum, which has to be multiplied out."""
MAX_MONOMIAL_EXPONENT: Final = 2000
"""The largest power of a monomial, which stays one term."""
_RELATED: Final = frozenset({"truth", "number", "sign", "magnitude", "reciprocal"})
"""Kinds of atoms whose powers and products follow relations."""


class TooLarge(Exception):
    """A polynomial has more than `MAX_TERMS` terms, or an exponent is too large."""


class Atom:
    """One indeterminate. Two atoms are the same if and only if they are the same object; `serial` orders them.

    `arguments` and `label` depend on the kind: a leaf has its name; a function its name and arguments; ``sign``,
    ``magnitude`` (the absolute value, for fractional exponents) and ``reciprocal`` have the polynomial inside;
    ``exp`` the monomial; ``number`` a prime, for roots; ``maximum`` two or more polynomials; ``choice`` a truth
    value and the two results; ``truth`` is 0 or 1.
    """

    __slots__ = ("__weakref__", "arguments", "has_relations", "kind", "label", "serial", "signs")

    def __init__(self, kind: Kind, label: str, arguments: tuple[Polynomial, ...], signs: int, serial: int) -> None:
        self.kind: Kind = kind
        self.label = label
        self.arguments = arguments
        self.signs = signs
        self.serial = serial
        self.has_relations = kind in _RELATED

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.arguments))
        return (self.label or self.kind) + (f"({inside})" if inside else "")


Monomial = tuple[tuple[Atom, Number], ...]
"""Atoms in the order of their serial numbers, with exponents other than zero."""

_atoms: WeakValueDictionary[tuple[Kind, str, tuple[Polynomial, ...], int], Atom] = WeakValueDictionary()
_serial = count()


def atom(kind: Kind, label: str = "", arguments: tuple[Polynomial, ...] = (), signs: int = ANY) -> Atom:
    """The one atom of these properties."""
    key = (kind, label, arguments, signs)
    existing = _atoms.get(key)
    if existing is None:
        existing = _atoms[key] = Atom(kind, label, arguments, signs, next(_serial))
    return existing


class Polynomial:
    """A sum of monomials with coefficients other than zero. Immutable."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, Number]) -> None:
        self.terms = terms
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and (self is other or self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: Polynomial) -> Polynomial:
        return total((self, other))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return total((self, other.times(-1)))

    def __neg__(self) -> Polynomial:
        return self.times(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        return product(self, other)

    def __repr__(self) -> str:
        return " + ".join(_monomial_text(m, c) for m, c in self.terms.items()) or "0"

    def times(self, factor: Number) -> Polynomial:
        """A multiple."""
        return self if factor == 1 else Polynomial({m: c * factor for m, c in self.terms.items()} if factor else {})

    @property
    def constant(self) -> Number | None:
        """The number that this is, or None."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def monomial(self) -> tuple[Monomial, Number] | None:
        """The only term, or None."""
        return next(iter(self.terms.items())) if len(self.terms) == 1 else None

    @property
    def single(self) -> Atom | None:
        """The atom that this is, or None."""
        only = self.monomial
        return only[0][0][0] if only and only[1] == 1 and len(only[0]) == 1 and only[0][0][1] == 1 else None

    def atoms(self) -> set[Atom]:
        """The atoms of all monomials, without those inside of atoms."""
        return {a for monomial in self.terms for a, _ in monomial}


def _monomial_text(monomial: Monomial, coefficient: Number) -> str:
    factors = [str(coefficient)] if coefficient != 1 or not monomial else []
    return "*".join(factors + [f"{a!r}" if e == 1 else f"{a!r}^{e}" for a, e in monomial])


NOTHING: Final = Polynomial({})
ONE: Final = Polynomial({(): 1})


def number(value: Number) -> Polynomial:
    """A constant."""
    return Polynomial({(): value} if value else {})


def magnitude(value: Number) -> Number:
    """The absolute value; `abs` has no type for a number that may be an int or a Fraction."""
    return value if value >= 0 else -value


def of(factor: Atom, exponent: Number = 1) -> Polynomial:
    """A power of an atom."""
    monomial: Monomial = ((factor, exponent),)
    return _apply_relations(monomial) if factor.has_relations else Polynomial({monomial: 1})


def total(summands: Iterable[Polynomial]) -> Polynomial:
    """The sum."""
    terms: dict[Monomial, Number] = {}
    for summand in summands:
        for monomial, coefficient in summand.terms.items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
    if len(terms) > MAX_TERMS:
        raise TooLarge
    return Polynomial({m: c for m, c in terms.items() if c})


def product(left: Polynomial, right: Polynomial) -> Polynomial:
    """The product, every monomial in its normal form. Raises TooLarge."""
    if len(left.terms) * len(right.terms) > 20 * MAX_TERMS:
        raise TooLarge
    terms: dict[Monomial, Number] = {}
    for one, first in left.terms.items():
        for other, second in right.terms.items():
            monomial = multiply_monomials(one, other)
            if any(a.has_relations for a, _ in monomial):
                for normal, coefficient in _apply_relations(monomial).terms.items():
                    terms[normal] = terms.get(normal, 0) + first * second * coefficient
            else:
                terms[monomial] = terms.get(monomial, 0) + first * second
    if len(terms) > MAX_TERMS:
        raise TooLarge
    return Polynomial({m: c for m, c in terms.items() if c})


def power(base: Polynomial, exponent: int) -> Polynomial:
    """A whole power; of a sum only one that is not negative. Raises TooLarge."""
    only = base.monomial
    if abs(exponent) > (MAX_EXPONENT if only is None else MAX_MONOMIAL_EXPONENT):
        raise TooLarge
    if only is not None:
        monomial, coefficient = only
        coefficient = Fraction(coefficient) ** exponent if exponent < 0 else coefficient**exponent
        monomial = tuple((a, e * exponent) for a, e in monomial) if exponent else ()
        return product(Polynomial({monomial: coefficient}), ONE)
    if exponent < 0:
        raise ValueError("a sum has no power with a negative exponent")
    result = ONE
    for _ in range(exponent):
        result = product(result, base)
    return result


def multiply_monomials(one: Monomial, other: Monomial) -> Monomial:
    """The product of two monomials, before relations between atoms are applied."""
    if not one or not other:
        return one or other
    exponents = dict(one)
    for factor, exponent in other:
        exponents[factor] = exponents.get(factor, 0) + exponent
    return monomial_of(exponents)


def monomial_of(exponents: Mapping[Atom, Number]) -> Monomial:
    """The monomial with these exponents."""
    return tuple(sorted(((a, e) for a, e in exponents.items() if e), key=lambda pair: pair[0].serial))


# --- relations inside of a monomial


def _apply_relations(monomial: Monomial) -> Polynomial:
    """The normal form of a monomial; it is a sum if a power of a sum has to be multiplied out."""
    rest: list[tuple[Atom, Number]] = []
    powers: list[Polynomial] = []
    for factor, exponent in monomial:
        if factor.kind == "truth":
            rest.append((factor, 1))
        elif factor.kind == "sign":
            own = _sign_exponent(factor, exponent, monomial)
            rest += [(factor, own)] if own else []
        elif factor.kind == "reciprocal" and exponent < 0:
            powers.append(power(factor.arguments[0], int(-exponent)))
        elif factor.kind in ("magnitude", "number"):
            whole = floor(exponent)
            rest += [(factor, exponent - whole)] if exponent != whole else []
            powers += [_whole_power(factor, whole)] if whole else []
        else:
            rest.append((factor, exponent))
    return reduce(product, powers, Polynomial({tuple(rest): 1}))


def _sign_exponent(sign: Atom, exponent: Number, monomial: Monomial) -> int:
    """The exponent of a sign: 0, 1 or 2. Its square counts as 1 if the number itself is a factor, since for zero the
    whole product is zero."""
    if exponent % 2 and not sign.signs & NEGATIVE:
        exponent = 2
    if exponent % 2:
        return 1
    inside = sign.arguments[0]
    single = inside.single
    if exponent < 0 or not sign.signs & ZERO:
        return 0
    if any(a is single or (a.kind in ("magnitude", "reciprocal") and a.arguments[0] == inside) for a, _ in monomial):
        return 0
    return 2 if sign.signs & NEGATIVE else 1


def _whole_power(factor: Atom, exponent: int) -> Polynomial:
    """A whole power of ``|p|`` or of a prime."""
    if factor.kind == "number":
        return power(number(int(factor.label)), exponent)
    inside = factor.arguments[0]
    if exponent > 0 or inside.monomial is not None:
        result = power(inside, exponent)
    else:
        result = of(atom("reciprocal", "", (inside,)), -exponent)
    if not factor.signs & NEGATIVE:  # the signs of a magnitude are those of the polynomial inside
        return result
    return product(of(atom("sign", "", (inside,), factor.signs), abs(exponent)), result)
