"""``eqfuse optimize``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ..engine.messages import RuleSelection
from ..engine.worker import Worker
from ..errors import UsageError

BUDGET_HIT = 5


def optimize(arguments: argparse.Namespace) -> int:
    """Optimise, report, and say by the exit code whether a budget was hit."""
    output = _output(arguments)
    progress = _Progress(quiet=arguments.quiet or arguments.json)
    rules = RuleSelection(
        tuple(arguments.rules), arguments.precision, tuple(arguments.only), tuple(arguments.skip)
    )
    with Worker(rules) as worker:  # loads them while the imports below take their time
        from ..api import run
        from .options import options_of
        from .report import print_report

        try:
            options = options_of(arguments, verify=arguments.verify)
            result = run(arguments.model, output, options, progress, worker)
        finally:
            progress.end()
    print_report(arguments, result)
    return BUDGET_HIT if result.budget_hit else 0


def _output(arguments: argparse.Namespace) -> Path | None:
    if arguments.out is not None and arguments.output is not None:
        raise UsageError(f"two files to write: {arguments.out} and {arguments.output}; give one")
    chosen: Path | None = arguments.output or arguments.out
    return chosen


class _Progress:
    """One live line on a terminal; nothing elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self.live = sys.stderr.isatty() and not quiet
        self.started = time.monotonic()

    def __call__(self, phase: str, detail: str) -> None:
        if self.live:
            text = f"{phase}: {detail}" if detail else phase
            print(f"\r\x1b[K{time.monotonic() - self.started:5.1f} s  {text[:90]}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
