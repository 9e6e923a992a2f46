"""The profile database: latencies of sub-graphs that were measured, shared by all runs of a user.

A row is identified by the sub-graph's canonical key, the device, the schedule and the versions of the software; the
newest measurement of such a row replaces an older one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ...support.database import DamagedError, DatabaseError, DatabaseFile, database_path, upsert_newest
from ...support.files import check_destination, write_text
from ...support.json_types import parse_json
from .measurement import (
    FIELDS,
    FieldError,
    Measurement,
    canonical_json,
    measurement_of,
    readable_json,
    record_of,
)

__all__ = ["FieldError", "Measurement", "ProfileDatabase"]

SCHEMA_VERSION = 2
WAIT = 10.0
"""Seconds to wait for other processes."""
_APPLICATION = 0x65716670  # "eqfp", in SQLite's header
_FORMAT = "eqfuse profile"
_FORMAT_VERSION = 2

_SCHEMA = (
    """CREATE TABLE measurement (
        key TEXT NOT NULL,
        device TEXT NOT NULL,
        latency REAL NOT NULL CHECK (latency > 0),
        spread REAL NOT NULL CHECK (spread >= 0),
        runs INTEGER NOT NULL CHECK (runs > 0),
        versions TEXT NOT NULL,
        schedule TEXT NOT NULL,
        subgraph TEXT NOT NULL,
        template TEXT NOT NULL,
        estimate REAL NOT NULL CHECK (estimate >= 0),
        measured_at TEXT NOT NULL,
        PRIMARY KEY (device, key, schedule, versions)
    ) STRICT, WITHOUT ROWID""",
)
_COLUMNS = ", ".join(FIELDS)
_ADD = upsert_newest("measurement", FIELDS)
_CHOSEN = "(:device IS NULL OR device = :device) AND (:key IS NULL OR key = :key)"
_ALL = f"SELECT {_COLUMNS} FROM measurement WHERE {_CHOSEN} ORDER BY device, key, latency, schedule, versions"
_CLEAR = f"DELETE FROM measurement WHERE {_CHOSEN}"
# SQLite takes the other columns from the row that has the maximum, or the minimum
_NEWEST = f"""SELECT {_COLUMNS}, max(measured_at) FROM measurement
    WHERE device = :device AND (:versions IS NULL OR versions = :versions) GROUP BY key, schedule"""
_BEST = f"SELECT {_COLUMNS}, min(latency) FROM ({_NEWEST}) GROUP BY key"
_FACTORS = "SELECT template, latency / estimate FROM measurement WHERE device = :device AND estimate > 0"
_SCHEDULES = "SELECT key, schedule, latency FROM measurement WHERE device = :device AND versions = :versions"
_LEAST_RATIOS = 3
"""The fewest measured kernels of a template from which a factor for others is taken."""

_ELSEWHERE = "set XDG_CACHE_HOME, or name another file with --database"

_Best = dict[str, Measurement]


@dataclass(frozen=True)
class ProfileDatabase:
    """Measurements kept in a file. Many processes may use it at once; reading never makes the file.

    A damaged file is moved aside, with a warning on standard error, and a new one takes its place. Every method raises
    DatabaseError if the file is locked for too long or may not be used. Make one by `open`.
    """

    file: DatabaseFile
    _best: dict[tuple[str, str | None], _Best] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, path: Path | str | None = None, *, timeout: float | None = None) -> ProfileDatabase:
        """The database in that file, or the user's. `timeout`: seconds to wait for others, `WAIT` by default."""
        chosen = database_path("profile") if path is None else Path(path)
        wait = WAIT if timeout is None else timeout
        return cls(DatabaseFile(chosen, _APPLICATION, SCHEMA_VERSION, _SCHEMA, wait, "profile", _ELSEWHERE))

    @property
    def path(self) -> Path:
        """The path of the file, whether it exists or not."""
        return self.file.path

    def best(self, key: str, device: str, versions: Mapping[str, str] | None = None) -> Measurement | None:
        """The fastest schedule of a sub-graph, each schedule by its newest measurement; None without a measurement.

        `versions` limits it to measurements with exactly this software. The first call reads all measurements of the
        device; later ones look them up in memory, and see changes by this object but not by others.
        """
        wanted = None if versions is None else canonical_json(dict(versions))
        if (device, wanted) not in self._best:
            self._best[device, wanted] = self.file.read(lambda c: _fastest(c, device, wanted), {})
        return self._best[device, wanted].get(key)

    def factors(self, device: str) -> dict[str, float]:
        """How many times as long as estimated kernels take on a device, by the template that makes them: medians."""
        ratios: dict[str, list[float]] = {}
        for template, ratio in self._rows(_FACTORS, {"device": device}):
            ratios.setdefault(template, []).append(ratio)
        return {template: median(each) for template, each in ratios.items() if len(each) >= _LEAST_RATIOS}

    def schedules(self, device: str, versions: Mapping[str, str]) -> dict[str, dict[str, float]]:
        """The latencies of each sub-graph by the schedules that it was measured with, with exactly this software."""
        chosen = {"device": device, "versions": canonical_json(dict(versions))}
        latencies: dict[str, dict[str, float]] = {}
        for key, schedule, latency in self._rows(_SCHEDULES, chosen):
            latencies.setdefault(key, {})[schedule] = latency
        return latencies

    def _rows(self, statement: str, chosen: Mapping[str, str]) -> list[tuple[Any, ...]]:
        return self.file.read(lambda c: c.execute(statement, chosen).fetchall(), [])

    def add(self, *measurements: Measurement) -> int:
        """Keep these, all or none; returns how many of them are in the database now (not those with a newer one)."""
        rows = [_row(m) for m in measurements]
        self._best.clear()
        return self.file.write(lambda c: sum(c.execute(_ADD, row).rowcount for row in rows)) if rows else 0

    def all(self, *, device: str | None = None, key: str | None = None) -> tuple[Measurement, ...]:
        """Every measurement, or those of a device and a key; by device and key, the fastest first."""
        chosen = {"device": device, "key": key}
        return self.file.read(lambda c: tuple(map(_measurement, c.execute(_ALL, chosen))), ())

    def clear(self, *, device: str | None = None, key: str | None = None) -> int:
        """Remove every measurement, or those of a device and a key; returns their number."""
        self._best.clear()
        chosen = {"device": device, "key": key}
        if not self.file.read(lambda _: True, False):
            return 0
        return self.file.write(lambda c: c.execute(_CLEAR, chosen).rowcount)

    def export(self, file: Path | str, *, device: str | None = None) -> int:
        """Write every measurement, or those of a device, as JSON: the whole file or none. Returns their number."""
        measurements = self.all(device=device)
        content = {"format": _FORMAT, "version": _FORMAT_VERSION}
        _write(Path(file), readable_json({**content, "measurements": [record_of(m) for m in measurements]}))
        return len(measurements)

    def load(self, file: Path | str) -> tuple[int, int]:
        """Add the measurements of a file of `export`, all or none; returns how many were read, and how many kept.

        Raises FieldError and DatabaseError with the file's name and the place in it.
        """
        measurements = _read(Path(file))
        return len(measurements), self.add(*measurements)


