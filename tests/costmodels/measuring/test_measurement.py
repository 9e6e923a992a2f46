"""What a measurement may hold, and that whatever else it is given is named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eqfuse.costmodels.measuring.measurement import FieldError, Measurement, measurement_of, record_of

KEY = "0" * 63 + "1"


def measured(schedule: str = "") -> Measurement:
    return Measurement(
        KEY, "host", 2e-3, 1e-5, 20, {"tvm": "0.27"}, schedule, "text", datetime(2026, 1, 31, 12, tzinfo=UTC)
    )


def test_of_times_is_the_median_and_the_interquartile_range() -> None:
    made = Measurement.of_times(KEY, "host", [5.0, 1.0, 2.0, 100.0, 4.0], {})
    assert (made.latency, made.spread, made.runs) == (4.0, 3.0, 5)


def test_one_run_has_no_spread() -> None:
    assert Measurement.of_times(KEY, "host", [5.0], {}).spread == 0


def test_a_schedule_has_one_spelling() -> None:
    assert measured('{"b": 1, "a": [2]}') == measured('{"a":[2],"b":1}')


def test_a_time_in_another_zone_is_the_same_time() -> None:
    record = {**record_of(measured()), "measured_at": "2026-01-31T13:00:00+01:00"}
    assert measurement_of(record) == measured()


BAD = [
    ("key", "abc"), ("key", 7), ("device", ""), ("device", "a\nb"), ("latency", 0), ("latency", -1.0),
    ("latency", float("nan")), ("latency", float("inf")), ("latency", True), ("latency", "fast"), ("latency", 10**400),
    ("spread", -1e-9), ("spread", None), ("runs", 0), ("runs", 1.5), ("runs", True), ("runs", 2**63),
    ("versions", ["tvm"]), ("versions", {"tvm": 27}), ("versions", {3: "x"}), ("schedule", "tile 8"),
    ("schedule", "NaN"), ("schedule", "[" * 100_000), ("subgraph", "\ud800"), ("subgraph", "a\0b"),
    ("measured_at", "yesterday"), ("measured_at", "2026-01-31T12:00:00"), ("measured_at", "0001-01-01T00:00:00+14:00"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_bad_field_is_named(field: str, value: object) -> None:
    with pytest.raises(FieldError, match=f"^field {field}"):
        measurement_of({**record_of(measured()), field: value})


@pytest.mark.parametrize("field", record_of(measured()))
def test_a_missing_field_is_named(field: str) -> None:
    record = record_of(measured())
    del record[field]
    with pytest.raises(FieldError, match=f"^field {field}: missing"):
        measurement_of(record)
