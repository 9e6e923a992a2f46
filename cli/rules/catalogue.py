"""``eqfuse rules list`` and ``show``."""

from __future__ import annotations

import argparse
from collections import Counter
from textwrap import indent

from ...driver.options import RuleOptions
from ...driver.rules import catalogue as rule_catalogue
from ...driver.rules.catalogue import example_as_onnx, find_rule, record_of
from ...support import units
from .. import render
from ..options import options_of
from ..terminal import write


def list_rules(arguments: argparse.Namespace) -> int:
    """All rules, or those that pass every filter."""
    paths = options_of(RuleOptions, arguments).rules
    rules = [
        rule
        for rule in rule_catalogue.list_rules(paths, (arguments.tag,) if arguments.tag else ())
        if (not arguments.property or arguments.property in rule.properties)
        and (not arguments.topic or rule.topic == arguments.topic)
        and (not arguments.sound or rule.sound == arguments.sound)
    ]
    if arguments.json:
        render.print_json([record_of(rule) for rule in rules])
    elif not arguments.quiet:
        rows = [(r.topic, r.name, ", ".join(r.properties), r.sound, r.formula) for r in rules]
        columns = ("topic", "rule", "property", "sound", "formula")
        render.table(units.count_text(len(rules), "rule"), columns, list(rows), left=5)
        groups = {"topics": (r.topic for r in rules), "properties": (name for r in rules for name in r.properties)}
        for title, names in groups.items():
            write(f"{title}: {', '.join(f'{count} {name}' for name, count in Counter(names).most_common())}")
    return 0


def show_rule(arguments: argparse.Namespace) -> int:
    """One rule with its record."""
    paths = options_of(RuleOptions, arguments).rules
    rule = find_rule(arguments.name, paths)
    record = record_of(rule)
    example = example_as_onnx(rule, paths)
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
