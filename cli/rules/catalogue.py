"""``eqfuse rules list`` and ``show``."""

from __future__ import annotations

import argparse
from collections import Counter
from difflib import get_close_matches
from textwrap import indent
from typing import Any

from ...driver.usage import check_rule_folders
from ...ir.operators import DOMAINS
from ...rules.loader import Rule, load_rules
from ...support import units
from ...support.errors import UsageError
from .. import render
from ..terminal import write


def list_rules(arguments: argparse.Namespace) -> int:
    """All rules, or those that every filter lets through."""
    check_rule_folders(arguments.rules)
    only = (arguments.tag,) if arguments.tag else ()
    loaded = load_rules(arguments.rules, precision="fast", only=only, domains=DOMAINS).rules
    rules = [
        rule
        for rule in loaded
        if rule.name == rule.base
        and not rule.derives
        and (not arguments.property or arguments.property in rule.properties)
        and (not arguments.topic or rule.topic == arguments.topic)
        and (not arguments.sound or rule.sound == arguments.sound)
    ]
    if arguments.json:
        render.print_json([_record(rule) for rule in rules])
    elif not arguments.quiet:
        rows = [(r.topic, r.name, ", ".join(r.properties), r.sound, r.formula) for r in rules]
        columns = ("topic", "rule", "property", "sound", "formula")
        render.table(units.count_text(len(rules), "rule"), columns, list(rows), left=5)
        groups = {"topics": (r.topic for r in rules), "properties": (name for r in rules for name in r.properties)}
        for title, names in groups.items():
            write(f"{title}: {', '.join(f'{count} {name}' for name, count in Counter(names).most_common())}")
    return 0


_FIELDS = ("name", "topic", "ruleset", "formula", "properties", "sound", "requires", "source", "example")


def _record(rule: Rule) -> dict[str, Any]:
    return {**{name: getattr(rule, name) for name in _FIELDS}, "file": rule.place, "text": rule.text}


def show_rule(arguments: argparse.Namespace) -> int:
    """One rule with its record."""
    check_rule_folders(arguments.rules)
    rules = load_rules(arguments.rules, precision="fast", domains=DOMAINS).by_name
    if arguments.name not in rules:
        near = get_close_matches(arguments.name, list(rules), 1)
        hint = f"; did you mean {near[0]}?" if near else "; `eqfuse rules list` names them all"
        raise UsageError(f"no rule is called {arguments.name!r}{hint}")
    rule = rules[arguments.name]
    record = _record(rule)
    example = _example_as_onnx(arguments, rule)
    if arguments.json:
        render.print_json({**record, "onnx": dict(zip(("before", "after"), example, strict=True)) if example else None})
        return 0
    text = record.pop("text")
    for name, value in record.items():
        write(f"{name:11} {', '.join(value) if isinstance(value, tuple) else value}")
    write(f"\n{text}")
    for title, side in zip(("before", "after"), example or (), strict=False):
        write(f"\n{title}, as ONNX\n{indent(side, '  ')}")
    return 0


def _example_as_onnx(arguments: argparse.Namespace, rule: Rule) -> tuple[str, str] | None:
    """A sample on which the rule fires, before and after; None where no sample of its example makes it fire."""
    from ...tools.checking.check import rules_as_written, scratch_for
    from ...tools.checking.drawing.hits import example_hits
    from ...tools.checking.rule_example import before_and_after  # the list needs no checker

    files = load_rules(arguments.rules, precision="fast", domains=DOMAINS).files
    for file, candidate in rules_as_written(files):
        if candidate.base == rule.base:
            hits = sorted(example_hits(candidate, scratch_for(file)), key=lambda hit: hit.sample.is_empty)
            sides = (before_and_after(hit) for hit in hits)
            return next((pair for pair in sides if pair is not None), None)
    return None
