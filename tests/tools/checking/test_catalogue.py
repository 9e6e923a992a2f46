"""Every shipped rule: it fires on samples of its left side and on its example, and is true on all of them."""

from __future__ import annotations

import numpy as np
import pytest

from eqfuse.rules.places import shipped_files
from eqfuse.rules.records import Rule, RuleFile
from eqfuse.tools.checking.check import check_rule, rules_as_written, scratch_for
from eqfuse.tools.checking.oracles.extremes import NEARLY_ALL, find_lost_number
from eqfuse.tools.checking.oracles.numeric import Counterexample
from eqfuse.tools.checking.overlap import count_distinct, overlaps
from eqfuse.tools.checking.sampling.hits import example_hits, hits, seed

CATALOGUE = rules_as_written(shipped_files())
_BY_LENGTH = sorted((rule for _, rule in CATALOGUE), key=lambda rule: -len(rule.text))
REPRESENTATIVES = {
    *[*{rule.topic: rule.name for rule in _BY_LENGTH}.values()][::7],
    *{rule.sound: rule.name for rule in _BY_LENGTH}.values(),
    "exp-log",
    "common-square-root",
}
"""The shortest rule of every seventh file and of each soundness, one that is proved under a condition, one that is
tested."""


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


def lost_numbers(file: RuleFile, rule: Rule) -> list[Counterexample]:
    random = np.random.default_rng(seed(rule))
    scratch = scratch_for(file)
    tried = (find_lost_number(each, random, NEARLY_ALL) for each in (*hits(rule, scratch), example_hits(rule, scratch)))
    return [counterexample for counterexample in tried if counterexample is not None]


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("file", "rule"), [pytest.param(file, rule, id=rule.name) for file, rule in CATALOGUE if rule.sound == "real"]
)
def test_real_rule_keeps_numbers_of_nearly_all_magnitudes(file: RuleFile, rule: Rule) -> None:
    assert lost_numbers(file, rule) == []


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    "name", ["sum-of-two-logarithms", "quotient-over-divisor", "common-sum", "product-of-square-roots"]
)
def test_approximate_rule_loses_numbers(name: str) -> None:
    file, rule = next((file, rule) for file, rule in CATALOGUE if rule.name == name)
    assert rule.sound == "approx"
    assert lost_numbers(file, rule)


@pytest.mark.parametrize(("name", "least"), [("associative", 45), ("distributive", 38), ("commutative", 66)])
def test_catalogue_is_as_large_as_the_papers(name: str, least: int) -> None:
    """DNNFusion, section 4.2; rules that only write out the cases of one rewrite count once."""
    assert count_distinct(rule for _, rule in CATALOGUE if name in rule.properties) >= least


def test_no_rule_is_written_twice() -> None:
    """Equal left sides, right sides and conditions, up to names and the order of operands."""
    pairs = overlaps(rule for _, rule in CATALOGUE)
    assert [(o.rule.name, o.other.name) for o in pairs if o.same and o.conditions] == []
