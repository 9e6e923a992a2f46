"""What the shorthand of rule files stands for: `@each`, named conditions, and records that a file shares."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eqfuse.rules.records import Rule, parse, read_file
from eqfuse.rules.sexpr import Form, SexprError, read
from eqfuse.rules.shorthand import expand_conditions, read_conditions, shared_conditions

PASS = Path(__file__).with_name("pass")


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    return {rule.name: rule for rule in read_file(PASS / "each.egg").rules}


def test_each_makes_a_rule_of_every_value(rules: dict[str, Rule]) -> None:
    assert [name for name in rules if name.endswith("twice")] == [
        f"test-each-{operator}-twice" for operator in ("relu", "abs", "sign", "hard-swish")
    ]
    rule = rules["test-each-hard-swish-twice"]
    assert rule.text == (
        '(rewrite (HardSwish (HardSwish x)) (HardSwish x) :ruleset simplify :name "test-each-hard-swish-twice")'
    )
    assert (rule.formula, rule.example) == (
        "hard-swish(hard-swish(x)) = hard-swish(x)",
        "(HardSwish (HardSwish x)) => (HardSwish x)",
    )
    assert (rule.line, rule.column) == (8, 1)


def test_several_lines_of_each_are_combined(rules: dict[str, Rule]) -> None:
    bases = {rule.base for rule in rules.values()}
    assert bases > {f"test-{operator}-{name}" for operator in ("add", "mul", "mat-mul") for name in ("first", "second")}


def test_a_value_may_be_an_expression(rules: dict[str, Rule]) -> None:
    axes = {name: "(vec-of 2)" if name.endswith("one") else "(vec-of 2 3)" for name in rules if "along" in name}
    assert sorted(axes) == [f"test-{f}-along-{name}" for f in ("max", "min") for name in ("one", "two")]
    assert all(rules[name].example.endswith(f" x {vector} 1)") for name, vector in axes.items())


def test_operators_commute_in_the_rules_that_have_them(rules: dict[str, Rule]) -> None:
    assert [rules[f"test-{name}-first"].commutes for name in ("add", "mul", "mat-mul")] == [("Add",), ("Mul",), ()]
    assert "test-add-second~1" in rules
    assert "test-mat-mul-second~1" not in rules


def test_the_head_of_a_file_says_what_its_rules_do_not(rules: dict[str, Rule]) -> None:
    records = {rule.name: (rule.properties, rule.sound) for rule in rules.values()}
    assert records["test-each-relu-twice"] == (("identity",), "exact")
    assert records["test-add-first"] == (("associative",), "real")


def test_a_placeholder_without_braces_is_named() -> None:
    text = '; x = y\n; @each F: Relu Abs\n(rewrite (F (F x)) (F x) :name "twice")\n'
    with pytest.raises(SexprError, match=re.escape("F stands for a value of @each in braces only: {F}")) as refusal:
        parse(Path("own.egg"), read(text))
    assert text[refusal.value.offset :].startswith("F (F x))")


def test_the_comment_of_a_rule_is_no_head() -> None:
    first, second = '(rewrite (Abs x) x :name "a")', '(rewrite (Relu x) x :name "b")'
    file = parse(Path("own.egg"), read(f"; x = x\n; @sound exact\n{first}\n{second}\n"))
    assert [rule.sound for rule in file.rules] == ["exact", ""]


def test_fields_may_share_a_line() -> None:
    rule = '(rewrite (MatMul x w) y :name "a")'
    lines = ("x w = y", "@requires w @ x, or x@home", "@sound exact", "@each F: Abs", "@example (Abs x) => x")
    apart, together = (parse(Path("own.egg"), read(f"{text}\n{rule}\n")) for text in (
        "\n".join(f"; {line}" for line in lines), f"; {' '.join(lines)}",
    ))  # fmt: skip
    assert [replace(r, line=0) for r in apart.rules] == [replace(r, line=0) for r in together.rules]
    assert (together.rules[0].formula, together.rules[0].requires) == ("x w = y", "w @ x, or x@home")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("(rewrite (Abs x) x :when ((single v 1) (const x)))", "(= 1 (vec-length v)) (= 1 (vec-get v 0)) (const x)"),
        ("(rewrite (Abs x) x :when ((ends (f p) q)))", "(= 1 (vec-length (f p))) (= q (vec-get (f p) 0))"),
        ("(rule ((const x) (single v a)) ((const v)))", "(const x) (= 1 (vec-length v)) (= a (vec-get v 0))"),
        ("(rewrite (Abs x) x :when ((single v)))", "(single v)"),  # lint explains it
    ],
)
def test_a_condition_stands_for_its_facts(rule: str, expected: str) -> None:
    conditions = read_conditions(read("(condition (ends v last) (single v last))").forms, shared_conditions())
    expanded = expand_conditions(read(rule).forms[0], conditions)
    facts = expanded.items[1] if expanded.head == "rule" else expanded.items[4]
    assert isinstance(facts, Form)
    assert " ".join(map(str, facts.items)) == expected


def test_a_rule_without_conditions_is_kept() -> None:
    rule = read("(rewrite (Abs x) x :when ((const x)))").forms[0]
    assert expand_conditions(rule, shared_conditions()) is rule
