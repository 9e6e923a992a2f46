"""Rules under names that no verdict depends on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eqfuse.rules.records import Rule, read_file
from eqfuse.tools.checking.canonical import canonical
from eqfuse.tools.checking.check import check_rule, scratch_for

REFUTED = read_file(Path(__file__).parent / "rules" / "refuted.egg")


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
