"""Rules of XLA's algebraic simplifier: each is accepted as it stands, and refuted without one of its preconditions.

The folder `xla` states what TensorRight (Arora et al., POPL 2025) proves of XLA, for the operators of ONNX.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from eqfuse.rules import sexpr
from eqfuse.rules.places import rule_paths
from eqfuse.rules.records import Rule, RuleFile, conditions, read_file
from eqfuse.rules.sexpr import Form
from eqfuse.tools.checking.check import check_rule, rules_as_written, scratch_for

FOLDER = Path(__file__).with_name("xla")
CATALOGUE = rules_as_written(map(read_file, rule_paths((FOLDER,))))
PRECONDITIONS = tomllib.loads((FOLDER / "preconditions.toml").read_text(encoding="utf-8"))
REPLACED: dict[str, tuple[str, str]] = {
    **{name: (fact, "") for name, fact in PRECONDITIONS["dropped"].items()},
    **{name: (fact, other) for name, (fact, other) in PRECONDITIONS["weakened"].items()},
}
"""By rule: the fact that makes it true, and what it asks instead in the careless form; "" for nothing."""
QUICK = {"xla-max-of-min", "xla-slice-within-second-part", "xla-quotient-by-two"}
"""Careless rules that numbers refute at once; a conflict of shapes takes the e-graph seconds."""


def careless(rule: Rule, fact: str, other: str) -> Rule:
    """The rule without a fact, or with another in its place."""
    form = sexpr.read(rule.text).forms[0]
    asked = conditions(form)
    place = [str(condition) for condition in asked].index(fact)
    facts = Form((*asked[:place], *sexpr.read(other).forms, *asked[place + 1 :]))
    items = (facts if isinstance(item, Form) and item.items is asked else item for item in form.items)
    return replace(rule, text=str(Form(tuple(items))))


@pytest.mark.representatives(1)
@pytest.mark.parametrize(("file", "rule"), [pytest.param(f, r, id=r.name) for f, r in CATALOGUE])
def test_rule_is_accepted(file: RuleFile, rule: Rule) -> None:
    """True on every sample, and it fires on its example."""
    verdict = check_rule(rule, scratch_for(file))
    assert verdict.accepted, verdict
    assert verdict.example


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("file", "rule"),
    [
        pytest.param(f, r, id=r.name, marks=[] if r.name in QUICK else [pytest.mark.conformance])
        for f, r in CATALOGUE
        if r.name in REPLACED
    ],
)
def test_rule_without_its_precondition_is_refuted(file: RuleFile, rule: Rule) -> None:
    """By numbers, or by a conflict of shapes or types that the e-graph reports."""
    assert check_rule(careless(rule, *REPLACED[rule.name]), scratch_for(file)).kind == "refuted"


def test_every_rule_is_in_the_table_of_preconditions_once() -> None:
    """Either it would be wrong without one, or it is listed as unconditional."""
    listed = sorted((*PRECONDITIONS["unconditional"], *PRECONDITIONS["dropped"], *PRECONDITIONS["weakened"]))
    assert listed == sorted(rule.name for _, rule in CATALOGUE)


def test_catalogue_is_as_large_as_tensorright_s() -> None:
    """TensorRight proves 115 rules for every rank and size."""
    assert len(CATALOGUE) >= 115
