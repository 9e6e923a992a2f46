"""Functions of polynomials over the real numbers, in normal form.

Every function is total here: a logarithm or root is that of the absolute value, and 1/0 is some number. `definedness`
has the conditions under which the functions are defined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from math import floor, trunc

from .fractions import canonical, clear_denominators, content, split_content
from .order import EVEN, ODD, Order
from .polynomial import (
    NEGATIVE,
    NOTHING,
    ONE,
    POSITIVE,
    ZERO,
    Atom,
    Monomial,
    Number,
    Polynomial,
    atom,
    magnitude,
    number,
    of,
    power,
    product,
    total,
)
from .signs import signs_of_atom


class Algebra(Order):
    """Powers, exponentials and other functions, and the same again under other facts."""

    # --- powers

    def reciprocal(self, x: Polynomial) -> Polynomial:
        """1/x."""
        numerator, denominators = clear_denominators(canonical(x))
        if not numerator:
            return NOTHING
        rest, common, coefficient = split_content(numerator)
        result = power(Polynomial({common: coefficient}), -1)
        if rest != ONE:
            result = product(result, of(atom("reciprocal", "", (rest,))))
        for factor, exponent in denominators.items():
            result = product(result, power(factor.arguments[0], exponent))
        return result

    def power(self, x: Polynomial, exponent: Number) -> Polynomial:
        """A power; of the absolute value if the exponent is no whole number."""
        if exponent % 1 == 0:
            return power(x, int(exponent)) if exponent >= 0 else power(self.reciprocal(x), int(-exponent))
        numerator, denominators = clear_denominators(canonical(x))
        if not numerator:
            return NOTHING
        rest, common, coefficient = split_content(numerator)
        result = product(_number_power(magnitude(coefficient), exponent), self._magnitude_power(rest, exponent))
        for factor, own in common:
            if factor.kind == "sign":
                result = product(result, of(factor, 2))
            elif factor.kind == "truth" or own * exponent % 2 == 0 or not signs_of_atom(factor, self.facts) & NEGATIVE:
                result = product(result, of(factor, own * exponent))
            else:
                result = product(result, self._magnitude_power(of(factor), own * exponent))
        for factor, own in denominators.items():
            result = product(result, self._magnitude_power(factor.arguments[0], -own * exponent))
        return result

    def _magnitude_power(self, x: Polynomial, exponent: Number) -> Polynomial:
        """A power of the absolute value of a polynomial without content, or of an atom."""
        if x == ONE:
            return ONE
        signs = self.signs(x)
        if x.single is not None or exponent % 1:
            return of(atom("magnitude", "", (x,), signs), exponent)
        whole = power(x, int(exponent)) if exponent >= 0 else of(atom("reciprocal", "", (x,)), -exponent)
        return product(whole, power(self.sign(x), int(magnitude(exponent)))) if signs & NEGATIVE else whole

    def general_power(self, x: Polynomial, exponent: Polynomial) -> Polynomial:
        """A power with any exponent, by the exponential, which is right for x above zero."""
        constant = exponent.constant
        if constant is not None:
            return self.power(x, constant)
        if self.signs(canonical(x)) == POSITIVE:
            return self.exp(product(exponent, self.log(x)))
        return of(atom("function", "power", (canonical(x), canonical(exponent))))

    # --- exponentials and logarithms

    def exp(self, x: Polynomial) -> Polynomial:
        """The exponential: of a sum, the product of exponentials of its monomials."""
        result = ONE
        for monomial, coefficient in canonical(x).terms.items():
            result = product(result, self._exp_of(monomial, coefficient))
        return result

    def _exp_of(self, monomial: Monomial, coefficient: Number) -> Polynomial:
        if len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].label == "log":
            return self.power(self.absolute(monomial[0][0].arguments[0]), coefficient)
        if len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].kind == "truth":
            truth = of(monomial[0][0])  # exp(c*b) for b of 0 or 1
            return ONE + product(truth, self._exp_of((), coefficient) - ONE)
        return of(atom("exp", "exp", (Polynomial({monomial: 1}),), POSITIVE), coefficient)

    def log(self, x: Polynomial) -> Polynomial:
        """The logarithm of the absolute value: of a product, the sum of logarithms."""
        numerator, denominators = clear_denominators(canonical(x))
        if not numerator:
            return NOTHING
        rest, common, coefficient = split_content(numerator)
        summands = [_number_log(magnitude(coefficient)), _log_atom(rest)]
        summands += [_log_of_atom(factor).times(exponent) for factor, exponent in common]
        summands += [_log_atom(f.arguments[0]).times(-e) for f, e in denominators.items()]
        return total(summands)

    # --- functions that stay atoms

    def function(self, name: str, *arguments: Polynomial) -> Polynomial:
        """A function of which few properties are known: whether it is odd or even, or gives whole numbers."""
        arguments = tuple(canonical(a) for a in arguments)
        first = arguments[0]
        constant = first.constant
        if name in _ROUNDINGS:
            if constant is not None:
                return number(_ROUNDINGS[name](constant))
            if _is_whole(first):
                return first
        elif constant == 0:
            if name in ODD:
                return NOTHING
            if name == "cos":
                return ONE
        if first and (name in ODD or name in EVEN) and content(first)[1] < 0:
            return self.function(name, -first).times(-1 if name in ODD else 1)
        return of(atom("function", name, arguments))

    # --- the same again, under other facts

    def rebuild(self, x: Polynomial) -> Polynomial:
        """Compute a polynomial that was made without facts again, under the facts of this algebra."""
        summands = []
        for monomial, coefficient in x.terms.items():
            term = number(coefficient)
            for factor, exponent in monomial:
                term = product(term, self._rebuild_power(factor, exponent))
            summands.append(term)
        return total(summands)

    def _rebuild_power(self, factor: Atom, exponent: Number) -> Polynomial:
        if factor.kind == "magnitude":
            return self.power(self.rebuild(factor.arguments[0]), exponent)
        if factor not in self.atoms:
            self.atoms[factor] = self.replace[factor] if factor in self.replace else self._rebuild_atom(factor)
        base = self.atoms[factor]
        if exponent == 1:
            return base
        single = base.single
        if single is not None and (single.kind == factor.kind or exponent % 1 == 0):
            return of(single, exponent)
        return self.power(base, exponent)

    def _rebuild_atom(self, factor: Atom) -> Polynomial:
        if factor.kind in ("leaf", "truth", "number"):
            signs = signs_of_atom(factor, self.facts)
            if signs == ZERO:
                return NOTHING
            return of(factor) if signs == factor.signs else of(atom(factor.kind, factor.label, (), signs))
        arguments = [self.rebuild(a) for a in factor.arguments]
        makers: dict[str, Callable[[], Polynomial]] = {
            "sign": lambda: self.sign(arguments[0]),
            "magnitude": lambda: self.absolute(arguments[0]),
            "reciprocal": lambda: self.reciprocal(arguments[0]),
            "exp": lambda: self.exp(arguments[0]),
            "maximum": lambda: self.maximum(arguments),
            "choice": lambda: self.guarded_choice(*arguments),
            "log": lambda: self.log(arguments[0]),
            "power": lambda: self.general_power(*arguments),
        }
        maker = makers.get(factor.label if factor.kind == "function" else factor.kind)
        return maker() if maker else self.function(factor.label, *arguments)


_ROUNDINGS: dict[str, Callable[[Number], int]] = {"floor": floor, "round": round, "trunc": trunc}


def _is_whole(x: Polynomial) -> bool:
    """Whether a polynomial is a whole number by its form."""
    return all(
        Fraction(coefficient).denominator == 1
        and all(
            e > 0 and (a.kind in ("truth", "sign") or (a.kind == "function" and a.label in _ROUNDINGS))
            for a, e in monomial
        )
        for monomial, coefficient in x.terms.items()
    )


def _log_of_atom(factor: Atom) -> Polynomial:
    if factor.kind == "exp":
        return factor.arguments[0]
    if factor.kind in ("sign", "truth"):
        return NOTHING  # signs and truths are -1 or 1 if the logarithm is defined
    return _log_atom(factor.arguments[0] if factor.kind == "magnitude" else of(factor))


def _log_atom(x: Polynomial) -> Polynomial:
    return NOTHING if x == ONE else of(atom("function", "log", (x,)))


# --- fractions, by their prime factors

_LARGEST_PRIME = 1000
"""Numbers are divided by primes up to this one; the rest counts as one factor, so that no large number takes long."""


def _prime_factors(value: int) -> Iterator[int]:
    prime = 2
    while prime <= _LARGEST_PRIME and prime * prime <= value:
        while value % prime == 0:
            yield prime
            value //= prime
        prime += 1
    if value > 1:
        yield value


def _prime_exponents(value: Number) -> list[tuple[int, int]]:
    above, below = Counter(_prime_factors(value.numerator)), Counter(_prime_factors(value.denominator))
    return [*above.items(), *((prime, -exponent) for prime, exponent in below.items())]


def _number_power(value: Number, exponent: Number) -> Polynomial:
    """A number above zero to a power."""
    powers = (of(atom("number", str(prime), (), POSITIVE), own * exponent) for prime, own in _prime_exponents(value))
    return reduce(product, powers, ONE)


def _number_log(value: Number) -> Polynomial:
    """The logarithm of a number above zero."""
    return total(of(atom("function", "log", (number(p),))).times(e) for p, e in _prime_exponents(value))
