"""The tuning database: what it keeps, also when the process that fills it is killed."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eqfuse.costmodels.measuring.profile import Measurement, ProfileDatabase
from eqfuse.lowering.tuning.records import Record, RecordDatabase
from eqfuse.support.database import DatabaseError, DatabaseFile, FullDiskError

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def record(
    tile: str = "4",
    *,
    task: str = "t",
    device: str = "host/2",
    versions: str = "{}",
    latency: float = 1.0,
    days: int = 0,
) -> Record:
    moment = START + timedelta(days=days)
    return Record(task, device, "local", versions, {"tile": tile}, latency, 0.1, 20, {"x": 2.0}, "", moment)


@pytest.fixture
def database(tmp_path: Path) -> RecordDatabase:
    return RecordDatabase.open(tmp_path / "deep" / "tuning.db")


def test_what_is_added_is_there_for_others(database: RecordDatabase) -> None:
    database.add(record())
    assert RecordDatabase.open(database.path).all() == (record(),)


def test_the_users_database_is_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert RecordDatabase.open().path == tmp_path / "eqfuse" / "tuning.db"


def test_where_nothing_can_be_kept_is_said_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DatabaseError, match="file: File exists; set XDG_CACHE_HOME"):
        RecordDatabase.open(tmp_path / "file" / "tuning.db").check()


def test_reading_makes_no_file(database: RecordDatabase) -> None:
    assert (database.all(), database.of("t", "host/2", "local", "{}")) == ((), ())
    assert not database.path.parent.exists()


def test_a_failure_is_kept_with_its_problem(database: RecordDatabase) -> None:
    failed = Record("t", "host/2", "local", "{}", {}, problem="it\0 hangs\n\udc80")
    database.add(failed)
    assert [(row.latency, row.problem) for row in database.all()] == [(None, "it hangs ?")]


def test_the_newest_record_of_decisions_replaces_older_ones(database: RecordDatabase) -> None:
    database.add(record(latency=1.0, days=1), record(latency=2.0, days=2))
    database.add(record(latency=3.0, days=0))
    assert database.all() == (record(latency=2.0, days=2),)


def test_decisions_are_equal_in_any_order(database: RecordDatabase) -> None:
    database.add(
        Record("t", "d", "r", "", {"a": "1", "b": "2"}, 1.0), Record("t", "d", "r", "", {"b": "2", "a": "1"}, 2.0)
    )
    assert len(database.all()) == 1


def test_records_of_a_task_come_in_the_order_of_measuring(database: RecordDatabase) -> None:
    database.add(record("8", days=2), record("4", days=3), record("2", days=1))
    assert database.of("t", "host/2", "local", "{}") == (record("2", days=1), record("8", days=2), record("4", days=3))


@pytest.mark.parametrize("other", [record(task="u"), record(device="host/1"), record(versions='{"tvm":"2"}')])
def test_records_of_others_are_not_those_of_a_task(database: RecordDatabase, other: Record) -> None:
    database.add(other)
    assert database.of("t", "host/2", "local", "{}") == ()


def test_all_gives_the_newest_of_a_device(database: RecordDatabase) -> None:
    database.add(*(record(str(day), days=day) for day in range(5)), record(device="arm", days=9))
    assert database.all("host/2", "local", limit=2) == (record("4", days=4), record("3", days=3))


def test_a_batch_is_kept_whole_or_not_at_all(database: RecordDatabase) -> None:
    broken = record("2")
    object.__setattr__(broken, "latency", -1.0)
    with pytest.raises(DatabaseError):
        database.add(record(), broken)
    assert database.all() == ()


def test_a_full_disk_is_a_warning_not_the_end_of_a_search(
    database: RecordDatabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(file: DatabaseFile, work: object) -> int:
        raise FullDiskError(f"{file.path}: database or disk is full")

    monkeypatch.setattr(DatabaseFile, "write", fill)
    assert database.add(record()) == 0
    assert capsys.readouterr().err == f"eqfuse: warning: {database.path}: database or disk is full\n"


def test_a_damaged_file_is_moved_aside(database: RecordDatabase, capsys: pytest.CaptureFixture[str]) -> None:
    database.path.parent.mkdir()
    database.path.write_text("no database" * 99)
    database.add(record())
    assert database.all() == (record(),)
    assert "moved aside" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["no json", "[1]", '{"x":NaN}', '{"x":"y"}'])
def test_a_damaged_row_is_damage(database: RecordDatabase, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    database.add(record())
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("UPDATE record SET features = ?", (text,))
    assert database.all() == ()
    assert "row of task t" in capsys.readouterr().err


def test_a_database_of_latencies_is_another_kind(tmp_path: Path) -> None:
    ProfileDatabase.open(tmp_path / "profile.db").add(Measurement("0" * 64, "host", 1.0, 0.0, 1, {}))
    with pytest.raises(DatabaseError, match="another program"):
        RecordDatabase.open(tmp_path / "profile.db").add(record())


@pytest.mark.parametrize("latency", [0.0, -1.0, math.inf, math.nan])
def test_a_latency_is_above_0(latency: float) -> None:
    with pytest.raises(ValueError, match="latency"):
        record(latency=latency)


def test_features_that_are_not_finite_are_missing() -> None:
    kept = Record("t", "d", "r", "", {}, 1.0, features={"x": math.nan, "y": math.inf, "z": 1})
    assert kept.features == {"z": 1.0}


WRITER = """
import sys
from eqfuse.lowering.tuning.records import Record, RecordDatabase
database = RecordDatabase.open(sys.argv[1])
for batch in range(10**6):
    database.add(*(Record("t", "d", "r", "{}", {"s": str(8 * batch + own)}, 1.0) for own in range(8)))
    print(flush=True)
"""


@pytest.mark.parametrize("batches", [1, 7, 20])
def test_a_killed_process_loses_no_batch_that_it_had_added(tmp_path: Path, batches: int) -> None:
    path = tmp_path / "tuning.db"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for _ in range(batches):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    database = RecordDatabase.open(path)
    kept = {int(record.decisions["s"]) for record in database.all()}
    assert kept == set(range(len(kept)))
    assert len(kept) % 8 == 0
    assert len(kept) >= 8 * batches
    assert database.add(record()) == 1
    assert list(tmp_path.glob("*.corrupt-*")) == []
