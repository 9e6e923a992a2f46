"""The verdicts on rules: rules/refuted.egg has careless rules, rules/accepted.egg right ones that look alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eqfuse.rules.records import Rule, RuleFile, read_file
from eqfuse.tools.checking.check import check_rule, scratch_for
from eqfuse.tools.checking.lemmas import describe_missing_demand
from eqfuse.tools.checking.sampling.hits import operator_of_constants
from eqfuse.tools.checking.verdict import Verdict

from .conftest import RECORD

Check = Callable[..., Verdict]

REFUTED, ACCEPTED = (read_file(Path(__file__).parent / "rules" / f"{name}.egg") for name in ("refuted", "accepted"))
SLOW = {
    "a-sum-with-nothing-of-a-larger-tensor",
    "a-factor-that-widens-what-it-is-taken-from",
    "axes-of-a-tensor-of-lower-rank",
    "another-shape",
    "a-mean-of-a-sum",
    "a-left-shift-of-a-sum",
    "the-largest-after-a-step",
    "the-larger-threshold",
    "the-square-of-a-root",
    "axes-counted-after-the-first-reduction",
}
"""Seconds of processor time each: many shapes or numbers are tried."""


def cases(file: RuleFile) -> list[object]:
    """The rules of a file; slow ones stay out of the fast run."""
    return [
        pytest.param(rule, id=rule.name, marks=[pytest.mark.conformance] if rule.name in SLOW else [])
        for rule in file.rules
    ]


@pytest.mark.representatives(5)
@pytest.mark.parametrize("rule", cases(REFUTED))
def test_careless_rule_is_refuted(rule: Rule) -> None:
    """With a counterexample, a conflict of shapes that the e-graph itself reports, or growth without end."""
    verdict = check_rule(rule, scratch_for(REFUTED))
    assert verdict.kind == "refuted", verdict
    assert verdict.counterexample is not None
    assert verdict.counterexample.sample


@pytest.mark.representatives(2)
@pytest.mark.parametrize("rule", cases(ACCEPTED))
def test_right_rule_is_accepted(rule: Rule) -> None:
    """Differences by rounding, and differences that a guard excludes, are no reason to refuse a rule.

    Sums of shifted bits are only tested: z3 gives no answer in time.
    """
    verdict = check_rule(rule, scratch_for(ACCEPTED))
    assert verdict.kind in ("proved", "proved-if", "tested"), verdict


def test_condition_of_a_proof_is_named(verdict: Check) -> None:
    """The verdict says what the guard makes sure of."""
    assert verdict("(Mul (Sqrt b) (Sqrt b))", "b", "(nonneg b)").condition == "b >= 0"


def test_wrap_around_of_integers_is_allowed_where_it_is_the_same(verdict: Check) -> None:
    """Sums modulo 2^n distribute like any other."""
    sides = ("(Add (Mul a b) (Mul a c))", "(Mul a (Add b c))", '(= (dtype a) "int32")')
    assert verdict(*sides).kind == "proved"


def test_exact_rule_that_rounds_differently_is_refuted(verdict: Check) -> None:
    """The same rule is true over the reals."""
    sides = ("(Mul (Mul x c) y)", "(Mul (Mul x y) c)", "(const c)", "(floating x)", "(= (shape c) (vec-empty))")
    assert verdict(*sides, sound="exact").kind == "refuted"
    assert verdict(*sides, sound="real").kind == "proved"


def test_approximate_rule_may_overflow(verdict: Check) -> None:
    """`approx` rules are compared only if everything stays in range; this one is refuted over the reals."""
    sides = ("(Softmax x axis)", "(Div (Exp x) (ReduceSum (Exp x) (vec-of axis) 1))")
    assert verdict(*sides, sound="approx").kind in ("proved", "tested")


@pytest.mark.parametrize(("last", "kind"), [(255.0, "tested"), (256.0, "refuted")])
def test_step_rule_stays_within_half_a_step(verdict: Check, last: float, kind: str) -> None:
    """The rule of shipped ones that leaves numbers unrounded, and one whose range is a step too wide."""
    left = "(DequantizeLinear (QuantizeLinear x s z a) s z a)"
    ends = '(Full (vec-empty) low "float32") (Full (vec-empty) high "float32")'
    scales = ("(scalar s)", '(= "float32" (dtype s))', "(= r (value s))", "(> r 1.2e-38)", "(< r 1e35)")
    bounds = ("(= low (* r (- 0.0 v)))", f"(= high (* r (- {last} v)))")
    zero = ("(= v (value z))", '(= "uint8" (dtype z))')
    assert verdict(left, f"(Clip x {ends})", *scales, *zero, *bounds, sound="step").kind == kind


def test_right_side_that_no_sample_can_compute_is_the_reason(verdict: Check) -> None:
    """The left side has a meaning on these samples, so that they count."""
    refuted = verdict("(Concat (Relu x) (Relu y) 0)", "(Concat x (Relu y) 5)")
    assert refuted.kind == "refuted"
    assert "the right side has no meaning although the left side has one" in refuted.reason


def test_types_for_which_the_engine_writes_no_right_side_are_named(verdict: Check) -> None:
    """Truth values have no order in ONNX, so the rule changes no model there; elsewhere it is right."""
    sides = ("(Equal x y)", "(Not (Or (Less x y) (Less y x)))", "(finite x)", "(finite y)")
    accepted = verdict(*sides, sound="exact")
    assert accepted.accepted
    assert "not used where it makes Less of bool, which ONNX lacks" in accepted.uncovered


def test_right_side_that_is_never_written_is_refuted(verdict: Check) -> None:
    """The operands are truth values in every model."""
    refuted = verdict("(Or a b)", "(Max a b)", sound="exact")
    assert refuted.kind == "refuted"
    assert "the right side has no meaning although the left side has one" in refuted.reason


def test_other_of_two_zeros_is_the_reason(verdict: Check) -> None:
    """IEEE 754 leaves it open which zero is the larger one, and ONNX Runtime's kernels choose by the order."""
    refuted = verdict("(Max (Max x y) z)", "(Max x (Max y z))", sound="exact")
    assert refuted.kind == "refuted"
    assert "ONNX Runtime computes the other of two zeros" in refuted.reason


