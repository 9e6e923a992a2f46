"""Why a rule does not match at a node, and the result if it matches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from eqfuse.driver.rules.observe import Observation, Verdict, diagnose_rule, find_variants
from eqfuse.support.errors import UsageError

from .optimizing import model, node, rule, run

RULES = {  # by the ends of their names
    "operand": "rewrite (Mul (Add a b) c) (Mul c (Add b a))",
    "below": "rewrite (Mul (Exp (Neg a)) c) (Mul c (Exp (Neg a)))",
    "literal": "rewrite (Transpose x (vec-of 0 1)) x",
    "again": "rewrite (Mul x x) (Mul x (Exp x))",
    "length": "rewrite (ReduceSum x axes 1) (ReduceMax x axes 1) :when ((= 1 (vec-length axes)))",
    "sign": "rewrite (Mul a b) (Mul b a) :when ((nonneg a))",
    "shape": "rewrite (Mul a b) (Mul b a) :when ((= (vec-length (shape a)) 3))",
    "absent": "rewrite (Clip x (Absent) high) (Min x high)",
    "computed": "rewrite (ReduceSum x axes 1) (Exp x) :when ((= k (vec-get axes 5)))",
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Observation:
    """A model that none of the rules rewrites."""
    nodes = [
        node("Exp", "x", to="e"),
        node("Sin", "x", to="s"),
        node("Mul", "e", "s", to="m"),
        node("Mul", "s", "e", to="n"),
        node("Transpose", "m", to="t", perm=[1, 0]),
        node("ReduceSum", "t", "axes", to="r", keepdims=1),
        node("Clip", "n", "low", "high", to="c"),
    ]
    path = model(tmp_path_factory.mktemp("plain"), nodes, ("r", "c"), axes=[], low=-1.0, high=1.5)
    stored = onnx.load(path)
    axes = numpy_helper.from_array(np.asarray([0, 1], np.int64), "axes")
    next(i for i in stored.graph.initializer if i.name == "axes").CopyFrom(axes)
    onnx.save(stored, path)
    return run(path, *(rule(text, f"own-{name}") for name, text in RULES.items()))


def diagnose(result: Observation, name: str, at: str) -> Verdict:
    return diagnose_rule(result, find_variants(name, result.options), at)


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("name", "at", "met", "failure"),
    [
        ("operand", "r", 0, "the node is ReduceSum (`r`), the pattern wants Mul"),
        ("operand", "m", 1, "operand 1 of Mul is Exp (`e`), the pattern wants Add"),
        ("below", "m", 2, "operand 1 of Exp is an input of the graph (`x`), the pattern wants Neg"),
        ("literal", "t", 1, "perm of Transpose is [1, 0], the pattern wants [0, 1]"),
        ("again", "m", 1, "operand 2 of Mul is `s`, the pattern wants `e`, as x"),
        ("length", "r", 2, "(= 1 (vec-length axes)): false; axes is [0, 1]"),
        ("sign", "n", 1, "(nonneg a): not known; a is `s`"),
        ("shape", "m", 2, "(= (vec-length (shape a)) 3): false; (shape a) is [2, 3]"),
        ("absent", "c", 1, "operand 2 of Clip is a constant (`low`), the pattern wants it absent"),
        ("computed", "r", 2, "(= k (vec-get axes 5)): false; axes is [0, 1]"),
    ],
)
def test_the_first_condition_that_is_not_met(plain: Observation, name: str, at: str, met: int, failure: str) -> None:
    before = diagnose(plain, f"own-{name}", at).diagnosis.before
    assert (before.met, before.failure) == (met, failure)


def test_of_mirrored_variants_the_one_that_gets_furthest(tmp_path: Path) -> None:
    nodes = [node("Exp", "x", to="e"), node("Mul", "x", "e", to="y")]
    mirrored = rule("rewrite (Mul (Exp (Neg a)) c) (Div c (Exp a))", "own-times-exp", commutes="Mul")
    result = run(model(tmp_path, nodes), mirrored)
    best = diagnose(result, "own-times-exp", "node_y").diagnosis.before
    assert (best.pattern, best.met) == ("own-times-exp~1", 2)
    assert diagnose(result, "own-times-exp~1", "y").diagnosis.before == best


def test_of_two_directions_the_one_that_gets_furthest(tmp_path: Path) -> None:
    both = rule("birewrite (Neg (Neg (Neg a))) (Relu (Neg (Neg a)))", "own-both")
    path = model(tmp_path, [node("Neg", "x", to="n"), node("Relu", "n", to="y")])
    best = diagnose(run(path, both), "own-both", "y").diagnosis.before
    assert (best.pattern, best.met) == ("own-both<=", 2)


def test_a_constant_is_hidden_from_rules(tmp_path: Path) -> None:
    nodes = [node("Exp", "w", to="e"), node("Mul", "x", "e", to="y")]
    path = model(tmp_path, nodes, shape=(100, 100), w=np.random.default_rng(0).standard_normal((100, 100)))
    result = run(path, rule("rewrite (Mul x (Exp w)) (Exp w)", "own-hidden"))
    hidden = "operand 2 of Mul is Exp, but hidden from rules: it is made of constants, or replaced for good"
    assert diagnose(result, "own-hidden", "y").diagnosis.before.failure == hidden


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Observation:
    """A model of which much is rewritten."""
    nodes = [
        node("Neg", "x", to="a"),
        node("Neg", "a", to="b"),
        node("Abs", "b", to="c"),
        node("Exp", "c", to="d"),
        node("Log", "d", to="y"),
        node("Sigmoid", "x", to="z"),
        node("Mul", "b", "b", to="p"),
        node("Exp", "p", to="q"),
        node("MatMul", "x", "w", to="m"),
        node("Mul", "m", "half", to="h"),
    ]
    rules = [
        rule("rewrite (Neg (Neg x)) x", "own-neg-neg"),
        rule("rewrite (Abs x) (Max x (Neg x))", "own-abs-as-max"),
        rule("rewrite (Log (Exp x)) x", "own-log-of-exp"),
        rule("rewrite (Sigmoid x) (Reciprocal (Add (Exp (Neg (Neg (Neg x)))) one)) :when ((= one x))", "own-detour"),
        rule("rewrite (Reciprocal (Add (Exp (Neg x)) x)) (Sign x)", "own-only-later"),
        rule("rewrite (Mul (Neg (Neg a)) (Neg (Neg a))) (Abs (Neg (Neg a)))", "own-square"),
        rule("rewrite (Mul (MatMul x w) c) (MatMul x (Mul w c)) :when ((const w) (const c))", "own-scale"),
        rule("rewrite (MatMul x w) (Neg (Neg (MatMul x w)))", "own-twice-negative"),
    ]
    path = model(tmp_path_factory.mktemp("rewritten"), nodes, ("y", "z", "q", "h"), w=[[1.0, 2.0, 3.0]] * 3, half=0.5)
    return run(path, *rules)


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("name", "at", "outcome"),
    [
        ("own-neg-neg", "b", "chosen"),
        ("own-log-of-exp", "y", "chosen"),
        ("own-abs-as-max", "c", "rejected"),
        ("own-detour", "z", "rejected"),
        ("own-only-later", "z", "rejected"),
        ("own-square", "p", "refined"),
        ("own-scale", "h", "chosen"),
        ("own-twice-negative", "m", "unused"),
    ],
)
def test_what_became_of_a_match(rewritten: Observation, name: str, at: str, outcome: str) -> None:
    assert diagnose(rewritten, name, at).outcome == outcome


def test_a_match_that_needs_other_rules_is_not_in_the_model(rewritten: Observation) -> None:
    diagnosis = diagnose(rewritten, "own-only-later", "z").diagnosis
    assert diagnosis.after is not None
    assert (diagnosis.before.matches, diagnosis.after.matches) == (False, True)


def test_what_a_rejected_match_would_cost(rewritten: Observation) -> None:
    verdict = diagnose(rewritten, "own-abs-as-max", "c")
    assert verdict.instead == "Abs"
    assert verdict.extra is not None
    assert verdict.extra > 0


def test_what_a_match_is_bound_to(rewritten: Observation) -> None:
    assert diagnose(rewritten, "own-abs-as-max", "c").diagnosis.before.values == {"x": "`b`"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own-neg-negg", "no rule is called 'own-neg-negg'; did you mean own-neg-neg?"),
        ("analysis.sign.Relu", "no rule is called"),
    ],
)
def test_rules_that_are_not_there(rewritten: Observation, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_variants(name, rewritten.options)


def test_a_rule_that_the_options_leave_out(rewritten: Observation) -> None:
    options = replace(rewritten.options, skip=("own-neg-neg",))
    with pytest.raises(UsageError, match="own-neg-neg is left out by the options"):
        find_variants("own-neg-neg", options)


@pytest.mark.parametrize(("at", "message"), [("node_zz", "no such node; did you mean node_z?"), ("x", "no such node")])
def test_nodes_that_are_not_there(rewritten: Observation, at: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        diagnose(rewritten, "own-neg-neg", at)


def test_a_node_that_passes_its_input_on(tmp_path: Path) -> None:
    path = model(tmp_path, [node("Identity", "x", to="i"), node("Exp", "i", to="y")])
    with pytest.raises(UsageError, match="node_i: passes its input on"):
        diagnose(run(path, rule("rewrite (Exp x) (Exp (Neg x))", "own-any")), "own-any", "node_i")
