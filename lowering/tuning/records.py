"""The tuning database: candidates that were measured, or that failed, shared by all runs of a user.

A row is identified by the task, the device, the runner, the versions of the software and the decisions; a newer record
of such a row replaces an older one. Each call of `add` is one transaction: a process that is killed loses no more
than what it had not added.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...costmodels.measuring.measurement import canonical_json, timestamp
from ...support.database import DamagedError, DatabaseFile, FullDiskError, database_path, upsert_newest
from ...support.json_types import parse_json
from ...support.text import printable

__all__ = ["Record", "RecordDatabase"]

SCHEMA_VERSION = 1
"""Raise it with every change of the tables."""
WAIT = 10.0
"""Seconds to wait for other processes."""
LONGEST_PROBLEM = 500
"""Characters of a problem that are kept at most."""
_APPLICATION = 0x65716674  # "eqft", in SQLite's header

_SCHEMA = (
    """CREATE TABLE record (
        task TEXT NOT NULL,
        device TEXT NOT NULL,
        runner TEXT NOT NULL,
        versions TEXT NOT NULL,
        decisions TEXT NOT NULL,
        latency REAL CHECK (latency > 0),
        spread REAL NOT NULL CHECK (spread >= 0),
        runs INTEGER NOT NULL CHECK (runs >= 0),
        features TEXT NOT NULL,
        problem TEXT NOT NULL,
        measured_at TEXT NOT NULL,
        PRIMARY KEY (task, device, runner, versions, decisions)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX newest ON record (measured_at)",
)


@dataclass(frozen=True)
class Record:
    """What a candidate of a task took on a device, or the `problem` that it had there, with `latency` None.

    `device` names the device and the threads, such as ``host/2``. `versions` is the canonical JSON of all that decides
    which schedule the decisions give, and what runs it. `latency` is the median of `runs` runs, `spread` their
    interquartile range, both in seconds. `features` are what a cost model saw of the candidate; those that are not
    finite are left out. Raises ValueError for a latency, a spread or a time of day that is none.
    """

    task: str
    device: str
    runner: str
    versions: str
    decisions: Mapping[str, str]
    latency: float | None = None
    spread: float = 0.0
    runs: int = 0
    features: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""
    measured_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        if self.latency is not None and not 0.0 < self.latency < math.inf:
            raise ValueError(f"a latency must be above 0, not {self.latency!r}")
        if not 0.0 <= self.spread < math.inf:
            raise ValueError(f"a spread must be at least 0, not {self.spread!r}")
        if self.measured_at.tzinfo is None:
            raise ValueError("the time of a record must have its zone")
        object.__setattr__(self, "decisions", {name: self.decisions[name] for name in sorted(self.decisions)})
        object.__setattr__(self, "features", {k: float(v) for k, v in self.features.items() if math.isfinite(v)})
        object.__setattr__(self, "problem", _storable(self.problem))
        object.__setattr__(self, "measured_at", self.measured_at.astimezone(UTC))


_FIELDS = tuple(f.name for f in fields(Record))
_COLUMNS = ", ".join(_FIELDS)
_ADD = upsert_newest("record", _FIELDS)
_OF = f"""SELECT {_COLUMNS} FROM record
    WHERE task = :task AND device = :device AND runner = :runner AND versions = :versions
    ORDER BY measured_at, decisions"""
_CHOSEN = " AND ".join(f"(:{name} IS NULL OR {name} = :{name})" for name in ("device", "runner"))
_ALL = f"SELECT {_COLUMNS} FROM record WHERE {_CHOSEN} ORDER BY measured_at DESC, task, decisions LIMIT :limit"


@dataclass(frozen=True)
class RecordDatabase:
    """Records kept in a file. Many processes may use it at once; reading never makes the file.

    A damaged file is moved aside, with a warning on standard error, and a new one takes its place. Every method raises
    DatabaseError if the file is locked for too long or may not be used. Make one by `open`.
    """

    file: DatabaseFile

    @classmethod
    def open(cls, path: Path | str | None = None, *, timeout: float | None = None) -> RecordDatabase:
        """The database in that file, or the user's. `timeout`: seconds to wait for others, `WAIT` by default."""
        chosen = database_path("tuning") if path is None else Path(path)
        wait = WAIT if timeout is None else timeout
        return cls(DatabaseFile(chosen, _APPLICATION, SCHEMA_VERSION, _SCHEMA, wait, "tuning", "set XDG_CACHE_HOME"))

    @property
    def path(self) -> Path:
        """The path of the file, whether it exists or not."""
        return self.file.path

    def add(self, *records: Record) -> int:
        """Keep these, all or none; how many are in the database now (those with a newer one there are not).

        A full disk is worth a warning only: the search goes on with what it has measured.
        """
        rows = [_row(record) for record in records]
        try:
            return self.file.write(lambda c: sum(c.execute(_ADD, row).rowcount for row in rows)) if rows else 0
        except FullDiskError as error:
            print(printable(f"eqfuse: warning: {error}"), file=sys.stderr)
            return 0

    def check(self) -> None:
        """Raise DatabaseError if nothing can be kept."""
        self.file.write(lambda _: None)

    def of(self, task: str, device: str, runner: str, versions: str) -> tuple[Record, ...]:
        """Every candidate of a task there, once, in the order in which they were measured."""
        chosen = {"task": task, "device": device, "runner": runner, "versions": versions}
        return self.file.read(lambda c: tuple(map(_record, c.execute(_OF, chosen))), ())

    def all(self, device: str | None = None, runner: str | None = None, limit: int = 20000) -> tuple[Record, ...]:
        """Records of all tasks and versions, the newest first: at most `limit`."""
        chosen = {"device": device, "runner": runner, "limit": limit}
        return self.file.read(lambda c: tuple(map(_record, c.execute(_ALL, chosen))), ())


def _storable(text: str) -> str:
    """One line that SQLite takes, whatever a compiler or a device said."""
    line = " ".join(text.replace("\0", " ").split())
    return line[:LONGEST_PROBLEM].encode(errors="replace").decode()


def _row(record: Record) -> dict[str, Any]:
    return {
        **{name: getattr(record, name) for name in _FIELDS},
        "decisions": canonical_json(record.decisions),
        "features": canonical_json(record.features),
        "measured_at": timestamp(record.measured_at),
    }


def _record(row: tuple[Any, ...]) -> Record:
    content = dict(zip(_FIELDS, row, strict=True))
    try:
        decisions, features = parse_json(content["decisions"]), parse_json(content["features"])
        moment = datetime.fromisoformat(content["measured_at"])
        return Record(**{**content, "decisions": decisions, "features": features, "measured_at": moment})
    except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:
        raise DamagedError(f"row of task {content['task']}: {error}") from None