def test_settings_without_a_sample_are_listed(verdict: Check) -> None:
    """A rule for matrices of one type leaves other ranks and types open."""
    accepted = verdict("(Relu (Relu x))", "(Relu x)", "(= 2 (vec-length (shape x)))", '(= (dtype x) "float32")')
    assert accepted.accepted
    assert any("rank 0, 1, 3, 4, 5" in line for line in accepted.uncovered)
    assert any(line.startswith("never element type float64") for line in accepted.uncovered)


# --- rules that do not fire


@pytest.mark.conformance
def test_rule_that_never_fires_is_idle(verdict: Check) -> None:
    """Conditions that contradict each other are a mistake."""
    conditions = ("(nonneg x)", "(= (shape x) (vec-of 2))", "(= (shape x) (vec-of 3))")
    idle = verdict("(Relu x)", "x", *conditions)
    assert (idle.kind, idle.reason.rpartition(": ")[2]) == ("idle", "(= (shape x) (vec-of 3)) does not hold")


def test_a_product_of_constants_is_noticed(tmp_path: Path) -> None:
    """What makes a constant is hidden from all rules; a product with an input beside constants is not."""
    heads = []
    for asked in (":when ((const w) (scalar-value c 2.0))", ":when ((scalar-value c 2.0))"):
        path = tmp_path / "trial.egg"
        rule = f'(rewrite (MatMul x (Mul w c)) (Mul (MatMul x w) c) {asked} :ruleset explore :name "trial")'
        path.write_text(f"{RECORD.format(sound='real', example='(Relu x) => x')}{rule}\n")
        heads.append(operator_of_constants(read_file(path).rules[0]))
    assert heads == ["Mul", ""]


@pytest.mark.conformance
def test_rule_that_looks_into_a_constant_is_told_so(verdict: Check) -> None:
    right, condition = "(Mul (MatMul x w) c)", "(scalar-value c 2.0)"
    idle = verdict("(MatMul x (Mul w c))", right, condition, "(const w)")
    assert idle.kind == "idle"
    assert "a Mul of constants alone" in idle.reason


@pytest.mark.conformance
def test_rule_that_looks_into_a_product_beside_constants_is_accepted(verdict: Check) -> None:
    right, condition = "(Mul (MatMul x w) c)", "(scalar-value c 2.0)"
    assert verdict("(MatMul x (Mul w c))", right, condition).accepted


