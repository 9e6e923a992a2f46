"""Counts at the end of the run what became of the conformance cases, and of the mutants of the fuzzer."""

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
OUTCOMES = ("0", "1", "2", "3", "5", "finding")
"""Exit codes of the command line, and what should not be."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (report for group in terminalreporter.stats.values() for report in group)
    calls = [report for report in reports if getattr(report, "when", "") == "call"]
    properties = Counter(found for report in calls for found in report.user_properties)
    verdicts = {verdict: properties["verdict", verdict] for verdict in VERDICTS}
    if any(verdicts.values()):
        terminalreporter.section("ONNX backend node tests")
        for verdict, count in verdicts.items():
            terminalreporter.write_line(f"{count:6} {verdict}")
    mutants = Counter({value: count for (name, value), count in properties.items() if name == "mutant"})
    if mutants and "not conformance" not in terminalreporter.config.option.markexpr:
        _write_mutants(terminalreporter, mutants)


def _write_mutants(reporter: pytest.TerminalReporter, mutants: Counter[tuple[str, str]]) -> None:
    """A row for each kind of damage, a column for each exit code."""
    reporter.section("mutants by kind of damage and exit code")
    reporter.write_line("".join(f"{outcome:>9}" for outcome in OUTCOMES))
    for kind in sorted({kind for kind, _ in mutants}):
        reporter.write_line("".join(f"{mutants[kind, outcome]:9}" for outcome in OUTCOMES) + f"  {kind}")
    totals = [sum(n for (_, found), n in mutants.items() if found == outcome) for outcome in OUTCOMES]
    reporter.write_line("".join(f"{total:9}" for total in totals) + f"  of {mutants.total()}")
