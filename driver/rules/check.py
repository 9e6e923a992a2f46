"""Checking rule files (lint, a proof or numeric tests of each rule, rules that say the same), and discovering rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...rules.lint import Problem, lint_files
from ...rules.loader import load_rules
from ...rules.places import analysis_files, rule_paths, shipped_files
from ...rules.records import PROPERTIES, Rule, read_file
from ...support.countdown import Countdown
from ...tools.checking.acceptance import elements_text
from ...tools.checking.check import check_files, rules_as_written
from ...tools.checking.overlap import Overlap, count_distinct, overlaps
from ...tools.checking.verdict import KINDS, Verdict
from ...tools.checking.worth import remark_on_worth
from ...tools.discovery.discover import Discovery, Options, discover, rule_file

__all__ = ["COUNTED", "CheckedRule", "CheckedRules", "Problem", "check_rules", "find_problems", "paths_to_check"]


COUNTED = ("rules", "distinct", *KINDS)
"""The columns of counts for each property of rules."""
_SHOWN = 200
"""Characters of each tensor of a counterexample that are shown."""


@dataclass(frozen=True)
class CheckedRule:
    """A rule and the verdict on it."""

    rule: Rule
    verdict: Verdict

    @property
    def refusal(self) -> str:
        """Why the rule may not be used, with the counterexample if there is one, in several lines."""
        head = f"{self.rule.place}: {self.rule.name} is {self.verdict.kind}: {self.verdict.reason}"
        example = self.verdict.counterexample
        if example is None:
            return head
        lines = [head, f"    for {example.sample}"]
        lines += [f"    it makes {example.made}"] if example.made else []
        if example.left:
            lines.append(f"    at {example.where}: left {example.left}, right {example.right}")
        lines += [f"    {name} = {elements_text(array, _SHOWN)}" for name, array in example.elements.items()]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rule, verdict, example = self.rule, self.verdict, self.verdict.counterexample
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


@dataclass(frozen=True)
class CheckedRules:
    """Rules with their verdicts, in order, and the overlaps between rules."""

    rules: tuple[CheckedRule, ...]
    overlaps: tuple[Overlap, ...]

    @property
    def refused(self) -> list[CheckedRule]:
        """The rules that may not be used."""
        return [each for each in self.rules if not each.verdict.accepted]

    @property
    def duplicates(self) -> list[Problem]:
        """Rules that say the same as another one, under conditions that it has too: they may be right, but are not
        needed."""
        return [
            Problem(
                rule.path, rule.line, rule.column,
                f"the rule says the same as {other.name} ({other.path.name}:{other.line}) and may be deleted",
                rule.name,
            )
            for rule, other in ((o.rule, o.other) for o in self.overlaps if o.same and o.conditions)
        ]  # fmt: skip

    @cached_property
    def by_property(self) -> dict[str, dict[str, int]]:
        """The numbers of rules, of distinct rules and of verdicts of each kind, by property and for all."""
        counts = {}
        for name in (*PROPERTIES, "all"):
            chosen = [each for each in self.rules if name == "all" or name in each.rule.properties]
            if chosen:
                kinds = Counter(each.verdict.kind for each in chosen)
                distinct = count_distinct(each.rule for each in chosen)
                figures = (len(chosen), distinct, *(kinds[kind] for kind in KINDS))
                counts[name] = dict(zip(COUNTED, figures, strict=True))
        return counts

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "rules": [each.as_dict() for each in self.rules],
            "properties": self.by_property,
            "overlaps": [{"rule": o.rule.name, "other": o.other.name, "same_result": o.same} for o in self.overlaps],
        }


def paths_to_check(given: Sequence[Path]) -> list[Path]:
    """The rule files that are given, in folders too; the shipped ones if none is."""
    return rule_paths(given) or [file.path for file in (*analysis_files(), *shipped_files())]


def find_problems(paths: Sequence[Path]) -> list[Problem]:
    """Everything that is wrong with the text of rule files; [] if they can be read and checked."""
    return lint_files(paths)


def check_rules(
    paths: Sequence[Path], observer: Callable[[str, str], None], *, use_cache: bool, samples: int
) -> CheckedRules:
    """The verdicts on the rules of files without problems, and their overlaps with each other and the shipped ones."""
    files = [read_file(path) for path in paths]
    rules = [rule for _, rule in rules_as_written(files)]
    others = [rule for _, rule in rules_as_written(shipped_files()) if rule.path not in set(paths)]
    mine = {rule.name for rule in rules}
    found = tuple(o for o in overlaps([*others, *rules]) if o.rule.name in mine)
    countdown = Countdown(len(rules), "rules")
    checked = []
    verdicts = check_files(files, judge=remark_on_worth, use_cache=use_cache, samples=samples)
    for rule, verdict in zip(rules, verdicts, strict=True):
        checked.append(CheckedRule(rule, verdict))
        observer("checking", countdown.advance())
    return CheckedRules(tuple(checked), found)


@dataclass(frozen=True)
class DiscoveredRules:
    """The request, and the rules that were found."""

    options: Options
    discovery: Discovery

    @cached_property
    def text(self) -> str:
        """The rules as a file."""
        return rule_file(self.options, self.discovery)

    def as_dict(self, output: Path | None) -> dict[str, Any]:
        """Plain data for JSON; `output` is the file that holds the rules."""
        fields = ("name", "formula", "properties", "sound", "requires")
        return {
            "operators": self.options.operators,
            "size": self.options.size,
            "catalogue": self.options.catalogue is not None,
            "output": output,
            **{name: getattr(self.discovery, name) for name in ("terms", "pairs", "derived", "refuted", "commuting")},
            "rules": [
                {
                    **{name: getattr(one.rule, name) for name in fields},
                    "verdict": one.verdict.kind,
                    "scope": one.verdict.scope,
                    "samples": one.verdict.samples,
                    "left_out": one.left_out or None,
                    "text": one.rule.text,
                }
                for one in self.discovery.rules
            ],
        }


def discover_rules(
    operators: Sequence[str], size: int, *, beside_catalogue: bool, observer: Callable[[str], None]
) -> DiscoveredRules:
    """Find rules over operators in terms of up to `size` operators; with `beside_catalogue`, only those that the
    shipped rules do not imply."""
    options = Options(tuple(operators), size, load_rules() if beside_catalogue else None)
    return DiscoveredRules(options, discover(options, observer))
