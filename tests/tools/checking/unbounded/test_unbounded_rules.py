"""Rules proved for tensors of every rank and size (proved.egg), and careless ones that are not (unproved.egg)."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqfuse.rules.records import Rule, RuleFile, read_file
from eqfuse.tools.checking.check import check_rule, scratch_for
from eqfuse.tools.checking.unbounded.rule_proof import EVERY_SHAPE, prove_rule

PROVED, UNPROVED = (read_file(Path(__file__).with_name(f"{name}.egg")) for name in ("proved", "unproved"))
SLOW = ("a-dimension-put-in-and-taken-out", "a-product-with-a-multiple-of-any-rank", "axes-that-are-not-the-same")
"""Rules about lists of axes of unknown length, or with two cases, which take seconds."""


def cases(file: RuleFile) -> list[object]:
    """The rules of a file; slow ones stay out of the fast run."""
    return [pytest.param(r, id=r.name, marks=[pytest.mark.conformance] if r.name in SLOW else []) for r in file.rules]


@pytest.mark.parametrize("rule", cases(PROVED))
def test_right_rule_is_proved(rule: Rule) -> None:
    """Whatever the ranks and sizes; z3 orders terms by age, so that earlier proofs of the process may hinder one."""
    proof = next((proof for _ in range(3) if (proof := prove_rule(rule)).proved), None)
    assert proof is not None, prove_rule(rule)


@pytest.mark.parametrize("rule", cases(UNPROVED))
def test_wrong_rule_is_not_proved(rule: Rule) -> None:
    """Each is wrong for some shapes, types or attributes only."""
    assert not prove_rule(rule).proved


def test_verdict_says_for_which_shapes_a_rule_is_proved() -> None:
    """The checker of rules asks for the widest scope."""
    rule = next(rule for rule in PROVED.rules if rule.name == "a-transposition-past-a-function")
    verdict = check_rule(rule, scratch_for(PROVED))
    assert (verdict.kind, verdict.scope) == ("proved", EVERY_SHAPE)