@pytest.mark.conformance
def test_fact_that_nothing_demands_is_named(verdict: Check) -> None:
    """The conditions contradict nothing: a rule of `analysis` is missing."""
    idle = verdict("(Tile (Tile x r) s)", "(Tile x t)", "(= t (vector-product r s))")
    assert idle.kind == "idle"
    assert "asks for (vector-product r s)" in idle.reason
    assert "makes (vectors-demand ...)" in idle.reason


def test_missing_demand_is_known_without_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "trial.egg"
    record = RECORD.format(sound="exact", example="(Tile (Tile x r) s) => (Tile x t)")
    asks = "(rewrite (Tile (Tile x r) s) (Tile x t) :when ((= t (vector-product r s)))"
    path.write_text(f'{record}{asks} :ruleset explore :name "trial")\n')
    rule = read_file(path).rules[0]
    demand = "(rule ((= e (Tile (Tile x r) s))) ((vectors-demand r s)) :ruleset analysis)"
    assert "makes (vectors-demand ...)" in describe_missing_demand(rule, "")
    assert describe_missing_demand(rule, demand) == ""


def test_rule_that_egglog_does_not_take_is_no_wrong_rule(verdict: Check) -> None:
    """A tensor is compared with a number."""
    unchecked = verdict("(Relu (Relu x))", "(Relu x)", "(= x 0.0)")
    assert unchecked.kind == "unchecked"
    assert "egglog does not take the rule: Expect expression x to have type T" in unchecked.reason


def test_example_of_another_rule_is_idle(verdict: Check) -> None:
    """The example has to make its rule fire."""
    idle = verdict("(Relu (Relu x))", "(Relu x)", example="(Relu (Sigmoid x)) => (Relu x)")
    assert (idle.kind, idle.example) == ("idle", False)


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        ("(Relu (Exp x))", "(finite x) does not hold"),
        ("(Neg (Exp x))", "there is no (Relu x)"),
        ('(Relu (Abs (Weight "w")))', "Abs of constants is a constant, and no rule sees what makes one"),
    ],
)
def test_what_an_example_lacks_is_named(left: str, reason: str, verdict: Check) -> None:
    """The first condition that does not hold, or the left side."""
    idle = verdict("(Relu x)", "x", "(nonneg x)", "(finite x)", example=f"{left} => x")
    assert (idle.kind, idle.reason.rpartition(": ")[2]) == ("idle", reason)


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("right", "kind"), [("(Relu x)", "proved"), ("(Abs x)", "idle"), ("(Relu y)", "proved"), ("x", "idle")]
)
def test_rule_has_to_make_its_example(right: str, kind: str, verdict: Check) -> None:
    """A variable that the left side does not have may have any value."""
    assert verdict("(Relu (Relu (Relu x)))", "(Relu x)", example=f"(Relu (Relu (Relu x))) => {right}").kind == kind


@pytest.mark.parametrize(("right", "kind"), [("x", "proved"), ("(Mul x 1.0)", "idle"), ("1.0", "idle")])
def test_a_number_in_an_example_is_a_constant(right: str, kind: str, verdict: Check) -> None:
    halves = "(Add (Div x (Full s 2.0 t)) (Div x (Full s 2.0 t)))"
    conditions = ("(= s (shape x))", "(= t (dtype x))", "(floating x)")
    example = f"(Add (Div x 2.0) (Div x 2.0)) => {right}"
    assert verdict(halves, "x", *conditions, example=example).kind == kind


def test_rule_about_a_constructor_that_nothing_computes(tmp_path: Path) -> None:
    """The rule would unite everything under one key, and no sample holds two such terms."""
    path = tmp_path / "own.egg"
    record = RECORD.format(sound="real", example="(Relu x) => (Relu x)")
    rule = '(rule ((= e (Relu x))) ((union e (same x))) :ruleset explore :name "trial")'
    path.write_text(f"(constructor same (T) T :unextractable)\n{record}{rule}\n")
    file = read_file(path)
    idle = check_rule(file.rules[0], scratch_for(file))
    assert (idle.kind, idle.reason) == ("idle", "nothing says what same computes")
