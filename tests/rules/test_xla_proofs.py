"""Rules of XLA's algebraic simplifier, proved for tensors of every rank and size."""

from __future__ import annotations

import pytest

from eqfuse.rules.records import Rule
from eqfuse.tools.checking.unbounded.rule_proof import prove_rule

from .test_xla_catalogue import CATALOGUE, REPLACED, careless

TRUE_OF_REALS = frozenset(
    {
        "xla-unequal-to-self",
        "xla-not-below-self",
        "xla-not-above-self",
        "xla-equal-to-self",
        "xla-not-of-less",
        "xla-not-of-greater",
    }
)
"""Rules that without their precondition are wrong of NaN only. Proofs are about real numbers: samples refute these."""


@pytest.mark.conformance
def test_as_many_are_proved_as_by_tensorright() -> None:
    """TensorRight (Arora et al., POPL 2025) proves 115."""
    proved = [rule.name for _, rule in CATALOGUE if prove_rule(rule).proved]
    assert len(proved) >= 115, sorted({rule.name for _, rule in CATALOGUE} - set(proved))


@pytest.mark.representatives(3)
@pytest.mark.parametrize("rule", [pytest.param(r, id=r.name) for _, r in CATALOGUE if r.name in REPLACED])
def test_rule_without_its_precondition_is_not_proved(rule: Rule) -> None:
    """A proof must not need less than the rule does."""
    assert prove_rule(careless(rule, *REPLACED[rule.name])).proved == (rule.name in TRUE_OF_REALS)
