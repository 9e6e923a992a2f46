"""One measured latency, and the rules for each of its fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from statistics import median, quantiles
from typing import Annotated, Any

from msgspec import Meta

from ...support.database import DatabaseError
from ...support.json_types import JsonFieldError, convert_json, parse_json, shorten

_LONGEST = 1e9
"""No latency is this many seconds; the limit refuses infinity."""
_MOST_RUNS = 2**63 - 1
"""SQLite's integers have 64 bits."""


class FieldError(DatabaseError):
    """A field of a measurement that has a wrong content; "" is the name of the whole."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"field {name}: {problem}")
        self.name = name
        self.problem = problem


@dataclass(frozen=True)
class Measurement:
    """The time of a sub-graph on a device under a schedule. Raises FieldError for contents that no measurement has.

    `key` is the sub-graph's canonical key (64 hex digits) and `subgraph` the readable text behind it. A compiled kernel
    has the `template` that made it, and the `estimate` of its seconds; otherwise these are "" and 0. `latency` is the
    median of `runs` runs and `spread` their interquartile range, both in seconds. `schedule` is JSON in its canonical
    spelling, "" without one. `versions` names the software that compiled and ran it. `measured_at` is UTC.
    """

    key: str
    device: str
    latency: Annotated[float, Meta(gt=0, le=_LONGEST)]
    spread: Annotated[float, Meta(ge=0, le=_LONGEST)]
    runs: Annotated[int, Meta(ge=1, le=_MOST_RUNS)]
    versions: Mapping[str, str]
    schedule: str = ""
    subgraph: str = ""
    measured_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    template: str = ""
    estimate: Annotated[float, Meta(ge=0, le=_LONGEST)] = 0.0

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.key):
            raise FieldError("key", f"must be 64 hexadecimal digits in lower case, not {shorten(self.key)}")
        if not self.device.strip() or not self.device.isprintable():
            raise FieldError("device", f"must be the name of a device, not {shorten(self.device)}")
        _check_storable("subgraph", self.subgraph)
        _check_storable("template", self.template)
        for software, version in self.versions.items():
            _check_storable("versions", software)
            _check_storable(f"versions.{software}", version)
        object.__setattr__(self, "versions", dict(sorted(self.versions.items())))
        object.__setattr__(self, "schedule", _canonical_schedule(self.schedule))
        try:
            if self.measured_at.tzinfo is None:
                raise ValueError
            object.__setattr__(self, "measured_at", self.measured_at.astimezone(UTC))
        except (ValueError, OverflowError):
            problem = "must be a date and time with its zone, such as 2026-01-31T12:00:00Z"
            raise FieldError("measured_at", f"{problem}, not {self.measured_at}") from None

    @classmethod
    def of_times(
        cls, key: str, device: str, times: Sequence[float], versions: Mapping[str, str], subgraph: str = ""
    ) -> Measurement:
        """From the seconds of each run, measured now."""
        if not times:
            raise FieldError("runs", "must be at least 1, not 0")
        lower, _, upper = quantiles(times, method="inclusive") if len(times) > 1 else (0.0, 0.0, 0.0)
        return cls(key, device, median(times), upper - lower, len(times), versions, subgraph=subgraph)


FIELDS = tuple(f.name for f in fields(Measurement))


def record_of(measurement: Measurement) -> dict[str, Any]:
    """The measurement as plain data, for JSON."""
    record = {name: getattr(measurement, name) for name in FIELDS}
    return {**record, "versions": dict(measurement.versions), "measured_at": timestamp(measurement.measured_at)}


def measurement_of(record: object) -> Measurement:
    """The measurement whose plain data `record_of` made. Raises FieldError."""
    if isinstance(record, dict):
        for name in record:
            if name not in FIELDS:
                raise FieldError(name, f"unknown; the fields are {', '.join(FIELDS)}")
        for name in FIELDS:
            if name not in record:
                raise FieldError(name, "missing")
    try:
        return convert_json(record, Measurement)
    except JsonFieldError as error:
        raise FieldError(error.path, error.problem) from None


def timestamp(moment: datetime) -> str:
    """ISO 8601 with microseconds, UTC: the order of such texts is the order in time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def canonical_json(content: object) -> str:
    """The one spelling of plain data: names sorted, no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def readable_json(content: object) -> str:
    """Plain data with one field per line, in the order given."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _canonical_schedule(text: str) -> str:
    try:
        return canonical_json(parse_json(text)) if text else ""
    except ValueError as error:
        raise FieldError("schedule", f'must be "" or JSON, not {shorten(text)} ({error})') from None


def _check_storable(name: str, text: str) -> None:
    """Raise FieldError for a text that SQLite would change."""
    try:
        is_storable = b"\0" not in text.encode()
    except UnicodeEncodeError:
        is_storable = False
    if not is_storable:
        raise FieldError(name, f"must be a text without NUL and lone surrogates, not {shorten(text)}")