# --- rows


def _row(measurement: Measurement) -> dict[str, Any]:
    record = record_of(measurement)
    return {**record, "versions": canonical_json(record["versions"])}


def _measurement(row: tuple[Any, ...]) -> Measurement:
    record = dict(zip(FIELDS, row, strict=False))
    try:
        return measurement_of({**record, "versions": parse_json(record["versions"])})
    except (DatabaseError, ValueError) as error:
        raise DamagedError(f"row of key {record['key']}: {error}") from None


def _fastest(connection: sqlite3.Connection, device: str, versions: str | None) -> _Best:
    rows = connection.execute(_BEST, {"device": device, "versions": versions})
    return {measurement.key: measurement for measurement in map(_measurement, rows)}


# --- files


def _write(path: Path, text: str) -> None:
    check_destination(path)
    write_text(path, text)


def _read(path: Path) -> list[Measurement]:
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatabaseError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise DatabaseError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise DatabaseError(f'{path}: field format: must be "{_FORMAT}"; import what `eqfuse profile export` wrote')
    if content.get("version") != _FORMAT_VERSION:
        raise DatabaseError(f"{path}: field version: must be {_FORMAT_VERSION}, not {content.get('version')!r}")
    records = content.get("measurements")
    if not isinstance(records, list):
        raise DatabaseError(f"{path}: field measurements: must be a list")
    measurements = []
    for number, record in enumerate(records):
        try:
            measurements.append(measurement_of(record))
        except FieldError as error:
            place = f"measurements[{number}]{'.' if error.name else ''}{error.name}"
            raise DatabaseError(f"{path}: field {place}: {error.problem}") from None
    return measurements
