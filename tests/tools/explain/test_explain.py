"""Chains of rules from the original to the optimised form of a value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from eqfuse.driver.rules.observe import Observation, explain_value, list_rewritten_values
from eqfuse.support.errors import UsageError
from eqfuse.tools.explain.explanation import Explanation, Unexplained, rules_on_the_way

from .optimizing import explain_rewritten, lines, model, node, rule, run, steps

TWICE = rule("rewrite (Relu (Relu x)) (Relu x)", "own-relu-twice")
SCALE = rule("rewrite (Mul (MatMul x w) c) (MatMul x (Mul w c)) :when ((const w) (scalar c))", "own-scale")
RIGHT = rule("rewrite (Mul c x) (Mul x c) :when ((const c))", "own-constant-right", "simplify")
SUM = rule("birewrite (Exp (Add a b)) (Mul (Exp a) (Exp b))", "own-exp-of-sum")
NOTHING = rule("rewrite (Sub x x) (Full s 0.0 t) :when ((= s (shape x)) (= t (dtype x)))", "own-minus-itself")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Observation:
    """A model with something to do for each of the rules above."""
    nodes = [
        node("MatMul", "x", "w", to="a"), node("Mul", "c", "a", to="b"), node("Exp", "b", to="y"),
        node("Relu", "x", to="r"), node("Relu", "r", to="s"), node("Exp", "s", to="t"),
        node("Relu", "t", to="u"), node("Relu", "u", to="v"),
        node("Exp", "x", to="d"), node("Neg", "x", to="n"), node("Exp", "n", to="e"), node("Mul", "d", "e", to="f"),
    ]  # fmt: skip
    # large enough that a constant more does not matter beside it
    matrix = np.random.default_rng(0).standard_normal((64, 64))
    path = model(tmp_path_factory.mktemp("mixed"), nodes, ("y", "v", "f"), ("batch", 64), w=matrix, c=0.3)
    return run(path, TWICE, SCALE, RIGHT, SUM)


@pytest.fixture(scope="module")
def explained(mixed: Observation) -> dict[str, Explanation]:
    """The explanations of b = 0.3 * (x w), v and f."""
    return {name: explain_rewritten(mixed, name) for name in ("b", "v", "f")}


def test_the_steps_come_in_the_order_of_rewriting(explained: dict[str, Explanation]) -> None:
    assert steps(explained["b"]) == [
        ("own-constant-right", "Mul(0.3, a)", "Mul(a, 0.3)"),
        ("own-scale", "Mul(MatMul(x, w), 0.3)", "MatMul(x, Mul(w, 0.3))"),
    ]


def test_both_forms_and_the_names_in_them(explained: dict[str, Explanation]) -> None:
    product = explained["b"]
    assert [(line.name, line.text) for line in product.before] == [("a", "MatMul(x, w)"), ("b", "Mul(0.3, a)")]
    assert lines(product) == ["b = MatMul(x, Mul(w, 0.3))"]
    types = {name.full: name.type.shape for name in product.names if name.type}
    assert types == {"x": ("batch", 64), "w": (64, 64), "a": ("batch", 64)}


def test_what_both_forms_share_is_not_explained(explained: dict[str, Explanation]) -> None:
    assert [line.name for line in explained["v"].before] == ["u", "v"]
    assert steps(explained["v"]) == [("own-relu-twice", "Relu(Relu(t))", "Relu(t)")]


def test_a_birewrite_from_right_to_left(explained: dict[str, Explanation]) -> None:
    assert steps(explained["f"]) == [("own-exp-of-sum", "Mul(Exp(x), Exp(n))", "Exp(Add(x, n))")]


def test_rules_of_a_report_are_those_of_the_explanation(mixed: Observation, explained: dict[str, Explanation]) -> None:
    for name, explanation in explained.items():
        rules = rules_on_the_way(mixed.rewriting.rewritten_values[name], mixed.rewriting, 300.0)
        assert list(rules) == [step.rule.base for step in explanation.steps]


def test_a_value_that_turns_out_constant(tmp_path: Path) -> None:
    nodes = [node("Exp", "x", to="a"), node("Sub", "a", "a", to="b"), node("Add", "b", "x", to="c")]
    nodes += [node("MatMul", "c", "w", to="y")]
    path = model(tmp_path, nodes, shape=(2, 64), w=np.random.default_rng(0).standard_normal((64, 64)))
    assert steps(explain_rewritten(run(path, NOTHING), "b")) == [("own-minus-itself", "Sub(a, a)", "0[2, 64]")]


def test_conditions_that_rest_on_another_rule_name_it(tmp_path: Path) -> None:
    note = "(relation doubled (T))\n"
    derive = '(rule ((= e (Mul x c)) (= 2.0 (value c))) ((doubled e)) :ruleset analysis :name "analysis.own.doubled")\n'
    cancel = rule("rewrite (Abs y) y :when ((doubled y))", "own-abs-of-doubled")
    nodes = [node("Mul", "c", "x", to="a"), node("Abs", "a", to="b"), node("Mul", "b", "b", to="y")]
    explanation = explain_rewritten(run(model(tmp_path, nodes, c=2.0), note, derive, cancel, RIGHT), "b")
    assert [step[0] for step in steps(explanation)] == ["own-abs-of-doubled"]
    assert [rule.name for rule in explanation.rests_on] == ["own-constant-right"]


def test_two_matches_that_meet_in_a_key_are_one_step(tmp_path: Path) -> None:
    declared = "(relation magnitude (T T))\n(constructor key (T) T :unextractable)\n"
    facts = "".join(
        f'(rule ((= e {form})) ((magnitude e x)) :ruleset analysis :name "analysis.own.{name}")\n'
        for name, form in (("abs", "(Abs x)"), ("root", "(Sqrt (Mul x x))"))
    )
    same = rule("rule ((magnitude e x)) ((union e (key x)))", "own-same-magnitude")
    nodes = [node("Mul", "x", "x", to="s"), node("Sqrt", "s", to="y"), node("Abs", "x", to="z")]
    explanation = explain_rewritten(run(model(tmp_path, nodes, outputs=("y", "z")), declared, facts, same), "y")
    assert steps(explanation) == [("own-same-magnitude", "Sqrt(s)", "Abs(x)")]


def test_a_value_of_a_node_with_several_outputs(tmp_path: Path) -> None:
    whole = rule("rewrite (Concat (Out n 0) (Out n 1) axis) x :when ((= n (Split x sizes axis)))", "own-join-split")
    nodes = [helper.make_node("Split", ["x"], ["a", "b"], axis=1), node("Concat", "a", "b", to="c", axis=1)]
    result = run(model(tmp_path, [*nodes, node("Exp", "c", to="y")], shape=(2, 4)), whole)
    parts = [f"Split(x, split=[2, 2], axis=1)[{i}]" for i in (0, 1)]
    assert steps(explain_rewritten(result, "c")) == [("own-join-split", f"Concat({', '.join(parts)}, axis=1)", "x")]


def test_the_rewritten_values_are_listed(mixed: Observation) -> None:
    values = {r.name: (r.before, r.after) for r in list_rewritten_values(mixed)}
    assert values == {
        "b": ("Mul", "MatMul"), "s": ("Relu", "Relu"), "v": ("Relu", "Relu"), "f": ("Mul", "Exp"),
    }  # fmt: skip


def test_an_unchanged_value_names_what_was_rewritten_before_it(mixed: Observation) -> None:
    told = explain_value(mixed, "y")
    assert (told.explanation, told.rewritten) == (None, ("b",))
    assert "unchanged" in told.reason


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", "is an input of the graph"),
        ("yy", "no such value; did you mean y?"),
        ("a", "does not compute it any more; it does compute b"),
    ],
)
def test_what_cannot_be_explained(mixed: Observation, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        explain_value(mixed, value)


def test_a_stored_constant_has_nothing_to_explain(mixed: Observation) -> None:
    assert explain_value(mixed, "w").reason.startswith("is a constant")


def test_out_of_time_is_one_line(mixed: Observation) -> None:
    hasty = replace(mixed, options=replace(mixed.options, time_limit=1e-3))
    with pytest.raises(Unexplained, match=r"^b cannot be explained: the time limit ended the search") as raised:
        explain_value(hasty, "b")
    assert raised.value.exit_code == 5
