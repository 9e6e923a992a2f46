"""One measured latency, and the rules for each of its fields."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from statistics import median, quantiles
from typing import Any

from ..support.database import DatabaseError
from ..support.json_types import parse_json, shorten


class FieldError(DatabaseError):
    """A field of a measurement that holds something else than it should."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"field {name}: {problem}")
        self.name = name
        self.problem = problem


@dataclass(frozen=True)
class Measurement:
    """What a sub-graph took on a device under a schedule. Every field is checked when it is made: raises FieldError.

    `key` is the sub-graph's canonical key (64 hex digits) and `subgraph` the readable text behind it. `latency` is the
    median of `runs` runs and `spread` their interquartile range, both in seconds. `schedule` is JSON in its canonical
    spelling, "" where none was chosen. `versions` names the software that compiled and ran it. `measured_at` is UTC.
    """

    key: str
    device: str
    latency: float
    spread: float
    runs: int
    versions: Mapping[str, str]
    schedule: str = ""
    subgraph: str = ""
    measured_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            object.__setattr__(self, name, rule(name, getattr(self, name)))

    @classmethod
    def of_times(
        cls,
        key: str,
        device: str,
        times: Sequence[float],
        versions: Mapping[str, str],
        *,
        schedule: str = "",
        subgraph: str = "",
    ) -> Measurement:
        """From the seconds of each run, measured now."""
        if not times:
            raise FieldError("runs", "must be at least 1, not 0")
        lower, _, upper = quantiles(times, method="inclusive") if len(times) > 1 else (0.0, 0.0, 0.0)
        return cls(key, device, median(times), upper - lower, len(times), versions, schedule, subgraph)


FIELDS = tuple(f.name for f in fields(Measurement))


def record_of(measurement: Measurement) -> dict[str, Any]:
    """The measurement as plain data, for JSON."""
    record = {name: getattr(measurement, name) for name in FIELDS}
    return {**record, "versions": dict(measurement.versions), "measured_at": timestamp(measurement.measured_at)}


def measurement_of(record: object) -> Measurement:
    """The measurement that `record_of` made plain data of. Raises FieldError; "" is the name of the whole record."""
    if not isinstance(record, dict):
        raise FieldError("", f"must be an object with the fields {', '.join(FIELDS)}, not {shorten(record)}")
    for name in record:
        if name not in FIELDS:
            raise FieldError(shorten(name)[1:-1], f"unknown; the fields are {', '.join(FIELDS)}")
    for name in FIELDS:
        if name not in record:
            raise FieldError(name, "missing")
    return Measurement(**record)


def timestamp(moment: datetime) -> str:
    """ISO 8601 with microseconds, UTC: the order of such texts is the order in time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def canonical_json(content: object) -> str:
    """The one spelling of plain data: names sorted, no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def readable_json(content: object) -> str:
    """Plain data with one field per line, in the order given."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


# --- the rules of the fields: each takes the field's name and content, and returns the content in its one form


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise FieldError(name, f"must be a text, not {shorten(value)}")
    try:
        is_storable = b"\0" not in value.encode()
    except UnicodeEncodeError:
        is_storable = False
    if not is_storable:
        raise FieldError(name, f"must be a text without NUL and lone surrogates, not {shorten(value)}")
    return value


def _key(name: str, value: object) -> str:
    text = _text(name, value)
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise FieldError(name, f"must be 64 hexadecimal digits in lower case, not {shorten(value)}")
    return text


def _device(name: str, value: object) -> str:
    text = _text(name, value)
    if not text.strip() or not text.isprintable():
        raise FieldError(name, f"must be the name of a device, not {shorten(value)}")
    return text


def _schedule(name: str, value: object) -> str:
    text = _text(name, value)
    try:
        return _text(name, canonical_json(parse_json(text)) if text else "")
    except ValueError as error:
        raise FieldError(name, f'must be "" or JSON, not {shorten(value)} ({error})') from None


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(name, f"must be a number of seconds, not {shorten(value)}")
    if not abs(value) <= 1e9 or math.isnan(value):
        raise FieldError(name, f"must be a finite number of seconds, not {shorten(value)}")
    return float(value)


def _latency(name: str, value: object) -> float:
    seconds = _number(name, value)
    if seconds <= 0:
        raise FieldError(name, f"must be above 0, not {shorten(value)}")
    return seconds


def _spread(name: str, value: object) -> float:
    seconds = _number(name, value)
    if seconds < 0:
        raise FieldError(name, f"must be at least 0, not {shorten(value)}")
    return seconds


def _runs(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
        raise FieldError(name, f"must be a whole number of runs, at least 1, not {shorten(value)}")
    return value


def _versions(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise FieldError(name, f"must map names of software to versions, not {shorten(value)}")
    return {_text(name, software): _text(f"{name}.{software}", value[software]) for software in sorted(value, key=str)}


def _measured_at(name: str, value: object) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime) and moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise FieldError(name, f"must be a date and time with its zone, such as 2026-01-31T12:00:00Z, not {shorten(value)}")


_RULES = {
    "key": _key,
    "device": _device,
    "latency": _latency,
    "spread": _spread,
    "runs": _runs,
    "versions": _versions,
    "schedule": _schedule,
    "subgraph": _text,
    "measured_at": _measured_at,
}
