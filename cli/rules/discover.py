"""``eqfuse rules discover``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ...rules.loader import load_rules
from ...support import units
from ...support.errors import UsageError
from ...support.files import check_destination, write_text
from ...tools.discovery.discover import Discovery, Options, discover, rule_file
from ...tools.discovery.write import Discovered
from .. import render
from ..progress import Progress
from ..terminal import write


def discover_rules(arguments: argparse.Namespace) -> int:
    """Find rules over some operators, and write them as a rule file."""
    output: Path | None = arguments.output
    if output is not None:
        check_destination(output)
    elif arguments.quiet and not arguments.json:
        raise UsageError("-q without --output or --json leaves nothing to show")
    started = time.monotonic()
    names = dict.fromkeys(name.strip() for name in arguments.ops.split(",") if name.strip())
    options = Options(tuple(names), arguments.size, load_rules() if arguments.catalogue else None)
    with Progress(arguments) as progress:
        discovery = discover(options, lambda detail: progress("discover", detail))
    text = rule_file(options, discovery)
    if output is not None and discovery.rules:
        write_text(output, text)
    if arguments.json:
        render.print_json(_as_dict(options, discovery, output))
    elif output is None:
        write(text, end="")
    if not arguments.quiet and not arguments.json:
        write(_summary(discovery, output, time.monotonic() - started), error=True)
    return 0


def _summary(discovery: Discovery, output: Path | None, seconds: float) -> str:
    comments = sum(bool(one.left_out) for one in discovery.rules)
    rules = units.count_text(len(discovery.rules), "rule")
    if output is not None:
        rules = f"{rules} in {output}" if discovery.rules else "no rules; nothing was written"
    parts = [rules]
    parts += [f"{comments} of them as comments"] if comments else []
    parts += [f"{discovery.pairs} equal pairs of {discovery.terms} terms", f"{discovery.derived} follow from rules"]
    parts += [f"{discovery.refuted} are refuted"] if discovery.refuted else []
    parts += [f"commutative: {', '.join(discovery.commuting)}"] if discovery.commuting else []
    return f"{', '.join(parts)}; {units.seconds(seconds)}"


def _as_dict(options: Options, discovery: Discovery, output: Path | None) -> dict[str, Any]:
    return {
        "operators": options.operators,
        "size": options.size,
        "catalogue": options.catalogue is not None,
        "output": output if discovery.rules else None,
        **{name: getattr(discovery, name) for name in ("terms", "pairs", "derived", "refuted", "commuting")},
        "rules": [_rule_as_dict(one) for one in discovery.rules],
    }


def _rule_as_dict(one: Discovered) -> dict[str, Any]:
    return {
        **{name: getattr(one.rule, name) for name in ("name", "formula", "properties", "sound", "requires")},
        "verdict": one.verdict.kind,
        "scope": one.verdict.scope,
        "samples": one.verdict.samples,
        "left_out": one.left_out or None,
        "text": one.rule.text,
    }
