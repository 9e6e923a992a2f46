"""Which conditions are predicted for an equation."""

from __future__ import annotations

import pytest

from eqfuse.tools.discovery.candidates import Guards, Predictor, apply_guards, strengthen
from eqfuse.tools.discovery.language import parse_term


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor("float32", seed=1)


@pytest.mark.parametrize(
    ("left", "right", "guards"),
    [
        ("(Mul a b)", "(Mul b a)", Guards()),
        ("(Sqrt (Mul a a))", "a", Guards(floating=False, nonneg=frozenset("a"))),
        ("(Mul (Abs a) (Abs b))", "(Abs (Mul a b))", Guards(floating=True)),
        ("(Div (Mul a b) b)", "a", Guards(floating=True, same_shape=True, nonzero=frozenset("b"))),
        ("(ReduceSum (ReduceSum a axes k) axes k)", "(ReduceSum a axes k)", Guards(keepdims=True)),
        (
            "(ReduceSum (Mul (ReduceSum a axes k) b) axes k)",
            "(Mul (ReduceSum a axes k) (ReduceSum b axes k))",
            Guards(keepdims=True, same_shape=True),
        ),
        ("(Sub a (Sub a b))", "b", Guards(same_shape=True)),
    ],
)
def test_the_weakest_conditions(predictor: Predictor, left: str, right: str, guards: Guards) -> None:
    assert predictor.guards(parse_term(left), parse_term(right)) == guards


@pytest.mark.parametrize(("left", "right"), [("(Add a b)", "(Mul a b)"), ("(Exp a)", "(Exp (Neg a))")])
def test_what_is_wrong_on_all_numbers_has_none(predictor: Predictor, left: str, right: str) -> None:
    assert predictor.guards(parse_term(left), parse_term(right)) is None


def test_nan_and_infinity_are_not_the_same(predictor: Predictor) -> None:
    guards = predictor.guards(parse_term("(Mul (Reciprocal (Mul a a)) a)"), parse_term("(Reciprocal a)"))
    assert guards is not None
    assert guards.nonzero == frozenset("a")


def test_sums_in_another_order_are_not_exact(predictor: Predictor) -> None:
    assert predictor.exact(parse_term("(Add a b)"), parse_term("(Add b a)"), Guards())
    assert not predictor.exact(parse_term("(Add (Add a b) c)"), parse_term("(Add (Add a c) b)"), Guards())


def test_a_difference_in_shape_asks_for_one_shape() -> None:
    assert strengthen(Guards(), "the two sides differ in shape", "ab", False) == Guards(same_shape=True)


def test_stronger_conditions_come_to_an_end() -> None:
    guards: Guards | None = Guards()
    for _ in range(10):
        guards = strengthen(guards, "values differ", "ab", True) if guards else None
    assert guards is None


def test_reductions_keep_their_axes_where_they_have_to() -> None:
    term = parse_term("(ReduceSum a axes k)")
    assert str(apply_guards(term, Guards(keepdims=True))) == "(ReduceSum a axes 1)"
    assert apply_guards(term, Guards()) == term
