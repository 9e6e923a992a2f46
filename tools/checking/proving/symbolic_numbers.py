"""Roots and logarithms of fractions, by their prime factors."""

from __future__ import annotations

from fractions import Fraction

from .symbolic_polynomial import ONE, POSITIVE, Number, Polynomial, atom, number, of, product, total

_LARGEST_PRIME = 1000


def _primes(value: int) -> dict[int, int]:
    """The prime factors up to a limit; what is left counts as one."""
    found: dict[int, int] = {}
    prime = 2
    while prime <= _LARGEST_PRIME and prime * prime <= value:
        while value % prime == 0:
            found[prime] = found.get(prime, 0) + 1
            value //= prime
        prime += 1
    if value > 1:
        found[value] = found.get(value, 0) + 1
    return found


def _factors(value: Number) -> list[tuple[int, int]]:
    fraction = Fraction(value)
    below = [(p, -e) for p, e in _primes(fraction.denominator).items()]
    return [*_primes(fraction.numerator).items(), *below]


def number_power(value: Number, exponent: Number) -> Polynomial:
    """A number above zero to a power."""
    result = ONE
    for prime, own in _factors(value):
        result = product(result, of(atom("number", str(prime), (), POSITIVE), own * exponent))
    return result


def number_log(value: Number) -> Polynomial:
    """The logarithm of a number above zero."""
    return total(of(atom("function", "log", (number(p),))).scaled(e) for p, e in _factors(value))
