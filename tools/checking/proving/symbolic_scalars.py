"""Symbolic real numbers: a value in normal form, and where it is defined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from math import copysign, isqrt, sqrt

from .symbolic_algebra import Algebra
from .symbolic_conditions import ALWAYS, Conditions, if_true, nonnegative, nonzero, power_domain
from .symbolic_fractions import canonical
from .symbolic_order import HALF
from .symbolic_polynomial import (
    ANY,
    NOTHING,
    ONE,
    POSITIVE,
    ZERO,
    Polynomial,
    atom,
    number,
    of,
    power,
    product,
    total,
)

_PLAIN = Algebra()
_LARGEST_FRACTION = 2**36
"""Of numerator times denominator: by chance one float in ten thousand is so near to such a fraction."""
_LARGEST_SQUARE = 100
_SHORT_DIGITS = 9
_ROUNDING = Fraction(1, 2**50)
"""How far apart, as a share, two numbers may be that stand for the same: four roundings of a float64."""


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
    """The simple number that a float is but for rounding: a fraction, a short decimal, or the square root of a
    fraction; else its shortest decimal. So 0.1 is 1/10, and so is what a rule computes as 0.3 - 0.2."""
    if not value:
        return NOTHING
    fraction = Fraction(value)
    short = Fraction(f"{value:.{_SHORT_DIGITS}g}")
    denominator = isqrt(int(_LARGEST_FRACTION / abs(fraction))) + 1
    for simple in (fraction.limit_denominator(denominator), short):
        if _rounded_alike(fraction, simple):
            return number(simple)
    square = (fraction * fraction).limit_denominator(_LARGEST_SQUARE)
    if square and _rounded_alike(fraction, Fraction(copysign(sqrt(square), value))):
        return _PLAIN.power(number(square), Fraction(1, 2)).scaled(1 if value > 0 else -1)
    return number(Fraction(repr(float(value))))


def _rounded_alike(one: Fraction, other: Fraction) -> bool:
    return abs(one - other) <= _ROUNDING * abs(one)


def leaf(name: str, dtype: str = "float32") -> Real:
    """A variable; of dtype bool a truth value, of an unsigned one not negative."""
    if dtype == "bool":
        return Real(of(atom("truth", name, (), ZERO | POSITIVE)), truth=True)
    return Real(of(atom("leaf", name, (), ZERO | POSITIVE if dtype.startswith("uint") else ANY)))


# --- functions of one number


def _by(function: Callable[[Polynomial], Polynomial], name: str = "") -> Callable[[Real], Real]:
    """A function that is defined everywhere; a name marks an increasing one."""

    def apply(x: Real) -> Real:
        return Real(function(x.value), x.defined, origin=(name, (x,)) if name else None)

    return apply


def _named(name: str, increasing: bool = False) -> Callable[[Real], Real]:
    return _by(lambda x: _PLAIN.function(name, x), name if increasing else "")


def _log(x: Real) -> Real:
    defined = x.defined | nonnegative(x.value, _PLAIN, strictly=True)
    return Real(_PLAIN.log(x.value), defined, origin=("log", (x,)))


def _sqrt(x: Real) -> Real:
    value = _PLAIN.power(x.value, Fraction(1, 2))
    return Real(value, x.defined | nonnegative(x.value, _PLAIN), origin=("sqrt", (x,)))


def _reciprocal(x: Real) -> Real:
    return Real(_PLAIN.reciprocal(x.value), x.defined | nonzero(x.value, _PLAIN))


def _sigmoid(x: Polynomial) -> Polynomial:
    return _PLAIN.reciprocal(ONE + _PLAIN.exp(-x))


def _tanh(x: Polynomial) -> Polynomial:
    twice = _PLAIN.exp(x.scaled(2))
    return product(twice - ONE, _PLAIN.reciprocal(twice + ONE))


def _softplus(x: Polynomial) -> Polynomial:
    return _PLAIN.log(ONE + _PLAIN.exp(x))


def _sinh(x: Polynomial) -> Polynomial:
    return (_PLAIN.exp(x) - _PLAIN.exp(-x)) * HALF


def _cosh(x: Polynomial) -> Polynomial:
    return (_PLAIN.exp(x) + _PLAIN.exp(-x)) * HALF


def _tan(x: Real) -> Real:
    cosine = _PLAIN.function("cos", x.value)
    value = product(_PLAIN.function("sin", x.value), _PLAIN.reciprocal(cosine))
    return Real(value, x.defined | nonzero(cosine, _PLAIN))


def _within(name: str, margin: Callable[[Polynomial], Polynomial], strictly: bool = False) -> Callable[[Real], Real]:
    """A function that is defined where a margin is not negative."""

    def apply(x: Real) -> Real:
        value = _PLAIN.function(name, x.value)
        return Real(value, x.defined | nonnegative(margin(x.value), _PLAIN, strictly))

    return apply


def _ceil(x: Polynomial) -> Polynomial:
    return -_PLAIN.function("floor", -x)


def _not(x: Real) -> Real:
    return Real(ONE - x.value, x.defined, truth=True)


# --- functions of two and three


def _add(x: Real, y: Real) -> Real:
    return Real(x.value + y.value, x.defined | y.defined)


def _subtract(x: Real, y: Real) -> Real:
    return Real(x.value - y.value, x.defined | y.defined)


def _multiply(x: Real, y: Real) -> Real:
    return Real(product(x.value, y.value), x.defined | y.defined)


def _divide(x: Real, y: Real) -> Real:
    return _multiply(x, _reciprocal(y))


def _power(x: Real, y: Real) -> Real:
    defined = x.defined | y.defined | power_domain(x.value, y.value, _PLAIN)
    return Real(_PLAIN.general_power(x.value, y.value), defined)


def _floor_quotient(x: Real, y: Real, name: str) -> Real:
    quotient = _divide(x, y)
    whole = _PLAIN.function(name, quotient.value)
    return Real(x.value - product(y.value, whole), quotient.defined)


def _less(x: Real, y: Real) -> Real:
    return Real(_PLAIN.positive(y.value - x.value), x.defined | y.defined, truth=True)


def _less_equal(x: Real, y: Real) -> Real:
    return Real(ONE - _PLAIN.positive(x.value - y.value), x.defined | y.defined, truth=True)


def _equal(x: Real, y: Real) -> Real:
    difference = x.value - y.value
    differ = product(difference, difference) if x.truth and y.truth else _PLAIN.nonzero(difference)
    return Real(ONE - differ, x.defined | y.defined, truth=True)


def _and(x: Real, y: Real) -> Real:
    return Real(product(x.value, y.value), x.defined | y.defined, truth=True)


def _or(x: Real, y: Real) -> Real:
    return Real(x.value + y.value - product(x.value, y.value), x.defined | y.defined, truth=True)


def _xor(x: Real, y: Real) -> Real:
    return Real(power(x.value - y.value, 2), x.defined | y.defined, truth=True)


def _where(condition: Real, then: Real, otherwise: Real) -> Real:
    truth = then.truth and otherwise.truth
    known = condition.value.constant
    if known is not None:
        chosen = then if known else otherwise
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


def _defined(numbers: Sequence[Real]) -> Conditions:
    return ALWAYS.union(*(x.defined for x in numbers))


def add_all(numbers: Sequence[Real]) -> Real:
    """The sum."""
    return Real(total(x.value for x in numbers), _defined(numbers))


def multiply_all(numbers: Sequence[Real]) -> Real:
    """The product."""
    value = ONE
    for x in numbers:
        value = product(value, x.value)
    return Real(value, _defined(numbers))


def maximum_all(numbers: Sequence[Real]) -> Real:
    """The largest: that of a maximum and something is the largest of all; an increasing function is taken last."""
    defined = _defined(numbers)
    lifted = _image(numbers, maximum_all)
    if lifted is not None:
        return replace(lifted, defined=lifted.defined | defined)
    flat: dict[Polynomial, Real] = {}
    for x in numbers:
        for part in x.origin[1] if x.origin and x.origin[0] == "maximum" else (x,):
            flat.setdefault(part.value, part)
    parts = tuple(flat.values())
    if len(parts) == 1:
        return replace(parts[0], defined=defined)
    return Real(_PLAIN.maximum(list(flat)), defined, origin=("maximum", parts))


def minimum_all(numbers: Sequence[Real]) -> Real:
    """The smallest."""
    lifted = _image(numbers, minimum_all)
    if lifted is not None:
        return replace(lifted, defined=lifted.defined | _defined(numbers))
    opposite = maximum_all([_negative(x) for x in numbers])
    return _negative(opposite)


def _negative(x: Real) -> Real:
    """The opposite of a minimum is the maximum of the opposites, and the other way round."""
    origin = None
    if x.origin and x.origin[0] in ("maximum", "minimum"):
        name = "minimum" if x.origin[0] == "maximum" else "maximum"
        origin = (name, tuple(Real(-part.value, part.defined) for part in x.origin[1]))
    return Real(-x.value, x.defined, origin=origin)


def _image(numbers: Sequence[Real], many: Callable[[Sequence[Real]], Real]) -> Real | None:
    """An increasing function of the largest argument, where all numbers come from that function."""
    origins = [x.origin for x in numbers]
    names = {o[0] if o else "" for o in origins}
    if len(names) != 1 or len(numbers) < 2:
        return None
    name = names.pop()
    function = functions().get(name)
    if name in ("", "maximum", "minimum") or function is None:
        return None
    result: Real = function(many([o[1][0] for o in origins if o]))
    return result


@cache
def functions() -> dict[str, Callable[..., Real]]:
    """The functions of `Arithmetic.apply` by name, and those that casts need."""
    return {
        "negative": _negative,
        "absolute": _by(_PLAIN.absolute),
        "exp": _by(_PLAIN.exp, "exp"),
        "log": _log,
        "sqrt": _sqrt,
        "reciprocal": _reciprocal,
        "erf": _named("erf", increasing=True),
        "tanh": _by(_tanh, "tanh"),
        "sigmoid": _by(_sigmoid, "sigmoid"),
        "softplus": _by(_softplus, "softplus"),
        "sin": _named("sin"),
        "cos": _named("cos"),
        "tan": _tan,
        "asin": _within("asin", lambda x: ONE - product(x, x)),
        "acos": _within("acos", lambda x: ONE - product(x, x)),
        "atan": _named("atan", increasing=True),
        "sinh": _by(_sinh, "sinh"),
        "cosh": _by(_cosh),
        "asinh": _named("asinh", increasing=True),
        "acosh": _within("acosh", lambda x: x - ONE),
        "atanh": _within("atanh", lambda x: ONE - product(x, x), strictly=True),
        "floor": _named("floor", increasing=True),
        "ceil": _by(_ceil, "ceil"),
        "round": _named("round", increasing=True),
        "trunc": _named("trunc", increasing=True),
        "sign": _by(_PLAIN.sign, "sign"),
        "isnan": lambda x: Real(NOTHING, x.defined, truth=True),
        "logical_not": _not,
        "nonzero": lambda x: x if x.truth else Real(_PLAIN.nonzero(x.value), x.defined, truth=True),
        "number": lambda x: replace(x, truth=False),
        "add": _add,
        "subtract": _subtract,
        "multiply": _multiply,
        "divide": _divide,
        "power": _power,
        "minimum": lambda x, y: minimum_all((x, y)),
        "maximum": lambda x, y: maximum_all((x, y)),
        "equal": _equal,
        "less": _less,
        "less_equal": _less_equal,
        "logical_and": _and,
        "logical_or": _or,
        "logical_xor": _xor,
        "remainder": lambda x, y: _floor_quotient(x, y, "floor"),
        "fmod": lambda x, y: _floor_quotient(x, y, "trunc"),
        "where": _where,
    }
