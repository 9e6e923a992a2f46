"""``eqfuse optimize``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..engine.egraph.messages import RuleSelection
from ..engine.egraph.worker import Worker
from ..errors import UsageError
from ..support.files import check_destination
from .progress import Progress

BUDGET_HIT = 5


def optimize(arguments: argparse.Namespace) -> int:
    """Optimise, report, and say by the exit code whether a budget was hit."""
    output = _output(arguments)
    if arguments.report is not None:
        _check_report(arguments.report, arguments.model, output)
    rules = RuleSelection(tuple(arguments.rules), arguments.precision, tuple(arguments.only), tuple(arguments.skip))
    with Worker(rules) as worker, Progress(arguments) as progress:  # loads them while the imports below take their time
        from ..driver.optimize import optimize_model
        from .options import options_of
        from .report import print_report

        options = options_of(arguments, verify=arguments.verify)
        result = optimize_model(arguments.model, output, options, progress, worker)
        if arguments.report is not None:
            from .html_report import write_report

            progress("report")
            write_report(arguments.report, arguments.model.name, result, options)
    print_report(arguments, result)
    return BUDGET_HIT if result.budget_hit else 0


def _output(arguments: argparse.Namespace) -> Path | None:
    if arguments.out is not None and arguments.output is not None:
        raise UsageError(f"two files to write: {arguments.out} and {arguments.output}; give one")
    chosen: Path | None = arguments.output or arguments.out
    return chosen


def _check_report(report: Path, model: Path, output: Path | None) -> None:
    """Raise UsageError where the report could not be written, or would replace a model."""
    check_destination(report)
    if report.exists() and model.exists() and report.samefile(model):
        raise UsageError(f"{report}: is the input itself; name another file for the report")
    if output is not None and report.resolve() == output.resolve():
        raise UsageError(f"{report}: is the model to write; name another file for the report")
