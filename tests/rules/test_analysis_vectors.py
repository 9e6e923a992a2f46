"""Arithmetic on vectors: the e-graph derives what the checker computes in Python."""

from __future__ import annotations

import pytest

from eqfuse.rules import sexpr
from eqfuse.tools.checking.sampling.conditions import Environment, compile_tests, evaluate

from .conftest import Analyses

PAIRS = [
    ("(vec-empty)", "(vec-empty)"),
    ("(vec-of 3)", "(vec-of -2)"),
    ("(vec-of 0 4 -7)", "(vec-of 5 4 2)"),
    ("(vec-of 1 2 3 4 5 6)", "(vec-of 6 5 4 3 2 1)"),
]


def literal(vector: object) -> str:
    numbers = " ".join(map(str, vector))  # type: ignore[call-overload]
    return f"(vec-of {numbers})" if numbers else "(vec-empty)"


@pytest.mark.parametrize("function", ["vector-sum", "vector-difference", "vector-product", "vector-maximum"])
def test_element_by_element(function: str, analyses: Analyses) -> None:
    for u, v in PAIRS:
        call = f"({function} {u} {v})"
        analyses.run(f"(vectors-demand {u} {v})")
        assert analyses.holds(f"(= {literal(evaluate(sexpr.read(call).forms[0], Environment()))} {call})")


@pytest.mark.parametrize(("u", "v"), PAIRS)
def test_at_most(u: str, v: str, analyses: Analyses) -> None:
    fact = f"(vectors-at-most {u} {v})"
    analyses.run(f"(vectors-demand {u} {v})")
    (test,) = compile_tests(sexpr.read(fact).forms)
    assert analyses.holds(fact) == test.holds(Environment())


@pytest.mark.parametrize(
    ("demand", "call"),
    [
        ("(vector-pick-demand (vec-of 7 8 9) (vec-of 2 0 0 1))", "(vector-pick (vec-of 7 8 9) (vec-of 2 0 0 1))"),
        ("(halves-demand (vec-of 1 2 3 4))", "(first-half (vec-of 1 2 3 4))"),
        ("(halves-demand (vec-of 1 2 3 4))", "(second-half (vec-of 1 2 3 4))"),
        ("(halves-demand (vec-empty))", "(second-half (vec-empty))"),
    ],
)
def test_parts(demand: str, call: str, analyses: Analyses) -> None:
    analyses.run(demand)
    assert analyses.holds(f"(= {literal(evaluate(sexpr.read(call).forms[0], Environment()))} {call})")


@pytest.mark.parametrize(
    ("demand", "call"),
    [
        ("(vectors-demand (vec-of 1 2) (vec-of 1))", "(vector-sum (vec-of 1 2) (vec-of 1))"),  # of unequal length
        ("(vector-pick-demand (vec-of 7) (vec-of 1))", "(vector-pick (vec-of 7) (vec-of 1))"),  # no such place
    ],
)
def test_what_has_no_value(demand: str, call: str, analyses: Analyses) -> None:
    analyses.run(demand)
    assert not analyses.holds(f"(= v {call})")
