"""Rules that look right: the checker refutes the careless form and accepts the careful one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eqfuse.rules.records import read_file
from eqfuse.tools.checking.check import check_rule, scratch_for
from eqfuse.tools.checking.verdict import Verdict

from .conftest import RECORD

Check = Callable[..., Verdict]

CARELESS = {
    "a right shift of a sum": (
        '(ReduceSum (BitShift x y "RIGHT") axes k)',
        '(BitShift (ReduceSum x axes k) y "RIGHT")',
        "(= (shape y) (vec-empty))",
    ),
    "the square of a root": ("(Mul (Sqrt b) (Sqrt b))", "b"),
    "a quotient of equals": (
        "(Div x x)",
        "(Full s 1.0 t)",
        "(= s (shape x))",
        "(= t (dtype x))",
        "(floating x)",
    ),
    "a factor and its reciprocal": ("(Mul (Mul x y) (Reciprocal y))", "x", "(= (shape (Mul x y)) (shape x))"),
    "a sum with nothing of a larger tensor": ("(Add a (Mul a b))", "a", "(= (value b) 0.0)", "(floating a)"),
    "a factor that widens what it is taken from": ("(Sub (Add a b) b)", "a"),
    "a mean of unequal parts": (
        "(ReduceMean (Concat x y 0) (vec-of 0) 1)",
        '(Mul (Add (ReduceMean x (vec-of 0) 1) (ReduceMean y (vec-of 0) 1)) (Full (vec-empty) 0.5 "float32"))',
        '(= (dtype x) "float32")',
    ),
    "a division of integers undone": (
        "(Mul (Div a c) c)",
        "a",
        '(= (dtype a) "int32")',
        "(= (shape (Div a c)) (shape a))",
        "(nonzero c)",
    ),
    "bounds in the other order": (
        "(Max (Min x h) l)",
        "(Clip x l h)",
        "(= (shape l) (vec-empty))",
        "(= (shape h) (vec-empty))",
    ),
    "a softmax along the axis as it was before": (
        "(Softmax (Transpose x perm) axis)",
        "(Transpose (Softmax x axis) perm)",
    ),
    "axes of a tensor of lower rank": (
        "(ReduceSum (Mul (ReduceSum a axes 1) b) axes 1)",
        "(Mul (ReduceSum a axes 1) (ReduceSum b axes 1))",
    ),
    "another shape": ("(Reshape x s)", "x"),
    "a sum of squares": ("(ReduceSum (Mul x x) axes k)", "(Mul (ReduceSum x axes k) (ReduceSum x axes k))"),
    "the largest under a falling function": ("(ReduceMax (Neg x) axes k)", "(Neg (ReduceMax x axes k))"),
    "exponentials that overflow on the right only": (
        "(Softmax x axis)",
        "(Div (Exp x) (ReduceSum (Exp x) (vec-of axis) 1))",
    ),
}
CAREFUL = {
    "a left shift of a sum": (
        '(ReduceSum (BitShift x y "LEFT") axes k)',
        '(BitShift (ReduceSum x axes k) y "LEFT")',
        "(= (shape y) (vec-empty))",
    ),
    "the square of a root": ("(Mul (Sqrt b) (Sqrt b))", "b", "(nonneg b)"),
    "a quotient of equals": (
        "(Div x x)",
        "(Full s 1.0 t)",
        "(= s (shape x))",
        "(= t (dtype x))",
        "(floating x)",
        "(nonzero x)",
    ),
    "a factor and its reciprocal": (
        "(Mul (Mul x y) (Reciprocal y))",
        "x",
        "(= (shape (Mul x y)) (shape x))",
        "(nonzero y)",
    ),
    "one more than a factor": (
        "(Add a (Mul a b))",
        "(Mul a (Add b (Full (vec-empty) 1.0 t)))",
        "(= t (dtype a))",
        "(floating a)",
    ),
    "a mean of equal parts": (
        "(ReduceMean (Concat x y 0) (vec-of 0) 1)",
        '(Mul (Add (ReduceMean x (vec-of 0) 1) (ReduceMean y (vec-of 0) 1)) (Full (vec-empty) 0.5 "float32"))',
        '(= (dtype x) "float32")',
        "(= (shape x) (shape y))",
    ),
    "bounds": ("(Min (Max x l) h)", "(Clip x l h)", "(= (shape l) (vec-empty))", "(= (shape h) (vec-empty))"),
    "a softmax along the axis where it came from": (
        "(Softmax (Transpose x perm) axis)",
        "(Transpose (Softmax x i) perm)",
        "(= i (vec-get perm axis))",
    ),
}


SLOW = {
    "a sum with nothing of a larger tensor",
    "a factor that widens what it is taken from",
    "axes of a tensor of lower rank",
    "another shape",
}
"""Seconds of processor time each: counterexamples are looked for among many shapes."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.conformance] if name in SLOW else []) for name in CARELESS]
)
def test_careless_form_is_refuted(name: str, verdict: Check) -> None:
    """With a counterexample, or a conflict of shapes that the e-graph itself reports."""
    found = verdict(*CARELESS[name])
    assert found.kind == "refuted", found
    assert found.counterexample is not None
    assert found.counterexample.sample


