"""Symbolic scalars: their normal form says what numbers say."""

from __future__ import annotations

from fractions import Fraction
from math import isfinite, isnan

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from eqfuse.ir.operators import NUMBERS
from eqfuse.ir.operators.arithmetic import Arithmetic, Array, Unsupported
from eqfuse.tools.checking.proving.algebra import Algebra
from eqfuse.tools.checking.proving.arithmetics import Reals
from eqfuse.tools.checking.proving.definedness import rebuild_conditions
from eqfuse.tools.checking.proving.fractions import canonical
from eqfuse.tools.checking.proving.polynomial import NEGATIVE, POSITIVE, Polynomial, number, of, power, product
from eqfuse.tools.checking.proving.scalars import Real, exact, leaf
from eqfuse.tools.checking.proving.signs import approximate

REALS = Reals()
LEAVES = {name: leaf(name) for name in "abc"}
ONE_OPERAND = (
    *("negative", "absolute", "exp", "log", "sqrt", "reciprocal", "erf", "tanh", "sigmoid", "softplus"),
    *("sin", "cos", "tan", "atan", "sinh", "cosh", "floor", "ceil", "sign"),
)
TWO_OPERANDS = ("add", "subtract", "multiply", "divide", "minimum", "maximum", "power")
COMPARISONS = ["less", "less_equal", "equal"]

Expression = str | float | tuple[object, ...]

NUMBER = st.sampled_from([0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0])
EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    st.sampled_from(tuple(LEAVES)) | NUMBER,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(ONE_OPERAND), inner),
        st.tuples(st.sampled_from(TWO_OPERANDS), inner, inner),
        st.tuples(st.just("where"), st.tuples(st.sampled_from(COMPARISONS), inner, inner), inner, inner),
    ),
    max_leaves=6,
)
POINTS = st.fixed_dictionaries({name: st.sampled_from(["0", "1", "-1", "2", "-1/2", "3/4"]) for name in LEAVES})


def compute(expression: Expression, elements: dict[str, Array], arithmetic: Arithmetic) -> Array:
    if isinstance(expression, str):
        return elements[expression]
    if isinstance(expression, float):
        return arithmetic.constant(expression, np.zeros(()))
    name, *operands = expression
    return arithmetic.apply(str(name), *(compute(o, elements, arithmetic) for o in operands))


def symbolic(expression: Expression) -> Real:
    elements = {name: np.asarray(x, dtype=object) for name, x in LEAVES.items()}
    result = compute(expression, elements, REALS).item()
    assert isinstance(result, Real)
    return result


def at(expression: Expression, point: dict[str, str]) -> tuple[float | None, bool]:
    """The value of the symbolic expression at a point, if no leaf remains in it, and whether it is defined."""
    x = symbolic(expression)
    single = {name: one.value.single for name, one in LEAVES.items()}
    algebra = Algebra(replace={a: number(Fraction(point[n])) for n, a in single.items() if a is not None})
    return approximate(algebra.rebuild(x.value)), not rebuild_conditions(x.defined, algebra)


def in_numbers(expression: Expression, point: dict[str, str]) -> float:
    elements = {name: np.asarray(float(Fraction(value))) for name, value in point.items()}
    with np.errstate(all="ignore"):
        return float(compute(expression, elements, NUMBERS))


@given(EXPRESSIONS, POINTS)
def test_normal_form_has_the_value_of_the_expression(expression: Expression, point: dict[str, str]) -> None:
    try:
        value, defined = at(expression, point)
    except Unsupported:  # too large
        assume(False)
    expected = in_numbers(expression, point)
    assume(value is not None and defined and isfinite(expected) and abs(expected) < 1e6)
    # floor and the comparisons jump: a rounding error may put numbers on the other side
    assume(not any(name in str(expression) for name in ("floor", "ceil", *COMPARISONS)) or float(expected).is_integer())
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(EXPRESSIONS, POINTS)
def test_what_is_defined_is_a_number(expression: Expression, point: dict[str, str]) -> None:
    try:
        _, defined = at(expression, point)
    except Unsupported:
        assume(False)
    assume(not any(name in str(expression) for name in ("exp", "sinh", "cosh", "power")))  # these may overflow
    assert not (defined and isnan(in_numbers(expression, point)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, Fraction(1, 10)),
        (1 / 3, Fraction(1, 3)),
        (0.3 - 0.2, Fraction(1, 10)),
        (0.044715, Fraction(44715, 10**6)),
        (1e-5 / 9, Fraction(1, 900000)),
        (0.7978845608028654, Fraction("0.7978845608028654")),
        (-2.0, Fraction(-2)),
    ],
)
def test_a_float_is_the_simple_number_that_it_rounds(value: float, expected: Fraction) -> None:
    assert exact(value).constant == expected


def test_a_float_may_be_a_square_root() -> None:
    assert product(exact(0.5**0.5), exact(0.5**0.5)).constant == Fraction(1, 2)


# --- polynomials

_A, _B = (of(a) for x in "ab" if (a := LEAVES[x].value.single) is not None)
MONOMIALS = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-3, 3).filter(bool))


def polynomial(terms: list[tuple[int, int, int]]) -> Polynomial:
    result = number(0)
    for i, j, coefficient in terms:
        result = result + (power(_A, i) * power(_B, j)).times(coefficient)
    return result


POLYNOMIALS = st.lists(MONOMIALS, min_size=1, max_size=4).map(polynomial)


@given(POLYNOMIALS, POLYNOMIALS, POLYNOMIALS)
def test_multiplication_distributes(x: Polynomial, y: Polynomial, z: Polynomial) -> None:
    assert x * (y + z) == x * y + x * z


@given(POLYNOMIALS, POLYNOMIALS)
def test_quotients_cancel(x: Polynomial, y: Polynomial) -> None:
    assume(y)
    algebra = Algebra()
    assert canonical(product(product(x, y), algebra.reciprocal(y))) == x


@example(polynomial([(1, 0, 1), (1, 1, 2), (1, 2, 1)]))  # a (1 + b)^2
@given(POLYNOMIALS)
def test_square_root_of_square_is_absolute_value(x: Polynomial) -> None:
    algebra = Algebra()
    root = algebra.power(x, Fraction(1, 2))
    assert product(root, root) == algebra.absolute(x)


@given(POLYNOMIALS, POLYNOMIALS)
def test_exponential_of_a_sum_is_a_product(x: Polynomial, y: Polynomial) -> None:
    algebra = Algebra()
    assert algebra.exp(x + y) == product(algebra.exp(x), algebra.exp(y))


@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(-3, 3))
def test_sum_of_squares_is_above_zero(i: int, j: int, k: int) -> None:
    x = _A.times(i) + _B.times(j) + number(k)
    assert Algebra().signs(x * x + number(1)) == POSITIVE


def test_square_of_difference_of_squares_is_not_negative() -> None:
    x = _A * _A - _B * _B
    assert not Algebra().signs(x * x) & NEGATIVE
