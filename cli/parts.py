"""``eqfuse extract`` and ``reduce``."""

from __future__ import annotations

import argparse

from ..driver.parts import extract_part, reduce_model
from ..support import units
from . import render
from .progress import Progress


def extract(arguments: argparse.Namespace) -> int:
    """Write a part of a model."""
    nodes = extract_part(arguments.model, arguments.start, arguments.end, arguments.output)
    line = f"{arguments.output}: {units.count_text(nodes, 'node')}"
    render.report(arguments, {"model": str(arguments.model), "output": str(arguments.output), "nodes": nodes}, line)
    return 0


def reduce(arguments: argparse.Namespace) -> int:
    """Write the smallest part for which a command fails."""
    with Progress(arguments) as progress:
        found = reduce_model(
            arguments.model, arguments.check, arguments.output, arguments.says, arguments.limit, progress
        )
    line = f"{arguments.output}: {found.nodes} of {found.of} nodes, after {units.count_text(found.runs, 'run')}"
    content = {"model": str(arguments.model), "output": str(arguments.output), "nodes": found.nodes, "of": found.of}
    render.report(arguments, {**content, "runs": found.runs}, line)
    return 0