@pytest.mark.parametrize("name", CAREFUL)
def test_careful_form_is_accepted(name: str, verdict: Check) -> None:
    """Proved, or tested where z3 has no answer in time (sums of shifted bits)."""
    found = verdict(*CAREFUL[name])
    assert found.kind in ("proved", "proved-if", "tested"), found


def test_condition_of_a_proof_is_named(verdict: Check) -> None:
    """What the guard makes sure of, in words."""
    assert verdict(*CAREFUL["the square of a root"]).condition == "b >= 0"


def test_wrap_around_of_integers_is_allowed_where_it_is_the_same(verdict: Check) -> None:
    """Sums modulo 2^n distribute like any other."""
    found = verdict("(Add (Mul a b) (Mul a c))", "(Mul a (Add b c))", '(= (dtype a) "int32")')
    assert found.kind == "proved"


@pytest.mark.conformance
def test_rule_that_never_fires_is_idle(verdict: Check) -> None:
    """Conditions that contradict each other are a mistake."""
    found = verdict("(Relu x)", "x", "(nonneg x)", "(= (shape x) (vec-of 2))", "(= (shape x) (vec-of 3))")
    assert found.kind == "idle"


def test_example_of_another_rule_is_idle(verdict: Check) -> None:
    """The example has to make its rule fire."""
    found = verdict("(Relu (Relu x))", "(Relu x)", example="(Relu (Sigmoid x)) => (Relu x)")
    assert found.kind == "idle"
    assert not found.example


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("right", "kind"),
    [
        ("(Relu x)", "proved"),
        ("(Abs x)", "idle"),
        ("(Relu y)", "proved"),
        ("x", "idle"),
    ],
)
def test_rule_has_to_make_its_example(right: str, kind: str, verdict: Check) -> None:
    """A name that the left side does not have stands for anything."""
    assert verdict("(Relu (Relu (Relu x)))", "(Relu x)", example=f"(Relu (Relu (Relu x))) => {right}").kind == kind


def test_rule_about_a_key_that_nothing_computes(tmp_path: Path) -> None:
    """All that has one key would be united, and no sample holds two of them."""
    path = tmp_path / "own.egg"
    record = RECORD.format(sound="real", example="(Relu x) => (Relu x)")
    rule = '(rule ((= e (Relu x))) ((union e (same x))) :ruleset explore :name "trial")'
    path.write_text(f"(constructor same (T) T :unextractable)\n{record}{rule}\n")
    file = read_file(path)
    found = check_rule(file.rules[0], scratch_for(file))
    assert (found.kind, found.reason) == ("idle", "nothing says what same computes")


def test_exact_rule_that_rounds_differently_is_refuted(verdict: Check) -> None:
    """The same rule is true over the reals."""
    sides = ("(Mul (Mul a b) c)", "(Mul a (Mul b c))", "(floating a)")
    assert verdict(*sides, sound="exact").kind == "refuted"
    assert verdict(*sides, sound="real").kind == "proved"


def test_approximate_rule_may_overflow(verdict: Check) -> None:
    """`approx` rules are compared where everything stays in range."""
    left, right, *_ = CARELESS["exponentials that overflow on the right only"]
    assert verdict(left, right, sound="approx").kind in ("proved", "tested")
