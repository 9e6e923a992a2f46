"""``eqfuse optimize``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..engine.messages import RuleSelection
from ..engine.worker import Worker
from ..errors import UsageError
from .progress import Progress

BUDGET_HIT = 5


def optimize(arguments: argparse.Namespace) -> int:
    """Optimise, report, and say by the exit code whether a budget was hit."""
    output = _output(arguments)
    rules = RuleSelection(
        tuple(arguments.rules), arguments.precision, tuple(arguments.only), tuple(arguments.skip)
    )
    with Worker(rules) as worker, Progress(arguments) as progress:  # loads them while the imports below take their time
        from ..api import run
        from .options import options_of
        from .report import print_report

        options = options_of(arguments, verify=arguments.verify)
        result = run(arguments.model, output, options, progress, worker)
    print_report(arguments, result)
    return BUDGET_HIT if result.budget_hit else 0


def _output(arguments: argparse.Namespace) -> Path | None:
    if arguments.out is not None and arguments.output is not None:
        raise UsageError(f"two files to write: {arguments.out} and {arguments.output}; give one")
    chosen: Path | None = arguments.output or arguments.out
    return chosen
