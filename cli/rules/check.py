"""``eqfuse rules check``: lint, proof and numeric tests of rule files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ...driver.rules import check as rule_check
from ...driver.rules.check import COUNTED, CheckedRule, CheckedRules, Problem, find_problems, paths_to_check
from ...driver.usage import check_rule_folders
from ...support import units
from ...support.errors import RuleError
from .. import render
from ..progress import Progress
from ..terminal import write, write_error

_LISTED = 60
"""With more rules than this the table of verdicts is shown with --verbose only."""
_SHORT = 40
"""Characters of the list of cases that samples did not cover; --verbose shows all of it."""


def check_rules(arguments: argparse.Namespace) -> int:
    """Check files or folders, or the shipped catalogue; exit code 4 if something is wrong."""
    check_rule_folders(arguments.paths)
    paths = paths_to_check(arguments.paths)
    with Progress(arguments, "lint"):
        problems = find_problems(paths)
    if problems:
        return _report_problems(arguments, problems)
    with Progress(arguments, "checking") as progress:
        checked = rule_check.check_rules(paths, progress, use_cache=not arguments.fresh, samples=arguments.samples)
    if arguments.json:
        render.print_json(checked.as_dict())
    else:
        if not arguments.quiet:
            _print(arguments, checked)
        for duplicate in checked.duplicates:
            write(f"warning: {duplicate}", error=True)
        for each in checked.refused:
            write(each.refusal, error=True)
    if checked.refused:
        write_error(f"{len(checked.refused)} of {len(checked.rules)} rules may not be used")
        return RuleError.exit_code
    return 0


def _report_problems(arguments: argparse.Namespace, problems: Sequence[Problem]) -> int:
    if arguments.json:
        render.print_json({"problems": [vars(problem) for problem in problems]})
        return RuleError.exit_code
    for problem in problems:
        write(problem, error=True)
    files = units.count_text(len({problem.path for problem in problems}), "file")
    raise RuleError(f"{units.count_text(len(problems), 'problem')} in {files}")


def _print(arguments: argparse.Namespace, checked: CheckedRules) -> None:
    if len(checked.rules) <= _LISTED or arguments.verbose:
        rows = [_row(each, arguments.verbose) for each in checked.rules]
        columns = ("rule", "topic", "verdict", "where", "samples", "settings", "remark", "not covered")
        render.table("verdicts", columns, rows, left=8)
    counts = checked.by_property
    totals: list[tuple[str, ...]] = [(name, *map(str, each.values())) for name, each in counts.items()]
    render.table(units.count_text(len(checked.rules), "rule"), ("property", *COUNTED), totals, left=1)


def _row(checked: CheckedRule, whole: bool) -> tuple[str, ...]:
    rule, verdict = checked.rule, checked.verdict
    where = verdict.condition or verdict.scope
    remark = verdict.remark or verdict.reason
    uncovered = "; ".join(verdict.uncovered)
    if not whole and len(uncovered) > _SHORT:
        uncovered = f"{uncovered[:_SHORT]}..."
    counts = str(verdict.samples), str(verdict.settings)
    return rule.name, rule.topic, verdict.kind, where, *counts, remark, uncovered
