"""Rules under names that no verdict depends on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from eqfuse.rules import sexpr
from eqfuse.rules.binding import place_of_conditions
from eqfuse.rules.records import Rule, RuleFile, read_file
from eqfuse.rules.sexpr import Form
from eqfuse.tools.checking.check import canonical, check_rule, rules_as_written, scratch_for

REFUTED = read_file(Path(__file__).parent / "rules" / "refuted.egg")


SETS = [read_file(path) for path in sorted((Path(__file__).parent / "rules").glob("*.egg"))]
WRONG = [
    pytest.param(file, rule, id=rule.name)
    for file, rule in rules_as_written(SETS)
    if file.path.stem.startswith(("careless", "refuted"))
]
OTHERS = 20


def _otherwise(rule: Rule, random: Random) -> Rule:
    """The rule under another name, with other names of variables and its conditions in another order."""
    form = sexpr.read(rule.text).forms[0]
    names = set(canonical(rule).names.values())
    numbers = random.sample(range(1000), len(names))
    others = {name: f"{random.choice('qvz')}{number}" for name, number in zip(sorted(names), numbers, strict=True)}
    items = [*form.items]
    if (place := place_of_conditions(form)) is not None:
        facts = items[place].items  # type: ignore[union-attr]
        items[place] = Form(tuple(random.sample(facts, len(facts))))
    words = re.findall(r'"(?:[^"\\]|\\.)*"|[()]|[^\s()"]+', str(Form(tuple(items))))
    heads = ["", *words]
    text = " ".join(word if head == "(" else others.get(word, word) for head, word in zip(heads, words, strict=False))
    return replace(rule, name="another", text=text.replace(f'"{rule.name}"', '"another"'))


@pytest.mark.representatives(20)
@pytest.mark.parametrize(("file", "rule"), WRONG)
def test_verdict_depends_on_what_a_rule_says(file: RuleFile, rule: Rule) -> None:
    """The checker sees one rule under all names, and in all orders of its conditions, which are drawn."""
    seen = {canonical(_otherwise(rule, Random(number))).rule.text for number in range(OTHERS)}
    assert seen == {canonical(rule).rule.text}


@pytest.mark.representatives(1)
@pytest.mark.parametrize(("file", "rule"), WRONG)
def test_wrong_rule_is_refuted_under_another_name(file: RuleFile, rule: Rule) -> None:
    verdict = check_rule(_otherwise(rule, Random(rule.name)), scratch_for(file))
    assert verdict.kind == "refuted", verdict


def _renamed(rule: Rule) -> Rule:
    text = rule.text.replace(f'"{rule.name}"', '"another"').replace("(Sqrt b)", "(Sqrt other)")
    text = text.replace(" b ", " other ")
    return replace(rule, name="another", text=text)


def test_names_are_no_part_of_a_rule() -> None:
    rule = next(rule for rule in REFUTED.rules if rule.name == "the-square-of-a-root")
    assert canonical(rule).rule.text == canonical(_renamed(rule)).rule.text


def test_a_counterexample_has_the_names_of_the_author() -> None:
    rule = next(rule for rule in REFUTED.rules if rule.name == "the-square-of-a-root")
    example = check_rule(rule, scratch_for(REFUTED)).counterexample
    assert example is not None
    assert set(example.elements) == {"b"}
