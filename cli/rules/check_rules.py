"""``eqfuse rules check``: lint, proof and numeric tests of rule files."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import RuleError
from ...rules.lint import Problem, lint_files
from ...rules.places import analysis_files, rule_paths, shipped_files
from ...rules.records import PROPERTIES, Rule, RuleFile, read_file
from ...support.countdown import Countdown
from ...tools.checking.acceptance import shown
from ...tools.checking.check import authored, check_files
from ...tools.checking.overlap import Overlap, distinct, overlaps
from ...tools.checking.verdict import KINDS, Verdict
from ...tools.checking.worth import remark
from .. import render
from ..options import check_rule_folders
from ..progress import Progress
from ..terminal import write

_LISTED = 60
"""Up to so many rules each gets a line of its own."""
_SHOWN = 200
"""Characters of each tensor of a counterexample."""
_SHORT = 40
"""Characters of what samples did not cover; all of it with --verbose."""


@dataclass(frozen=True)
class _Checked:
    """Rules with their verdicts, in order, and what overlaps."""

    rules: Sequence[Rule]
    verdicts: Sequence[Verdict]
    overlaps: Sequence[Overlap]

    @property
    def wrong(self) -> list[tuple[Rule, Verdict]]:
        return [(r, v) for r, v in zip(self.rules, self.verdicts, strict=True) if not v.accepted]


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
    checked = _checked(arguments, files)
    duplicates = _duplicates(checked.overlaps)
    if duplicates:
        return _report_problems(arguments, duplicates)
    if arguments.json:
        render.print_json(_as_json(checked))
    elif not arguments.quiet:
        _print(arguments, checked)
    for rule, verdict in checked.wrong if not arguments.json else ():
        write(_wrong(rule, verdict), error=True)
    if checked.wrong:
        raise RuleError(f"{len(checked.wrong)} of {len(checked.rules)} rules may not be used")
    return 0


def _report_problems(arguments: argparse.Namespace, problems: Sequence[Problem]) -> int:
    if arguments.json:
        render.print_json([{**vars(problem), "path": str(problem.path)} for problem in problems])
        return RuleError.exit_code
    for problem in problems:
        write(problem, error=True)
    raise RuleError(f"{_count(len(problems), 'problem')} in {_count(len({p.path for p in problems}), 'file')}")


def _checked(arguments: argparse.Namespace, files: Sequence[RuleFile]) -> _Checked:
    rules = [rule for _, rule in authored(files)]
    verdicts = []
    with Progress(arguments, "checking") as progress:
        countdown = Countdown(len(rules), "rules")
        for verdict in check_files(files, judge=remark, kept=not arguments.fresh, samples=arguments.samples):
            verdicts.append(verdict)
            progress("checking", countdown.advance())
        progress("looking for overlaps")
        others = [r for r in (rule for _, rule in authored(shipped_files())) if r.path not in {f.path for f in files}]
        mine = {rule.name for rule in rules}
        found = [o for o in overlaps([*others, *rules]) if o.rule.name in mine]
    return _Checked(rules, verdicts, found)


def _duplicates(found: Sequence[Overlap]) -> list[Problem]:
    return [
        Problem(
            o.rule.path,
            o.rule.line,
            o.rule.column,
            f"the rule says the same as {o.other.name} ({o.other.path.name}:{o.other.line})",
            o.rule.name,
        )
        for o in found
        if o.same and o.conditions
    ]


# --- for people


def _print(arguments: argparse.Namespace, checked: _Checked) -> None:
    if len(checked.rules) <= _LISTED or arguments.verbose:
        rows = [_row(r, v, arguments.verbose) for r, v in zip(checked.rules, checked.verdicts, strict=True)]
        columns = ("topic", "rule", "verdict", "where", "samples", "remark", "not covered")
        render.table("verdicts", columns, rows, left=7)
    heads = ("property", "rules", "distinct", *KINDS)
    render.table(_count(len(checked.rules), "rule"), heads, _by_property(checked), left=1)


def _row(rule: Rule, verdict: Verdict, whole: bool) -> tuple[str, ...]:
    where = verdict.condition or verdict.scope
    remark = verdict.remark or verdict.reason
    uncovered = "; ".join(verdict.uncovered)
    if not whole and len(uncovered) > _SHORT:
        uncovered = f"{uncovered[:_SHORT]}..."
    return rule.topic, rule.name, verdict.kind, where, str(verdict.samples), remark, uncovered


def _by_property(checked: _Checked) -> list[tuple[str, ...]]:
    rows = []
    pairs = list(zip(checked.rules, checked.verdicts, strict=True))
    for name in (*PROPERTIES, "all"):
        chosen = [(r, v) for r, v in pairs if name == "all" or name in r.properties]
        if chosen:
            kinds = Counter(v.kind for _, v in chosen)
            counts = (len(chosen), distinct(r for r, _ in chosen), *(kinds[k] for k in KINDS))
            rows.append((name, *map(str, counts)))
    return rows


def _wrong(rule: Rule, verdict: Verdict) -> str:
    head = f"{rule.path}:{rule.line}:{rule.column}: {rule.name} is {verdict.kind}: {verdict.reason}"
    found = verdict.counterexample
    if found is None:
        return head
    lines = [head, f"    for {found.sample}"]
    if found.where or found.left:
        lines.append(f"    at {found.where or '[]'}: left {found.left}, right {found.right}")
    lines += [f"    {name} = {shown(array, _SHOWN)}" for name, array in found.elements.items()]
    return "\n".join(lines)


# --- for programs


def _as_json(checked: _Checked) -> dict[str, Any]:
    return {
        "rules": [_rule_json(r, v) for r, v in zip(checked.rules, checked.verdicts, strict=True)],
        "properties": {
            row[0]: dict(zip(("rules", "distinct", *KINDS), map(int, row[1:]), strict=True))
            for row in _by_property(checked)
        },
        "overlaps": [{"rule": o.rule.name, "other": o.other.name, "same_result": o.same} for o in checked.overlaps],
    }


def _rule_json(rule: Rule, verdict: Verdict) -> dict[str, Any]:
    found = verdict.counterexample
    shown = None
    if found is not None:
        shown = {
            "term": found.sample,
            "elements": {name: getattr(a, "tolist", lambda a=a: a)() for name, a in found.elements.items()},
            "position": found.where,
            "left": found.left,
            "right": found.right,
        }
    return {
        "name": rule.name,
        "file": f"{rule.path}:{rule.line}:{rule.column}",
        "properties": rule.properties,
        "sound": rule.sound,
        "verdict": verdict.kind,
        "scope": verdict.scope,
        "condition": verdict.condition,
        "samples": verdict.samples,
        "fires_on_example": verdict.example,
        "reason": verdict.reason,
        "remark": verdict.remark,
        "uncovered": verdict.uncovered,
        "counterexample": shown,
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
