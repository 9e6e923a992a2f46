"""``eqfuse profile list``, ``export``, ``import`` and ``clear``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..costmodels.measurement import Measurement, record_of
from ..costmodels.profile import ProfileDatabase
from ..extract.partition.canonical_key import operator_names
from ..support import units
from ..support.errors import UsageError
from . import render
from .terminal import write

_KEY_DIGITS = 12
"""Leading digits of a key that the table shows; they are enough to tell keys apart."""
_WIDTH = 40
"""Characters of a schedule and of a list of operators that the table shows."""


def list_measurements(arguments: argparse.Namespace) -> int:
    """Every measurement, or those of a device."""
    database = _database(arguments)
    measurements = database.all(device=arguments.device)
    if arguments.json:
        render.print_json([record_of(m) for m in measurements])
    elif not arguments.quiet:
        title = f"{_measurements(len(measurements))} in {database.path}"
        columns = (
            "key", "device", "operators", "schedule", "versions", "measured at (UTC)", "latency", "spread", "runs",
        )  # fmt: skip
        if measurements:
            render.table(title, columns, [_row(m) for m in measurements], left=6)
        else:
            write(title)
    return 0


def _database(arguments: argparse.Namespace) -> ProfileDatabase:
    """The user's own, or that of --database. Raises UsageError where the folder of the latter does not exist."""
    path: Path | None = arguments.database
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"--database {path}: the folder {path.parent} does not exist")
    return ProfileDatabase.open(path)


def _row(measurement: Measurement) -> tuple[str, ...]:
    return (
        measurement.key[:_KEY_DIGITS],
        measurement.device,
        _shorten(" ".join(operator_names(measurement.subgraph))),
        _shorten(measurement.schedule),
        ", ".join(f"{name} {version}" for name, version in measurement.versions.items()),
        f"{measurement.measured_at:%Y-%m-%d %H:%M:%S}",
        units.seconds(measurement.latency),
        units.seconds(measurement.spread),
        str(measurement.runs),
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def export_measurements(arguments: argparse.Namespace) -> int:
    """Write the measurements to a file."""
    count = _database(arguments).export(arguments.file, device=arguments.device)
    content = {"file": arguments.file, "exported": count}
    render.report(arguments, content, f"{arguments.file}: {_measurements(count)} written")
    return 0


def import_measurements(arguments: argparse.Namespace) -> int:
    """Add the measurements of a file, all of them or none."""
    database = _database(arguments)
    read, kept = database.load(arguments.file)
    older = f"; {read - kept} older than what is there, left out" if read > kept else ""
    content = {"file": arguments.file, "read": read, "imported": kept}
    render.report(arguments, content, f"{database.path}: {_measurements(kept)} imported{older}")
    return 0


def clear_measurements(arguments: argparse.Namespace) -> int:
    """Remove every measurement, or those of a device."""
    database = _database(arguments)
    count = database.clear(device=arguments.device)
    device = "" if arguments.device is None else f" of device {arguments.device}"
    content = {"database": database.path, "removed": count}
    render.report(arguments, content, f"{database.path}: {_measurements(count)}{device} removed")
    return 0


def _measurements(number: int) -> str:
    return units.count_text(number, "measurement")
