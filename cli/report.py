"""``eqfuse report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..driver.options import BenchOptions
from . import render
from .options import options_of
from .progress import Progress


def report(arguments: argparse.Namespace) -> int:
    """Write the report on a bundle, beside it unless the user names a file."""
    bundle: Path = arguments.bundle
    output: Path = arguments.output or bundle.absolute().with_name(f"{bundle.absolute().name}.html")
    with Progress(arguments, "measure"):
        from ..driver.html_report.bundle import write_bundle_report

        write_bundle_report(output, bundle, options_of(BenchOptions, arguments))
    render.report(arguments, {"bundle": bundle, "output": output}, f"written: {output}")
    return 0
