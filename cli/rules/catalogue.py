"""``eqfuse rules list``, ``show`` and ``operators``."""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from dataclasses import asdict

from ...driver.options import RuleOptions
from ...driver.rules import catalogue as rule_catalogue
from ...driver.rules.catalogue import example_as_onnx, find_rule, record_of
from ...support import units
from ...support.errors import UsageError
from .. import render
from ..options import options_of
from ..terminal import write


def list_rules(arguments: argparse.Namespace) -> int:
    """All rules, or those that pass every filter."""
    paths = options_of(RuleOptions, arguments).rules
    tagged = rule_catalogue.list_rules(paths, (arguments.tag,) if arguments.tag else ())
    every = rule_catalogue.list_rules(paths, ()) if arguments.tag and arguments.topic else tagged
    if arguments.topic and arguments.topic not in {rule.topic for rule in every}:
        raise UsageError(f"--topic {arguments.topic}: no rule has it; `eqfuse rules list` ends with all topics")
    rules = [
        rule
        for rule in tagged
        if (not arguments.property or arguments.property in rule.properties)
        and (not arguments.topic or rule.topic == arguments.topic)
        and (not arguments.sound or rule.sound == arguments.sound)
    ]
    if arguments.json:
        render.print_json({"rules": [record_of(rule) for rule in rules]})
    elif not arguments.quiet:
        rows = [(r.name, r.topic, ", ".join(r.properties), r.sound, r.formula) for r in rules]
        columns = ("rule", "topic", "property", "sound", "formula")
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
        write(f"\n{title}, as ONNX\n{textwrap.indent(side, '  ')}")
    return 0


_WIDTH = 80
"""Columns of a list of types or facts, which continues below its beginning."""


def list_operators(arguments: argparse.Namespace) -> int:
    """The operators that rules can look into, or one of them with all that a rule can ask for."""
    from ...driver.rules.catalogue import describe_operator, term_of  # `rules list` needs no schemas of ONNX
    from ...driver.rules.catalogue import list_operators as list_rows

    if arguments.name is None:
        rows = list_rows()
        if arguments.json:
            terms = [{"name": row.name, "domain": row.domain, "term": term_of(row)} for row in rows]
            render.print_json({"operators": terms})
        elif not arguments.quiet:
            lines = ((row.category, term_of(row), row.domain) for row in rows)
            render.table(units.count_text(len(rows), "operator"), ("category", "term", "domain"), list(lines), left=3)
        return 0
    record = describe_operator(arguments.name)
    if arguments.json:
        render.print_json(asdict(record))
    elif not arguments.quiet:
        write(record.term)
        for operand in record.operands:
            absent = "a tensor, or (Absent)" if operand.optional else "a tensor"
            _write_entry(operand.name, f"{absent}{': ' if operand.types else ''}{', '.join(operand.types)}")
        for each in record.attributes:
            default = "without a default" if each.default is None else f"by default {each.default!r}"
            since = f"; an input from opset {each.input_since} on" if each.input_since else ""
            _write_entry(each.name, f"{each.sort}, {default}{since}")
        if record.sort == "N":
            outputs = "one or more results" if record.outputs == 1 else f"{record.outputs} results"
            _write_entry("results", f"{outputs}, each read as (Out {record.term} 0)")
        if record.is_chain:
            _write_entry("operands", "ONNX's node has any number of them: here it is a chain of terms with two")
        _write_entry("domain", record.domain or "ONNX's own")
        _write_entry("facts", "; ".join(("shape, dtype, const, value", *record.facts)))
        _write_entry("rules", f"{record.read_by} shipped ones read it, {record.made_by} make it")
    return 0


def _write_entry(name: str, text: str) -> None:
    """A name, and lines of text beside it."""
    first, others = f"  {name:12} ", " " * 15
    write(textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False))
