"""Every shipped rule: it fires on samples of its left side and on its example, and is true on all of them."""

from __future__ import annotations

import pytest

from eqfuse.rules.places import shipped_files
from eqfuse.rules.records import Rule, RuleFile
from eqfuse.tools.checking.check import check_rule, rules_as_written, scratch_for
from eqfuse.tools.checking.overlap import count_distinct, overlaps

CATALOGUE = rules_as_written(shipped_files())
REPRESENTATIVES = {
    *{(rule.topic, rule.sound): rule.name for _, rule in reversed(CATALOGUE)}.values(),
    "exp-log",
    "common-square-root",
}
"""The first rule of each file for each soundness, one that is proved under a condition, and one that is tested."""


@pytest.mark.parametrize(
    ("file", "rule"),
    [
        pytest.param(file, rule, id=rule.name, marks=[] if rule.name in REPRESENTATIVES else pytest.mark.conformance)
        for file, rule in CATALOGUE
    ],
)
def test_rule_is_true_and_fires_on_its_example(file: RuleFile, rule: Rule) -> None:
    """Proved or tested; `check_rule` calls a rule idle that does not fire on its example."""
    verdict = check_rule(rule, scratch_for(file))
    assert verdict.accepted, verdict
    assert verdict.example
    assert verdict.samples > 0


@pytest.mark.parametrize(("name", "least"), [("associative", 45), ("distributive", 38), ("commutative", 66)])
def test_catalogue_is_as_large_as_the_papers(name: str, least: int) -> None:
    """DNNFusion, section 4.2; rules that only write out the cases of one rewrite count once."""
    assert count_distinct(rule for _, rule in CATALOGUE if name in rule.properties) >= least


def test_no_rule_is_written_twice() -> None:
    """Equal left sides, right sides and conditions, up to names and the order of operands."""
    pairs = overlaps(rule for _, rule in CATALOGUE)
    assert [(o.rule.name, o.other.name) for o in pairs if o.same and o.conditions] == []
