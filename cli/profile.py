"""``eqfuse profile list``, ``export``, ``import`` and ``clear``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..costmodels.measurement import Measurement, record_of
from ..costmodels.profile import ProfileDatabase
from ..errors import UsageError
from ..extract.partition.canonical_key import operator_names
from . import render
from .terminal import write

_DIGITS = 12
"""Of a key, what tells it from others."""
_WIDTH = 40
"""Of a schedule and a list of operators, what is shown in a table."""


def list_measurements(arguments: argparse.Namespace) -> int:
    """Every measurement, or those of a device."""
    database = _database(arguments)
    measurements = database.all(device=arguments.device)
    if arguments.json:
        render.print_json([record_of(m) for m in measurements])
    elif not arguments.quiet:
        _print_list(database, measurements)
    return 0


def _database(arguments: argparse.Namespace) -> ProfileDatabase:
    """The one that is asked for. Raises UsageError where its folder does not exist: only the user's own is made."""
    path: Path | None = arguments.database
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"--database {path}: the folder {path.parent} does not exist")
    return ProfileDatabase.open(path)


def _print_list(database: ProfileDatabase, measurements: Sequence[Measurement]) -> None:
    title = f"{_count(len(measurements))} in {database.path}"
    if not measurements:
        write(title)
        return
    columns = ("key", "device", "operators", "schedule", "versions", "measured at (UTC)", "latency", "spread", "runs")
    render.table(title, columns, [_row(m) for m in measurements], left=6)


def _row(measurement: Measurement) -> tuple[str, ...]:
    return (
        measurement.key[:_DIGITS],
        measurement.device,
        _shortened(" ".join(operator_names(measurement.subgraph))),
        _shortened(measurement.schedule),
        ", ".join(f"{name} {version}" for name, version in measurement.versions.items()),
        f"{measurement.measured_at:%Y-%m-%d %H:%M:%S}",
        render.seconds(measurement.latency),
        render.seconds(measurement.spread),
        str(measurement.runs),
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def export_measurements(arguments: argparse.Namespace) -> int:
    """Write the measurements to a file."""
    count = _database(arguments).export(arguments.file, device=arguments.device)
    if arguments.json:
        render.print_json({"file": arguments.file, "exported": count})
    else:
        render.say(arguments, f"{arguments.file}: {_count(count)} written")
    return 0


def import_measurements(arguments: argparse.Namespace) -> int:
    """Add the measurements of a file, all of them or none."""
    database = _database(arguments)
    read, kept = database.load(arguments.file)
    older = f"; {read - kept} older than what is there, left out" if read > kept else ""
    if arguments.json:
        render.print_json({"file": arguments.file, "read": read, "imported": kept})
    else:
        render.say(arguments, f"{database.path}: {_count(kept)} imported{older}")
    return 0


def clear_measurements(arguments: argparse.Namespace) -> int:
    """Remove every measurement, or those of a device."""
    database = _database(arguments)
    count = database.clear(device=arguments.device)
    if arguments.json:
        render.print_json({"database": database.path, "removed": count})
    else:
        device = "" if arguments.device is None else f" of device {arguments.device}"
        render.say(arguments, f"{database.path}: {_count(count)}{device} removed")
    return 0


def _count(number: int) -> str:
    return f"{number} measurement{'' if number == 1 else 's'}"
