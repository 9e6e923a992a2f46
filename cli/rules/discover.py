"""``eqfuse rules discover``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ...driver.rules import check
from ...driver.rules.check import DiscoveredRules
from ...support import units
from ...support.errors import UsageError
from ...support.files import check_destination, write_text
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
    with Progress(arguments) as progress:
        found = check.discover_rules(
            tuple(names), arguments.size, beside_catalogue=arguments.catalogue,
            observer=lambda detail: progress("discover", detail),
        )  # fmt: skip
    if output is not None and found.discovery.rules:
        write_text(output, found.text)
    if arguments.json:
        render.print_json(found.as_dict(output if found.discovery.rules else None))
    elif output is None:
        write(found.text, end="")
    if not arguments.quiet and not arguments.json:
        write(_summary(found, output, time.monotonic() - started), error=True)
    return 0


def _summary(found: DiscoveredRules, output: Path | None, seconds: float) -> str:
    discovery = found.discovery
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
