"""``eqfuse rules check``: lint, proof and numeric tests of rule files."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...driver.usage import check_rule_folders
from ...rules.lint import Problem, lint_files
from ...rules.places import analysis_files, rule_paths, shipped_files
from ...rules.records import PROPERTIES, Rule, RuleFile, read_file
from ...support import units
from ...support.countdown import Countdown
from ...support.errors import RuleError
from ...tools.checking.acceptance import elements_text
from ...tools.checking.check import check_files, rules_as_written
from ...tools.checking.overlap import Overlap, count_distinct, overlaps
from ...tools.checking.verdict import KINDS, Verdict
from ...tools.checking.worth import remark_on_worth
from .. import render
from ..progress import Progress
from ..terminal import write

_LISTED = 60
"""With more rules than this the table of verdicts is shown with --verbose only."""
_SHOWN = 200
"""Characters of each tensor of a counterexample."""
_SHORT = 40
"""Characters of the list of cases that samples did not cover; --verbose shows all of it."""


@dataclass(frozen=True)
class _CheckedRules:
    """Rules with their verdicts, in order, and the overlaps between rules."""

    rules: Sequence[Rule]
    verdicts: Sequence[Verdict]
    overlaps: Sequence[Overlap]

    @property
    def pairs(self) -> list[tuple[Rule, Verdict]]:
        return list(zip(self.rules, self.verdicts, strict=True))


def check_rules(arguments: argparse.Namespace) -> int:
    """Check files or folders, or the shipped catalogue; exit code 4 where something is wrong."""
    check_rule_folders(arguments.paths)
    shipped = [f.path for f in (*analysis_files(), *shipped_files())]
    paths = rule_paths(arguments.paths) or shipped
    with Progress(arguments, "lint"):
        problems = lint_files(paths)
    if problems:
        return _report_problems(arguments, problems)
    files = [read_file(path) for path in paths]
    checked = _check_files(arguments, files)
    duplicates = [
        Problem(
            rule.path, rule.line, rule.column,
            f"the rule says the same as {other.name} ({other.path.name}:{other.line})", rule.name,
        )
        for rule, other in ((o.rule, o.other) for o in checked.overlaps if o.same and o.conditions)
    ]  # fmt: skip
    if duplicates:
        return _report_problems(arguments, duplicates)
    refused = [(rule, verdict) for rule, verdict in checked.pairs if not verdict.accepted]
    if arguments.json:
        render.print_json(_as_dict(checked))
    else:
        if not arguments.quiet:
            _print(arguments, checked)
        for rule, verdict in refused:
            write(_refusal(rule, verdict), error=True)
    if refused:
        raise RuleError(f"{len(refused)} of {len(checked.rules)} rules may not be used")
    return 0


def _report_problems(arguments: argparse.Namespace, problems: Sequence[Problem]) -> int:
    if arguments.json:
        render.print_json([{**vars(problem), "path": str(problem.path)} for problem in problems])
        return RuleError.exit_code
    for problem in problems:
        write(problem, error=True)
    files = units.count_text(len({problem.path for problem in problems}), "file")
    raise RuleError(f"{units.count_text(len(problems), 'problem')} in {files}")


def _check_files(arguments: argparse.Namespace, files: Sequence[RuleFile]) -> _CheckedRules:
    rules = [rule for _, rule in rules_as_written(files)]
    verdicts = []
    with Progress(arguments, "checking") as progress:
        countdown = Countdown(len(rules), "rules")
        verdicts_of_files = check_files(
            files, judge=remark_on_worth, use_cache=not arguments.fresh, samples=arguments.samples
        )
        for verdict in verdicts_of_files:
            verdicts.append(verdict)
            progress("checking", countdown.advance())
        progress("looking for overlaps")
        paths = {file.path for file in files}
        others = [rule for _, rule in rules_as_written(shipped_files()) if rule.path not in paths]
        mine = {rule.name for rule in rules}
        return _CheckedRules(rules, verdicts, [o for o in overlaps([*others, *rules]) if o.rule.name in mine])


# --- for people


def _print(arguments: argparse.Namespace, checked: _CheckedRules) -> None:
    if len(checked.rules) <= _LISTED or arguments.verbose:
        rows = [_row(rule, verdict, arguments.verbose) for rule, verdict in checked.pairs]
        columns = ("topic", "rule", "verdict", "where", "samples", "settings", "remark", "not covered")
        render.table("verdicts", columns, rows, left=8)
    heads = ("property", "rules", "distinct", *KINDS)
    render.table(units.count_text(len(checked.rules), "rule"), heads, _by_property(checked), left=1)


def _row(rule: Rule, verdict: Verdict, whole: bool) -> tuple[str, ...]:
    where = verdict.condition or verdict.scope
    remark = verdict.remark or verdict.reason
    uncovered = "; ".join(verdict.uncovered)
    if not whole and len(uncovered) > _SHORT:
        uncovered = f"{uncovered[:_SHORT]}..."
    counts = str(verdict.samples), str(verdict.settings)
    return rule.topic, rule.name, verdict.kind, where, *counts, remark, uncovered


def _by_property(checked: _CheckedRules) -> list[tuple[str, ...]]:
    rows = []
    for name in (*PROPERTIES, "all"):
        chosen = [(r, v) for r, v in checked.pairs if name == "all" or name in r.properties]
        if chosen:
            kinds = Counter(v.kind for _, v in chosen)
            counts = (len(chosen), count_distinct(r for r, _ in chosen), *(kinds[k] for k in KINDS))
            rows.append((name, *map(str, counts)))
    return rows


def _refusal(rule: Rule, verdict: Verdict) -> str:
    head = f"{rule.place}: {rule.name} is {verdict.kind}: {verdict.reason}"
    example = verdict.counterexample
    if example is None:
        return head
    lines = [head, f"    for {example.sample}"]
    lines += [f"    it makes {example.made}"] if example.made else []
    if example.left:
        lines.append(f"    at {example.where}: left {example.left}, right {example.right}")
    lines += [f"    {name} = {elements_text(array, _SHOWN)}" for name, array in example.elements.items()]
    return "\n".join(lines)


# --- for programs


def _as_dict(checked: _CheckedRules) -> dict[str, Any]:
    return {
        "rules": [_rule_as_dict(rule, verdict) for rule, verdict in checked.pairs],
        "properties": {
            row[0]: dict(zip(("rules", "distinct", *KINDS), map(int, row[1:]), strict=True))
            for row in _by_property(checked)
        },
        "overlaps": [{"rule": o.rule.name, "other": o.other.name, "same_result": o.same} for o in checked.overlaps],
    }


def _rule_as_dict(rule: Rule, verdict: Verdict) -> dict[str, Any]:
    example = verdict.counterexample
    counterexample = None
    if example is not None:
        counterexample = {
            "term": example.sample,
            "made": example.made,
            "elements": {name: getattr(a, "tolist", lambda a=a: a)() for name, a in example.elements.items()},
            "position": example.where,
            "left": example.left,
            "right": example.right,
        }
    return {
        "name": rule.name,
        "file": rule.place,
        "properties": rule.properties,
        "sound": rule.sound,
        "verdict": verdict.kind,
        "scope": verdict.scope,
        "condition": verdict.condition,
        "samples": verdict.samples,
        "settings": verdict.settings,
        "fires_on_example": verdict.example,
        "reason": verdict.reason,
        "remark": verdict.remark,
        "uncovered": verdict.uncovered,
        "counterexample": counterexample,
    }
