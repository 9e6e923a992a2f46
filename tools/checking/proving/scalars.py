"""Symbolic real numbers: a value in normal form, and the conditions under which it is defined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, reduce
from math import copysign, isqrt, sqrt

from .algebra import Algebra
from .definedness import ALWAYS, Conditions, if_true, nonnegative, nonzero, power_domain
from .fractions import canonical
from .order import HALF
from .polynomial import ANY, NOTHING, ONE, POSITIVE, ZERO, Polynomial, atom, number, of, power, product, total

_PLAIN = Algebra()
_LARGEST_FRACTION = 2**36
"""The largest product of numerator and denominator of a simple fraction: one random float in ten thousand is as near to
such a fraction as rounding allows."""
_LARGEST_SQUARE = 100
"""The largest denominator of a fraction whose square root is recognised."""
_SHORT_DIGITS = 9
"""Significant digits of a short decimal."""
_ROUNDING = Fraction(1, 2**50)
"""Relative difference up to which two numbers count as the same: four roundings of a float64."""


@dataclass(frozen=True, slots=True)
class Real:
    """A real number: its value, and what must hold for it to have one. `truth` marks 0 and 1 that mean false and true.

    `origin` remembers a monotone function that the number comes from, as its name and arguments, so that the largest
    of several such numbers is the function of the largest argument.
    """

    value: Polynomial
    defined: Conditions = ALWAYS
    truth: bool = False
    origin: tuple[str, tuple[Real, ...]] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return repr(self.value)


def exact(value: float) -> Polynomial:
    """The simple number that a float is up to rounding: a fraction, a short decimal, or the square root of a fraction;
    else its shortest decimal. So 0.1 is 1/10, and 0.3 - 0.2, computed by a rule, is 1/10, too."""
    if not value:
        return NOTHING
    fraction = Fraction(value)
    short = Fraction(f"{value:.{_SHORT_DIGITS}g}")
    denominator = isqrt(int(_LARGEST_FRACTION / abs(fraction))) + 1
    for simple in (fraction.limit_denominator(denominator), short):
        if _is_close(fraction, simple):
            return number(simple)
    square = (fraction * fraction).limit_denominator(_LARGEST_SQUARE)
    if square and _is_close(fraction, Fraction(copysign(sqrt(square), value))):
        return _PLAIN.power(number(square), Fraction(1, 2)).times(1 if value > 0 else -1)
    return number(Fraction(repr(float(value))))


def _is_close(one: Fraction, other: Fraction) -> bool:
    return abs(one - other) <= _ROUNDING * abs(one)


def leaf(name: str, dtype: str = "float32") -> Real:
    """A variable; of dtype bool a truth value, of an unsigned one not negative."""
    if dtype == "bool":
        return Real(of(atom("truth", name, (), ZERO | POSITIVE)), truth=True)
    return Real(of(atom("leaf", name, (), ZERO | POSITIVE if dtype.startswith("uint") else ANY)))


# --- functions of one number


def _total(function: Callable[[Polynomial], Polynomial], name: str = "") -> Callable[[Real], Real]:
    """A function that is defined everywhere; a name marks an increasing one."""

    def apply(x: Real) -> Real:
        return Real(function(x.value), x.defined, origin=(name, (x,)) if name else None)

    return apply


def _atomic(name: str, increasing: bool = False) -> Callable[[Real], Real]:
    """A function that is defined everywhere and stays an atom."""
    return _total(lambda x: _PLAIN.function(name, x), name if increasing else "")


def _log(x: Real) -> Real:
    defined = x.defined | nonnegative(x.value, _PLAIN, strictly=True)
    return Real(_PLAIN.log(x.value), defined, origin=("log", (x,)))


def _sqrt(x: Real) -> Real:
    value = _PLAIN.power(x.value, Fraction(1, 2))
    return Real(value, x.defined | nonnegative(x.value, _PLAIN), origin=("sqrt", (x,)))


def _reciprocal(x: Real) -> Real:
    return Real(_PLAIN.reciprocal(x.value), x.defined | nonzero(x.value, _PLAIN))


def _tanh(x: Polynomial) -> Polynomial:
    twice = _PLAIN.exp(x.times(2))
    return product(twice - ONE, _PLAIN.reciprocal(twice + ONE))


def _tan(x: Real) -> Real:
    cosine = _PLAIN.function("cos", x.value)
    value = product(_PLAIN.function("sin", x.value), _PLAIN.reciprocal(cosine))
    return Real(value, x.defined | nonzero(cosine, _PLAIN))


def _partial(name: str, margin: Callable[[Polynomial], Polynomial], strictly: bool = False) -> Callable[[Real], Real]:
    """A function that is defined if a margin is not negative; `strictly`: if it is positive."""

    def apply(x: Real) -> Real:
        value = _PLAIN.function(name, x.value)
        return Real(value, x.defined | nonnegative(margin(x.value), _PLAIN, strictly))

    return apply


# --- functions of two and three


def _binary(function: Callable[[Polynomial, Polynomial], Polynomial], truth: bool = False) -> Callable[..., Real]:
    """A function of two numbers that is defined if both are; `truth`: it gives a truth value."""
    return lambda x, y: Real(function(x.value, y.value), x.defined | y.defined, truth)


_multiply = _binary(product)


def _divide(x: Real, y: Real) -> Real:
    return _multiply(x, _reciprocal(y))


def _power(x: Real, y: Real) -> Real:
    defined = x.defined | y.defined | power_domain(x.value, y.value, _PLAIN)
    return Real(_PLAIN.general_power(x.value, y.value), defined)


def _floor_quotient(x: Real, y: Real, name: str) -> Real:
    quotient = _divide(x, y)
    whole = _PLAIN.function(name, quotient.value)
    return Real(x.value - product(y.value, whole), quotient.defined)


def _equal(x: Real, y: Real) -> Real:
    difference = x.value - y.value
    differ = product(difference, difference) if x.truth and y.truth else _PLAIN.nonzero(difference)
    return Real(ONE - differ, x.defined | y.defined, truth=True)


def _where(condition: Real, then: Real, otherwise: Real) -> Real:
    truth = then.truth and otherwise.truth
    constant = condition.value.constant
    if constant is not None:
        chosen = then if constant else otherwise
        return replace(chosen, defined=chosen.defined | condition.defined)
    if then.defined == otherwise.defined:
        value = _PLAIN.choice(condition.value, then.value, otherwise.value)
        return Real(value, condition.defined | then.defined, truth)
    value = _PLAIN.guarded_choice(condition.value, then.value, otherwise.value)
    both = then.defined & otherwise.defined
    one = if_true(condition.value, then.defined - both)
    other = if_true(canonical(ONE - condition.value), otherwise.defined - both)
    return Real(value, condition.defined | both | one | other, truth)


# --- functions of many


def _all_defined(numbers: Sequence[Real]) -> Conditions:
    return ALWAYS.union(*(x.defined for x in numbers))


def add_all(numbers: Sequence[Real]) -> Real:
    """The sum."""
    return Real(total(x.value for x in numbers), _all_defined(numbers))


def multiply_all(numbers: Sequence[Real]) -> Real:
    """The product."""
    return Real(reduce(product, (x.value for x in numbers), ONE), _all_defined(numbers))


def maximum_all(numbers: Sequence[Real]) -> Real:
    """The largest number. Maxima among the numbers are flattened; the maximum of an increasing function is the function
    of the maximum."""
    defined = _all_defined(numbers)
    image = _image(numbers, maximum_all)
    if image is not None:
        return replace(image, defined=image.defined | defined)
    flat: dict[Polynomial, Real] = {}
    for x in numbers:
        for part in x.origin[1] if x.origin and x.origin[0] == "maximum" else (x,):
            flat.setdefault(part.value, part)
    parts = tuple(flat.values())
    if len(parts) == 1:
        return replace(parts[0], defined=defined)
    return Real(_PLAIN.maximum(list(flat)), defined, origin=("maximum", parts))


def minimum_all(numbers: Sequence[Real]) -> Real:
    """The smallest number."""
    image = _image(numbers, minimum_all)
    if image is not None:
        return replace(image, defined=image.defined | _all_defined(numbers))
    return _negate(maximum_all([_negate(x) for x in numbers]))


def _negate(x: Real) -> Real:
    """The opposite: that of a minimum is the maximum of the opposites, and the other way round."""
    origin = None
    if x.origin and x.origin[0] in ("maximum", "minimum"):
        name = "minimum" if x.origin[0] == "maximum" else "maximum"
        origin = (name, tuple(Real(-part.value, part.defined) for part in x.origin[1]))
    return Real(-x.value, x.defined, origin=origin)


def _image(numbers: Sequence[Real], many: Callable[[Sequence[Real]], Real]) -> Real | None:
    """An increasing function of the largest (or smallest) argument, if all numbers come from that function."""
    origins = [x.origin for x in numbers]
    names = {o[0] if o else "" for o in origins}
    if len(names) != 1 or len(numbers) < 2:
        return None
    name = names.pop()
    function = functions().get(name)
    if name in ("", "maximum", "minimum") or function is None:
        return None
    return function(many([o[1][0] for o in origins if o]))


@cache
def functions() -> dict[str, Callable[..., Real]]:
    """The functions of `Arithmetic.apply` by name, and those that casts need."""
    return {
        "negative": _negate,
        "absolute": _total(_PLAIN.absolute),
        "exp": _total(_PLAIN.exp, "exp"),
        "log": _log,
        "sqrt": _sqrt,
        "reciprocal": _reciprocal,
        "erf": _atomic("erf", increasing=True),
        "tanh": _total(_tanh, "tanh"),
        "sigmoid": _total(lambda x: _PLAIN.reciprocal(ONE + _PLAIN.exp(-x)), "sigmoid"),
        "softplus": _total(lambda x: _PLAIN.log(ONE + _PLAIN.exp(x)), "softplus"),
        "sin": _atomic("sin"),
        "cos": _atomic("cos"),
        "tan": _tan,
        "asin": _partial("asin", lambda x: ONE - product(x, x)),
        "acos": _partial("acos", lambda x: ONE - product(x, x)),
        "atan": _atomic("atan", increasing=True),
        "sinh": _total(lambda x: (_PLAIN.exp(x) - _PLAIN.exp(-x)) * HALF, "sinh"),
        "cosh": _total(lambda x: (_PLAIN.exp(x) + _PLAIN.exp(-x)) * HALF),
        "asinh": _atomic("asinh", increasing=True),
        "acosh": _partial("acosh", lambda x: x - ONE),
        "atanh": _partial("atanh", lambda x: ONE - product(x, x), strictly=True),
        "floor": _atomic("floor", increasing=True),
        "ceil": _total(lambda x: -_PLAIN.function("floor", -x), "ceil"),
        "round": _atomic("round", increasing=True),
        "trunc": _atomic("trunc", increasing=True),
        "sign": _total(_PLAIN.sign, "sign"),
        "isnan": lambda x: Real(NOTHING, x.defined, truth=True),
        "logical_not": lambda x: Real(ONE - x.value, x.defined, truth=True),
        "nonzero": lambda x: x if x.truth else Real(_PLAIN.nonzero(x.value), x.defined, truth=True),
        "number": lambda x: replace(x, truth=False),
        "add": _binary(lambda x, y: x + y),
        "subtract": _binary(lambda x, y: x - y),
        "multiply": _multiply,
        "divide": _divide,
        "power": _power,
        "minimum": lambda x, y: minimum_all((x, y)),
        "maximum": lambda x, y: maximum_all((x, y)),
        "equal": _equal,
        "less": _binary(lambda x, y: _PLAIN.positive(y - x), truth=True),
        "less_equal": _binary(lambda x, y: ONE - _PLAIN.positive(x - y), truth=True),
        "logical_and": _binary(product, truth=True),
        "logical_or": _binary(lambda x, y: x + y - product(x, y), truth=True),
        "logical_xor": _binary(lambda x, y: power(x - y, 2), truth=True),
        "remainder": lambda x, y: _floor_quotient(x, y, "floor"),
        "fmod": lambda x, y: _floor_quotient(x, y, "trunc"),
        "where": _where,
    }
