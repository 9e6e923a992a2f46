"""The times of rules in egglog's reports."""

from __future__ import annotations

import pytest

from eqfuse.engine.egraph.rule_times import rule_seconds
from eqfuse.rules.egglog_bindings import execute, load

REPORT = (
    'RunReport { iterations: [], updated: true, search_and_apply_time_per_rule: {"a": 1.5ms, "b~1": 35.115µs, '
    '"c<=": 885ns, "d": 2s}, num_matches_per_rule: {"a": 3}, merge_time_per_ruleset: {"e": 4.5s} }'
)


def test_every_unit() -> None:
    assert rule_seconds(REPORT) == pytest.approx({"a": 1.5e-3, "b~1": 35.115e-6, "c<=": 885e-9, "d": 2.0})


def test_a_report_of_egglog_has_a_time_for_every_rule() -> None:
    egraph = load().EGraph()
    program = '(datatype T (A i64) (B T))\n(ruleset r)\n(rewrite (A x) (B (A x)) :ruleset r :name "wrap")\n(A 1)'
    execute(egraph, program)
    times = rule_seconds(execute(egraph, "(run-schedule r)")[0].report)
    assert list(times) == ["wrap"]
    assert 0 < times["wrap"] < 1
