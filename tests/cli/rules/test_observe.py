"""``eqfuse rules explain``, ``why-not`` and ``stats``."""

from __future__ import annotations

import json

import pytest
from onnx import helper

from ..command_line import CommandLine

TWICE = '(rewrite (Relu (Relu x)) (Relu x) :ruleset simplify :name "own-relu-twice")'
OWN = ("--rules", "own.egg", "--only", "own-relu-twice")


@pytest.fixture
def small(eqfuse: CommandLine) -> CommandLine:
    """A model with one Relu too many, and the rule for it."""
    eqfuse.small()
    eqfuse.rule("own.egg", TWICE)
    return eqfuse


def test_explain_shows_both_forms_and_the_steps(small: CommandLine) -> None:
    outcome = small.run("rules", "explain", "in.onnx", "--output", "second", *OWN)
    assert outcome.code == 0
    assert outcome.out.splitlines()[:12] == [
        "second: 1 step, checked by replay",
        "",
        "before",
        "  first = Relu(x)   float32[2, 3]",
        "  second = Relu(first)   float32[2, 3]",
        "",
        "after",
        "  second = Relu(x)   float32[2, 3]",
        "",
        "steps",
        "  1. own-relu-twice: a + b = a * b, or the like   own.egg:7",
        "        Relu(Relu(x))",
    ]


def test_explain_as_json(small: CommandLine) -> None:
    content = json.loads(small.run("rules", "explain", "in.onnx", "--output", "second", "--json", *OWN).out)
    (step,) = content["steps"]
    assert (step["rule"], step["file"], step["direction"]) == ("own-relu-twice", "own.egg:7", "left to right")
    assert (step["before"], step["after"]) == ("Relu(Relu(x))", "Relu(x)")
    assert content["after"] == [{"name": "second", "text": "Relu(x)", "type": "float32[2, 3]", "constant": False}]
    assert content["names"][0] == {"short": "x", "name": "x", "type": "float32[2, 3]"}


def test_explain_without_a_value_lists_those_to_choose_from(small: CommandLine) -> None:
    outcome = small.run("rules", "explain", "in.onnx", *OWN)
    assert ["second", "Relu", "Relu"] in [line.split() for line in outcome.out.splitlines()]
    values = json.loads(small.run("rules", "explain", "in.onnx", "--json", *OWN).out)["values"]
    assert values == [{"name": "second", "before": "Relu", "after": "Relu"}]


def test_a_value_that_is_now_an_input_is_called_so(eqfuse: CommandLine) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Neg", ["n"], ["m"])]
    eqfuse.model("in.onnx", [*nodes, helper.make_node("Exp", ["m"], ["y"])])
    values = json.loads(eqfuse.run("rules", "explain", "in.onnx", "--json").out)["values"]
    assert {"name": "m", "before": "Neg", "after": "an input of the graph"} in values


def test_explain_of_an_unchanged_value(small: CommandLine) -> None:
    outcome = small.run("rules", "explain", "in.onnx", "--output", "y", *OWN)
    assert outcome.code == 0
    assert outcome.out == (
        "y is unchanged: the same operator over the same operands\nrewritten on the way to it: second\n"
    )


def test_explain_suggests_a_value(small: CommandLine) -> None:
    outcome = small.run("rules", "explain", "in.onnx", "--output", "secnd", *OWN)
    assert outcome.code == 2
    assert outcome.error == "--output secnd: the model has no such value; did you mean second?"


def test_why_not_names_the_condition(small: CommandLine) -> None:
    outcome = small.run("rules", "why-not", "own-relu-twice", "in.onnx", "--node", "first", *OWN)
    wanted = "operand 1 of Relu is an input of the graph (`x`), the pattern wants Relu"
    assert outcome.code == 0
    head, before, after, extraction = outcome.out.splitlines()
    assert head == "own-relu-twice at first: a + b = a * b, or the like   own.egg:7"
    assert before == f"  in the model: no match, 1 of 2 conditions hold; {wanted}"
    assert after.startswith("  with all rules applied: matches, with x = ")
    assert extraction == "  extraction: chosen, the result has the right side of the rule"


def test_why_not_as_json(small: CommandLine) -> None:
    arguments = ("rules", "why-not", "own-relu-twice", "in.onnx", "--node", "second", "--json", *OWN)
    content = json.loads(small.run(*arguments).out)
    assert content["before"]["matches"] is True
    assert content["before"]["values"] == {"x": "`x`"}
    assert (content["outcome"], content["extra_cost"]) == ("chosen", None)


@pytest.mark.parametrize(
    ("name", "node", "options", "message"),
    [
        ("own-relu-twic", "second", (), "no rule is called 'own-relu-twic'; did you mean own-relu-twice?"),
        ("own-relu-twice", "secnd", (), "--node secnd: the model has no such node; did you mean second?"),
        ("own-relu-twice", "second", ("--skip", "own"), "is left out by the options"),
    ],
)
def test_why_not_of_what_is_not_there(
    small: CommandLine, name: str, node: str, options: tuple[str, ...], message: str
) -> None:
    outcome = small.run("rules", "why-not", name, "in.onnx", "--node", node, *OWN, *options)
    assert outcome.code == 2
    assert message in outcome.error


def test_stats_counts_matches_models_and_what_never_matched(small: CommandLine) -> None:
    small.rule("other.egg", '(rewrite (Exp (Log x)) x :ruleset simplify :name "own-exp-of-log")')
    rules = ("--rules", "own.egg", "--rules", "other.egg", "--only", "own", "--only", "other")
    outcome = small.run("rules", "stats", "in.onnx", "in.onnx", *rules)
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["own-relu-twice", "own", "2", "2"] in [row[:4] for row in rows]
    assert ["strength", "2", "1", "2"] in [row[:4] for row in rows]
    assert "1 of 2 rules never matched" in outcome.out
    assert "own-exp-of-log" not in outcome.out
    assert "own-exp-of-log" in small.run("rules", "stats", "in.onnx", *rules, "--unused").out


def test_stats_as_json(small: CommandLine) -> None:
    content = json.loads(small.run("rules", "stats", "in.onnx", "--json", *OWN).out)
    (rule,) = content["rules"]
    assert content["models"] == ["in.onnx"]
    assert (rule["rule"], rule["matches"], rule["models"]) == ("own-relu-twice", 1, 1)


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ("stats", "in.onnx"),
        ("explain", "in.onnx", "--output", "second"),
        ("why-not", "own-relu-twice", "in.onnx", "--node", "y"),
    ],
)
def test_quiet_prints_nothing(small: CommandLine, arguments: tuple[str, ...]) -> None:
    outcome = small.run("rules", *arguments, "-q", *OWN)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_a_missing_model_is_one_line(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run("rules", "explain", "missing.onnx")
    assert (outcome.code, outcome.error) == (1, "missing.onnx: no such file")
