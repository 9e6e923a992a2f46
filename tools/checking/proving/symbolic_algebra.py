"""Functions of polynomials over the real numbers, in normal form.

Everything here is total: a logarithm is that of the absolute value, a root too, and 1/0 is some number. Where the
functions are defined is kept beside the values, by `symbolic_conditions`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor, trunc

from .symbolic_fractions import canonical, cleared, content, primitive
from .symbolic_numbers import number_log, number_power
from .symbolic_order import EVEN, ODD, Order
from .symbolic_polynomial import (
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
from .symbolic_signs import of_atom


class Algebra(Order):
    """Powers, exponentials and other functions, and the same again under other facts."""

    # --- powers

    def reciprocal(self, x: Polynomial) -> Polynomial:
        """1/x."""
        numerator, denominators = cleared(canonical(x))
        if not numerator:
            return NOTHING
        result = self._inverse(numerator)
        for factor, exponent in denominators.items():
            result = product(result, power(factor.arguments[0], exponent))
        return result

    def _inverse(self, x: Polynomial) -> Polynomial:
        rest, common, coefficient = primitive(x)
        outside = power(Polynomial({common: coefficient}), -1)
        return outside if rest == ONE else product(outside, of(atom("reciprocal", "", (rest,))))

    def power(self, x: Polynomial, exponent: Number) -> Polynomial:
        """A power: of the absolute value where the exponent is no whole number."""
        if exponent % 1 == 0:
            return power(x, int(exponent)) if exponent >= 0 else power(self.reciprocal(x), int(-exponent))
        numerator, denominators = cleared(canonical(x))
        if not numerator:
            return NOTHING
        rest, common, coefficient = primitive(numerator)
        result = product(number_power(magnitude(coefficient), exponent), self._sum_power(rest, exponent))
        for factor, own in common:
            result = product(result, self._atom_power(factor, own * exponent))
        for factor, own in denominators.items():
            result = product(result, self._sum_power(factor.arguments[0], -own * exponent))
        return result

    def _atom_power(self, factor: Atom, exponent: Number) -> Polynomial:
        if factor.kind == "sign":
            return of(factor, 2)
        if factor.kind == "truth" or exponent % 2 == 0 or not of_atom(factor, self.facts) & NEGATIVE:
            return of(factor, exponent)
        return self._magnitude(of(factor), exponent)

    def _sum_power(self, x: Polynomial, exponent: Number) -> Polynomial:
        return ONE if x == ONE else self._magnitude(x, exponent)

    def _magnitude(self, x: Polynomial, exponent: Number) -> Polynomial:
        signs = self.signs(x)
        if x.single is not None or exponent % 1:
            return of(atom("magnitude", "", (x,), signs), exponent)
        whole = power(x, int(exponent)) if exponent >= 0 else of(atom("reciprocal", "", (x,)), -exponent)
        return product(whole, power(self.sign(x), int(magnitude(exponent)))) if signs & NEGATIVE else whole

    def general_power(self, x: Polynomial, exponent: Polynomial) -> Polynomial:
        """A power with any exponent: by the exponential where x is above zero."""
        known = exponent.constant
        if known is not None:
            return self.power(x, known)
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
            chosen = of(monomial[0][0])  # exp(c*b) for b of 0 or 1
            return ONE + product(chosen, self._exp_of((), coefficient) - ONE)
        return of(atom("exp", "exp", (Polynomial({monomial: 1}),), POSITIVE), coefficient)

    def log(self, x: Polynomial) -> Polynomial:
        """The logarithm of the absolute value: of a product, the sum of logarithms."""
        numerator, denominators = cleared(canonical(x))
        if not numerator:
            return NOTHING
        rest, common, coefficient = primitive(numerator)
        summands = [number_log(magnitude(coefficient)), self._log_of_sum(rest)]
        summands += [self._log_of_atom(factor).scaled(exponent) for factor, exponent in common]
        summands += [self._log_of_sum(f.arguments[0]).scaled(-e) for f, e in denominators.items()]
        return total(summands)

    def _log_of_atom(self, factor: Atom) -> Polynomial:
        if factor.kind == "exp":
            return factor.arguments[0]
        if factor.kind == "magnitude":
            return self._log_of_sum(factor.arguments[0])
        if factor.kind in ("sign", "truth"):
            return NOTHING  # they are -1 or 1 where the logarithm is defined
        return self._log_of_sum(of(factor))

    def _log_of_sum(self, x: Polynomial) -> Polynomial:
        return NOTHING if x == ONE else of(atom("function", "log", (x,)))

    # --- what stays as it is

    def function(self, name: str, *arguments: Polynomial) -> Polynomial:
        """A function of which only little is known: that it is odd or even, or whole-numbered."""
        arguments = tuple(canonical(a) for a in arguments)
        if name in ("floor", "round", "trunc"):
            return self._rounded(name, arguments[0])
        first = arguments[0]
        if not first and name in ODD:
            return NOTHING
        if (name in ODD or name in EVEN) and first and _leading_negative(first):
            return self.function(name, -first).scaled(-1 if name in ODD else 1)
        if not first and name == "cos":
            return ONE
        return of(atom("function", name, arguments))

    def _rounded(self, name: str, x: Polynomial) -> Polynomial:
        if (known := x.constant) is not None:
            return number(_WHOLE[name](known))
        if _is_whole(x):
            return x
        if name in ODD and _leading_negative(x):
            return -self._rounded(name, -x)
        return of(atom("function", name, (x,)))

    # --- the same again, under other facts

    def rebuild(self, x: Polynomial) -> Polynomial:
        """A polynomial made under no facts, computed again under those of this algebra."""
        summands = []
        for monomial, coefficient in x.terms.items():
            term = number(coefficient)
            for factor, exponent in monomial:
                term = product(term, self._power_of_rebuilt(factor, exponent))
            summands.append(term)
        return total(summands)

    def _power_of_rebuilt(self, factor: Atom, exponent: Number) -> Polynomial:
        if factor.kind == "magnitude":
            return self.power(self.rebuild(factor.arguments[0]), exponent)
        base = self._rebuild_atom(factor)
        if exponent == 1:
            return base
        single = base.single
        if single is not None and (single.kind == factor.kind or exponent % 1 == 0):
            return of(single, exponent)
        return self.power(base, exponent)

    def _rebuild_atom(self, factor: Atom) -> Polynomial:
        found = self.rebuilt.get(factor)
        if found is None:
            given = self.replace.get(factor)
            found = self.rebuilt[factor] = self._made_again(factor) if given is None else given
        return found

    def _made_again(self, factor: Atom) -> Polynomial:
        if factor.kind in ("leaf", "truth", "number"):
            return self._leaf(factor)
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

    def _leaf(self, factor: Atom) -> Polynomial:
        signs = of_atom(factor, self.facts)
        if signs == ZERO:
            return NOTHING
        return of(factor) if signs == factor.signs else of(atom(factor.kind, factor.label, (), signs))


_WHOLE: dict[str, Callable[[Number], int]] = {"floor": floor, "round": round, "trunc": trunc}


def _leading_negative(x: Polynomial) -> bool:
    return content(x)[1] < 0


def _is_whole(x: Polynomial) -> bool:
    return all(
        Fraction(c).denominator == 1
        and all(
            ((a.kind == "function" and a.label in ("floor", "round", "trunc")) or a.kind in ("truth", "sign")) and e > 0
            for a, e in m
        )
        for m, c in x.terms.items()
    )
