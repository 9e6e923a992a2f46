"""Rules proved for tensors of every rank and size, and careless ones that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eqfuse.rules import sexpr
from eqfuse.rules.records import parse
from eqfuse.tools.checking.check import check_rule, scratch_for
from eqfuse.tools.checking.unbounded.rule_proof import EVERY_SHAPE, RuleProof, prove_rule

ONE_SLICE = (
    "(= 1 (vec-length axes))",
    "(= a (vec-get axes 0))",
    "(= 1 (vec-length starts))",
    "(= b (vec-get starts 0))",
    "(= 1 (vec-length ends))",
    "(= e (vec-get ends 0))",
)
RIGHT = {
    "operands that broadcast": ("(Mul a (Add b c))", "(Add (Mul a b) (Mul a c))", "(floating a)"),
    "a transposition past a function": ("(Transpose (Relu x) p)", "(Relu (Transpose x p))"),
    "a transposition undone": ("(Transpose (Transpose x p) q)", "x", "(= q (inverse p))"),
    "a dimension put in and taken out": ("(Squeeze (Unsqueeze x axes) axes)", "x"),
    "a part of what was joined": (
        "(Slice (Concat x y a) starts ends axes (vec-of 1))",
        "(Slice x starts ends axes (vec-of 1))",
        *ONE_SLICE,
        "(= m (vec-get (shape x) a))",
        "(<= e m)",
    ),
    "parts of a whole": (
        "(Concat (Slice x starts ends axes (vec-of 1)) (Slice x ends more axes (vec-of 1)) a)",
        "(Slice x starts more axes (vec-of 1))",
        *ONE_SLICE,
        "(= 1 (vec-length more))",
        "(<= b e)",
        "(<= e (vec-get more 0))",
        "(<= e (vec-get (shape x) a))",
    ),
    "a mean over axes of size one": (
        "(ReduceMean x axes 1)",
        "x",
        "(= 1 (vec-length axes))",
        "(= 1 (vec-get (shape x) (vec-get axes 0)))",
    ),
    "products in another order": (
        "(MatMul (MatMul a b) c)",
        "(MatMul a (MatMul b c))",
        "(= 2 (vec-length (shape a)))",
        "(= 2 (vec-length (shape b)))",
        "(= 2 (vec-length (shape c)))",
    ),
    "a product with a multiple, of any rank": (
        "(MatMul (Mul x c) y)",
        "(Mul (MatMul x y) c)",
        "(= (vec-empty) (shape c))",
    ),
}
WRONG = {
    "a factor that widens": ("(Mul x c)", "x", "(= 1.0 (value c))"),
    "axes that are not the same": ("(Squeeze (Unsqueeze x axes) more)", "x"),
    "another permutation": ("(Transpose (Transpose x p) p)", "x"),
    "a part beyond the first tensor": (
        "(Slice (Concat x y a) starts ends axes (vec-of 1))",
        "(Slice x starts ends axes (vec-of 1))",
        *ONE_SLICE,
        "(= m (vec-get (shape x) a))",
        "(<= b m)",
    ),
    "axes out of order": (
        "(ReduceSum (ReduceSum x a 1) b 1)",
        "(ReduceSum x (vec-append a b) 1)",
        "(= 1 (vec-length a))",
        "(= 1 (vec-length b))",
    ),
    "axes that others were taken from": (
        "(ReduceSum (ReduceSum x a 0) b 0)",
        "(ReduceSum x (vec-of i j) 0)",
        "(= 1 (vec-length a))",
        "(= 1 (vec-length b))",
        "(= i (vec-get a 0))",
        "(= j (vec-get b 0))",
        "(< i j)",
    ),
    "a product in reverse": ("(MatMul a b)", "(MatMul b a)"),
    "a sum of squares": (
        "(ReduceSum (Mul x x) (vec-of 0) 0)",
        "(Mul (ReduceSum x (vec-of 0) 0) (ReduceSum x (vec-of 0) 0))",
    ),
    "a quotient of integers": (
        "(Div (ReduceSum x (vec-of 0) 1) c)",
        "(ReduceSum (Div x c) (vec-of 0) 1)",
        '(= "int32" (dtype x))',
        "(nonzero c)",
        "(= (vec-empty) (shape c))",
    ),
    "the opposite of an unsigned number": ("(Sub x c)", "(Add x (Neg c))"),
    "conditions that contradict each other": (
        "(Relu x)",
        "x",
        "(= (shape x) (vec-of 2))",
        "(= (shape x) (vec-of 3))",
    ),
}


def proof(left: str, right: str, *conditions: str) -> RuleProof:
    """What becomes of one rewrite."""
    text = f'(rewrite {left} {right} :when ({" ".join(conditions)}) :ruleset explore :name "trial")'
    return prove_rule(parse(Path("trial.egg"), sexpr.read(text)).rules[0])


CARELESS_ACTIONS = {
    "what is made stands first": "(union (Relu (Transpose (Transpose x (vec-of 1 0)) (vec-of 1 0))) e)",
    "a claim beside": "(union e (Relu (Relu x))) (nonneg x)",
    "both sides are made": "(union (Abs x) (Abs (Abs x)))",
}


@pytest.mark.parametrize("name", CARELESS_ACTIONS)
def test_careless_actions_are_not_proved(name: str) -> None:
    """The rule matches any Relu."""
    text = f'(rule ((= e (Relu x))) ({CARELESS_ACTIONS[name]}) :ruleset explore :name "trial")'
    assert not prove_rule(parse(Path("trial.egg"), sexpr.read(text)).rules[0]).proved


SLOW = ("a dimension put in and taken out", "a product with a multiple, of any rank", "axes that are not the same")
"""Rules about lists of axes of unknown length, or with two cases, which take seconds."""


def cases(rules: dict[str, tuple[str, ...]]) -> list[Any]:
    """The names of rules; slow ones stay out of the fast run."""
    return [pytest.param(n, marks=[pytest.mark.conformance] if n in SLOW else []) for n in rules]


@pytest.mark.parametrize("name", cases(RIGHT))
def test_right_rule_is_proved(name: str) -> None:
    """Whatever the ranks and sizes."""
    outcome = proof(*RIGHT[name])
    assert outcome.proved, outcome


@pytest.mark.parametrize("name", cases(WRONG))
def test_wrong_rule_is_not_proved(name: str) -> None:
    """Each is wrong for some shapes, types or attributes only."""
    assert not proof(*WRONG[name]).proved


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param("(vec-of 1 0)", id="rank 2"),
        pytest.param("(vec-of 0 2 1)", id="rank 3"),
    ],
)
def test_literal_permutation_undoes_itself(attributes: str) -> None:
    """A permutation that is written out is known by its places."""
    assert proof(f"(Transpose (Transpose x {attributes}) {attributes})", "x").proved


def test_verdict_says_for_which_shapes_a_rule_is_proved(tmp_path: Path) -> None:
    """The checker of rules asks for the widest scope."""
    record = "; x\n; @property layout\n; @sound exact\n; @requires none\n; @source derived\n"
    left, right = "(Transpose (Relu x) p)", "(Relu (Transpose x p))"
    rule = f'(rewrite {left} {right} :ruleset explore :name "trial")'
    file = parse(tmp_path / "trial.egg", sexpr.read(f"{record}; @example {left} => {right}\n{rule}\n"))
    verdict = check_rule(file.rules[0], scratch_for(file))
    assert (verdict.kind, verdict.scope) == ("proved", EVERY_SHAPE)
