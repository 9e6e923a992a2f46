"""``eqfuse profile list``, ``export``, ``import`` and ``clear``."""

from __future__ import annotations

import argparse

from ..driver.devices import Measured, list_measured, open_database
from ..support import units
from . import render
from .terminal import write

_KEY_DIGITS = 12
"""Leading digits of a key that the table shows; they are enough to tell keys apart."""
_MEASURED = ("latency", "spread", "runs")
_MORE = ("schedule", "versions", "measured at (UTC)")
"""Columns that -v adds."""
_WIDTH = 40
"""Characters of a schedule and of a list of operators that the table shows."""


def list_measurements(arguments: argparse.Namespace) -> int:
    """Every measurement, or those of a device."""
    database = open_database(arguments.database)
    measurements = list_measured(database, arguments.device)
    if arguments.json:
        render.print_json({"measurements": [each.as_dict() for each in measurements]})
    elif not arguments.quiet:
        title = f"{_measurements(len(measurements))} in {database.path}"
        columns = ("key", "device", "operators", *(_MORE if arguments.verbose else ()), *_MEASURED)
        rows = [_row(each, arguments.verbose > 0) for each in measurements]
        if measurements:
            render.table(title, columns, rows, left=len(columns) - len(_MEASURED))
        else:
            write(title)
    return 0


def _row(measured: Measured, whole: bool) -> tuple[str, ...]:
    measurement = measured.measurement
    versions = ", ".join(f"{name} {version}" for name, version in measurement.versions.items())
    more = (_shorten(measurement.schedule), versions, f"{measurement.measured_at:%Y-%m-%d %H:%M:%S}")
    return (
        measurement.key[:_KEY_DIGITS],
        measurement.device,
        _shorten(" ".join(measured.operators)),
        *(more if whole else ()),
        units.seconds(measurement.latency),
        units.seconds(measurement.spread),
        str(measurement.runs),
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def export_measurements(arguments: argparse.Namespace) -> int:
    """Write the measurements to a file."""
    count = open_database(arguments.database).export(arguments.file, device=arguments.device)
    content = {"file": arguments.file, "exported": count}
    render.report(arguments, content, f"{arguments.file}: {_measurements(count)} written")
    return 0


def import_measurements(arguments: argparse.Namespace) -> int:
    """Add the measurements of a file, all of them or none."""
    database = open_database(arguments.database)
    read, kept = database.load(arguments.file)
    older = f"; {read - kept} older than those in the database, left out" if read > kept else ""
    content = {"file": arguments.file, "read": read, "imported": kept}
    render.report(arguments, content, f"{database.path}: {_measurements(kept)} imported{older}")
    return 0


def clear_measurements(arguments: argparse.Namespace) -> int:
    """Remove every measurement, or those of a device."""
    database = open_database(arguments.database)
    count = database.clear(device=arguments.device)
    device = "" if arguments.device is None else f" of device {arguments.device}"
    content = {"database": database.path, "removed": count}
    render.report(arguments, content, f"{database.path}: {_measurements(count)}{device} removed")
    return 0


def _measurements(number: int) -> str:
    return units.count_text(number, "measurement")
