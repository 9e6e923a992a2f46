"""TASO's substitutions are true, and rewriting by them alone does what they say."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import eqfuse
from eqfuse.benchmarks.table5.network import Network
from eqfuse.rules.records import Rule, RuleFile, read_file
from eqfuse.tools.checking.check import check_rule, rules_as_written, scratch_for

FILE = Path(eqfuse.__file__).parent / "benchmarks/table5/taso.egg"
RULES = rules_as_written([read_file(FILE)])
REPRESENTATIVES = ("taso-factor-mul", "taso-merge-matmuls")


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("file", "rule"),
    [
        pytest.param(file, rule, id=rule.name, marks=[] if rule.name in REPRESENTATIVES else pytest.mark.conformance)
        for file, rule in RULES
    ],
)
def test_rule_is_true_and_fires_on_its_example(file: RuleFile, rule: Rule) -> None:
    verdict = check_rule(rule, scratch_for(file))
    assert verdict.accepted, verdict
    assert verdict.example


def model_with_common_factor() -> onnx.ModelProto:
    """-(-x) z + y z: a common factor, and a pair of Neg of which TASO knows nothing."""
    net = Network("sum")
    x, y, z = (net.input(name, (64, 64)) for name in "xyz")
    twice = net.add("Neg", net.add("Neg", x))
    return net.model({net.add("Add", net.add("Mul", twice, z), net.add("Mul", y, z)): (64, 64)})


def operators(model: onnx.ModelProto) -> list[str]:
    return sorted(node.op_type for node in model.graph.node)


def test_rewriting_by_its_rules_alone_leaves_what_it_has_no_rule_for() -> None:
    result = eqfuse.optimize(model_with_common_factor(), rules=FILE, only="taso", trust_rules=True)
    assert operators(result) == ["Add", "Mul", "Neg", "Neg"]


def test_the_shipped_rules_do_both() -> None:
    assert operators(eqfuse.optimize(model_with_common_factor())) == ["Add", "Mul"]
