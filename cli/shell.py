"""``eqfuse completion`` and ``schema``: what shells and programs need to know of the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import shtab

from ..support.errors import UsageError
from .parser import build_parser, fill
from .terminal import write


def completion(arguments: argparse.Namespace) -> int:
    """Print the script by which a shell completes commands, options, choices and files."""
    parser = build_parser()
    for each in fill(parser):
        for action in each._actions:
            if action.type is Path:
                kind = shtab.DIRECTORY if action.dest == "bundle" or action.metavar == "FOLDER" else shtab.FILE
                action.complete = kind  # type: ignore[attr-defined]
    write(shtab.complete(parser, arguments.shell))
    return 0


def schema(arguments: argparse.Namespace) -> int:
    """Print the JSON schema of the output of a command with --json. Raises UsageError if there is no such command."""
    from ..driver.json_output import OUTPUTS, schema_of  # which imports every stage

    name = " ".join(arguments.words)
    if name not in OUTPUTS:
        raise UsageError(f"there is no command {name!r} that prints JSON; they are {', '.join(OUTPUTS)}")
    write(json.dumps(schema_of(name), indent=2))
    return 0
