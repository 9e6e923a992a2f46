"""``eqfuse rules discover``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...rules.loader import load_rules
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
    options = _options(arguments)
    with Progress(arguments) as progress:
        found = discover(options, lambda detail: progress("discover", detail))
    text = rule_file(options, found)
    if output is not None and found.rules:
        write_text(output, text)
    if arguments.json:
        render.print_json(_as_json(options, found, output))
    elif output is None:
        write(text, end="")
    if not arguments.quiet and not arguments.json:
        write(_summary(found, output, time.monotonic() - started), error=True)
    return 0


def _options(arguments: argparse.Namespace) -> Options:
    names = dict.fromkeys(name.strip() for name in arguments.ops.split(",") if name.strip())
    return Options(tuple(names), arguments.size, load_rules() if arguments.catalogue else None)


def _summary(found: Discovery, output: Path | None, seconds: float) -> str:
    comments = sum(bool(one.left_out) for one in found.rules)
    rules = f"{len(found.rules)} rule{'' if len(found.rules) == 1 else 's'}"
    parts = [rules if output is None else f"{rules} in {output}" if found.rules else "no rules; nothing was written"]
    parts += [f"{comments} of them as comments"] if comments else []
    parts += [f"{found.pairs} equal pairs of {found.terms} terms", f"{found.derived} follow from rules"]
    parts += [f"{found.refuted} are refuted"] if found.refuted else []
    parts += [f"commutative: {', '.join(found.commuting)}"] if found.commuting else []
    return f"{', '.join(parts)}; {render.seconds(seconds)}"


def _as_json(options: Options, found: Discovery, output: Path | None) -> dict[str, Any]:
    return {
        "operators": options.operators,
        "size": options.size,
        "catalogue": options.known is not None,
        "output": output if found.rules else None,
        "terms": found.terms,
        "pairs": found.pairs,
        "derived": found.derived,
        "refuted": found.refuted,
        "commuting": found.commuting,
        "rules": [_rule_as_dict(one) for one in found.rules],
    }


def _rule_as_dict(one: Discovered) -> dict[str, Any]:
    return {
        "name": one.rule.name,
        "formula": one.rule.formula,
        "properties": one.rule.properties,
        "sound": one.rule.sound,
        "requires": one.rule.requires,
        "verdict": one.verdict.kind,
        "scope": one.verdict.scope,
        "samples": one.verdict.samples,
        "left_out": one.left_out or None,
        "text": one.rule.text,
    }
