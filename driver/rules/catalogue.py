"""The rules to look at: those of the catalogue and of users' files, and an example of each as ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ...ir.operators import DOMAINS
from ...rules.loader import Rule, load_rules
from ...support.errors import UsageError

_FIELDS = ("name", "topic", "ruleset", "formula", "properties", "sound", "requires", "source", "example")


def list_rules(paths: Sequence[Path], only: Sequence[str]) -> list[Rule]:
    """The shipped rules and those of files, or the rules of some groups, without mirrored variants and derivations."""
    loaded = load_rules(paths, precision="fast", only=only, domains=DOMAINS).rules
    return [rule for rule in loaded if rule.name == rule.base and not rule.derives]


def find_rule(name: str, paths: Sequence[Path]) -> Rule:
    """The shipped rule or the one of some files that has this name. Raises UsageError if there is none."""
    rules = load_rules(paths, precision="fast", domains=DOMAINS).by_name
    if name not in rules:
        near = get_close_matches(name, list(rules), 1)
        hint = f"; did you mean {near[0]}?" if near else "; `eqfuse rules list` names them all"
        raise UsageError(f"no rule is called {name!r}{hint}")
    return rules[name]


def record_of(rule: Rule) -> dict[str, Any]:
    """The record and the text of a rule, as plain data for JSON."""
    return {**{name: getattr(rule, name) for name in _FIELDS}, "file": rule.place, "text": rule.text}


def example_as_onnx(rule: Rule, paths: Sequence[Path]) -> tuple[str, str] | None:
    """A sample on which the rule fires, before and after; None if no sample of its example makes it fire."""
    from ...tools.checking.check import rules_as_written, scratch_for
    from ...tools.checking.rule_example import before_and_after  # the list needs no checker
    from ...tools.checking.sampling.hits import example_hits

    files = load_rules(paths, precision="fast", domains=DOMAINS).files
    for file, candidate in rules_as_written(files):
        if candidate.base == rule.base:
            hits = sorted(example_hits(candidate, scratch_for(file)), key=lambda hit: hit.sample.is_empty)
            sides = (before_and_after(hit) for hit in hits)
            return next((pair for pair in sides if pair is not None), None)
    return None
