"""Counts the verdicts of the conformance cases at the end of the run."""

from __future__ import annotations

from collections import Counter

import pytest

VERDICTS = (
    "passed in ONNX Runtime",
    "passed in the evaluator of onnx",
    "wrong",
    "crashed",
    "not comparable",
    "not runnable",
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (report for group in terminalreporter.stats.values() for report in group)
    calls = (report for report in reports if getattr(report, "when", "") == "call")
    verdicts = Counter(value for report in calls for name, value in report.user_properties if name == "verdict")
    if verdicts:
        terminalreporter.section("ONNX backend node tests")
        for verdict in VERDICTS:
            terminalreporter.write_line(f"{verdicts[verdict]:6} {verdict}")
