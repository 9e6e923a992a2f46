"""The profile database: what it keeps, and that nothing short of a broken disk makes it lose that."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.costmodels.measuring.measurement import Measurement, record_of
from eqfuse.costmodels.measuring.profile import ProfileDatabase
from eqfuse.support.database import DatabaseError
from eqfuse.support.errors import UsageError

from ...properties import examples

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOBODY = 65534


def key(number: int) -> str:
    return f"{number:064x}"


def measured(
    number: int = 1,
    *,
    device: str = "host",
    latency: float = 2e-3,
    schedule: str = "",
    tvm: str = "0.27",
    days: int = 0,
) -> Measurement:
    """A measurement of sub-graph `number`, made `days` days after the start."""
    moment = START + timedelta(days=days)
    return Measurement(key(number), device, latency, 1e-5, 20, {"tvm": tvm}, schedule, f"text {number}", moment)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "profile.db"


@pytest.fixture
def database(path: Path) -> ProfileDatabase:
    return ProfileDatabase.open(path)


def latency(database: ProfileDatabase, number: int = 1, device: str = "host") -> float | None:
    found = database.best(key(number), device)
    return None if found is None else found.latency


# --- records


def test_what_is_added_is_there_for_others(database: ProfileDatabase, path: Path) -> None:
    database.add(measured())
    assert ProfileDatabase.open(path).all() == (measured(),)


def test_the_users_database_is_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ProfileDatabase.open().path == tmp_path / "eqfuse" / "profile.db"


def test_best_is_the_fastest_schedule(database: ProfileDatabase) -> None:
    database.add(measured(latency=3.0), measured(schedule='{"tile":8}', latency=1.0), measured(2, latency=0.5))
    assert database.best(key(1), "host") == measured(schedule='{"tile":8}', latency=1.0)


def test_best_is_of_that_device(database: ProfileDatabase) -> None:
    database.add(measured(latency=3.0), measured(device="dsa", latency=1.0))
    assert (latency(database), latency(database, device="dsa"), latency(database, device="gpu")) == (3.0, 1.0, None)


def test_best_takes_the_newest_of_several_versions(database: ProfileDatabase) -> None:
    database.add(measured(tvm="0.27", latency=3.0, days=1), measured(tvm="0.26", latency=1.0))
    assert latency(database) == 3.0


def test_best_of_given_versions(database: ProfileDatabase) -> None:
    database.add(measured(tvm="0.27", latency=3.0, days=1), measured(tvm="0.26", latency=1.0))
    assert database.best(key(1), "host", {"tvm": "0.26"}) == measured(tvm="0.26", latency=1.0)


def test_best_sees_what_was_added_after_it_was_asked(database: ProfileDatabase) -> None:
    assert latency(database) is None
    database.add(measured(latency=3.0))
    assert latency(database) == 3.0


def test_best_asks_the_file_once(database: ProfileDatabase, path: Path) -> None:
    database.add(measured(latency=3.0))
    latency(database)
    path.unlink()
    assert (latency(database), latency(database, 2)) == (3.0, None)


@pytest.mark.parametrize(("days", "expected"), [(1, 3.0), (0, 3.0), (-1, 2.0)])
def test_the_newest_of_a_row_stays(database: ProfileDatabase, days: int, expected: float) -> None:
    database.add(measured(latency=2.0))
    database.add(measured(latency=3.0, days=days))
    assert [m.latency for m in database.all()] == [expected]


def test_add_counts_what_is_kept(database: ProfileDatabase) -> None:
    database.add(measured())
    assert database.add(measured(days=-1), measured(2)) == 1


def test_all_by_device_and_key(database: ProfileDatabase) -> None:
    database.add(measured(1), measured(2), measured(1, device="dsa"))
    assert database.all(device="host", key=key(1)) == (measured(1),)
    assert len(database.all(key=key(1))) == 2


def test_clear_removes_a_device(database: ProfileDatabase) -> None:
    database.add(measured(1), measured(2), measured(1, device="dsa"))
    assert (database.clear(device="host"), database.all()) == (2, (measured(1, device="dsa"),))


@pytest.mark.parametrize(
    "read", [lambda d: d.best(key(1), "host"), lambda d: d.all(), lambda d: d.clear(), lambda d: d.add()]
)
def test_reading_makes_no_file(
    database: ProfileDatabase, path: Path, read: Callable[[ProfileDatabase], object]
) -> None:
    assert not read(database)
    assert not path.parent.exists()


# --- files to share

MEASUREMENTS = st.builds(
    Measurement,
    key=st.integers(0, 3).map(key),
    device=st.sampled_from(["host", "dsa"]),
    latency=st.floats(1e-9, 1e3),
    spread=st.floats(0, 1e3),
    runs=st.integers(1, 10**6),
    versions=st.dictionaries(st.sampled_from(["tvm", "eqfuse"]), st.sampled_from(["0.1", "é"])),
    schedule=st.sampled_from(["", '{"tile": 8}', "[1.5]"]),
    subgraph=st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    measured_at=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
)


@examples(4)  # each makes two databases
@given(st.lists(MEASUREMENTS, max_size=6))
def test_export_and_load_keep_everything(measurements: list[Measurement]) -> None:
    with tempfile.TemporaryDirectory() as name:
        first, second = (ProfileDatabase.open(Path(name) / file) for file in ("a.db", "b.db"))
        first.add(*measurements)
        count = first.export(Path(name) / "profile.json")
        assert second.load(Path(name) / "profile.json") == (count, count)
        assert second.all() == first.all()


def test_export_of_a_device(database: ProfileDatabase, tmp_path: Path) -> None:
    database.add(measured(), measured(device="dsa"))
    database.export(tmp_path / "out.json", device="dsa")
    devices = [m["device"] for m in json.loads((tmp_path / "out.json").read_text())["measurements"]]
    assert devices == ["dsa"]


def test_export_leaves_nothing_beside_the_file(database: ProfileDatabase, tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("before")
    database.export(tmp_path / "out.json")
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize("target", [".", "missing/out.json", "/dev/null"])
def test_export_to_what_is_no_file(database: ProfileDatabase, tmp_path: Path, target: str) -> None:
    with pytest.raises(UsageError, match=r"is a folder|does not exist|is a device"):
        database.export(tmp_path / target)


def test_load_names_the_bad_row_and_keeps_none(database: ProfileDatabase, tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    records = [record_of(measured(1)), {**record_of(measured(2)), "runs": "many"}]
    file.write_text(json.dumps({"format": "eqfuse profile", "version": 2, "measurements": records}))
    with pytest.raises(DatabaseError, match=r"in\.json: field measurements\[1\]\.runs: must be a whole number"):
        database.load(file)
    assert database.all() == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a JSON file"),
        ("\udcff", "not a JSON file"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "field format"),
        ('{"format": "eqfuse profile", "version": 1}', "field version: must be 2, not 1"),
        ('{"format": "eqfuse profile", "version": 2}', "field measurements: must be a list"),
        ('{"format": "eqfuse profile", "version": 2, "measurements": [3]}', r"field measurements\[0\]: must be an obj"),
        (
            '{"format": "eqfuse profile", "version": 2, "measurements": [{"speed": 1}]}',
            r"field measurements\[0\]\.speed: unknown",
        ),
    ],
)
def test_load_of_another_file(database: ProfileDatabase, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "in.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DatabaseError, match=message):
        database.load(tmp_path / "in.json")


def test_load_of_no_file(database: ProfileDatabase, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="cannot be read"):
        database.load(tmp_path / "none.json")


# --- damage


def overwrite(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_text("not a database, and longer than the header of one" * 9),
    "zeros": lambda path: overwrite(path, 0, bytes(4096)),
    "malformed": lambda path: overwrite(path, 4096, bytes(range(256)) * 16),
    "truncated": lambda path: os.truncate(path, 4096),
    "newer": lambda path: execute(path, "PRAGMA user_version=99"),
    "format": lambda path: overwrite(path, 44, bytes([9] * 4)),
    "no table": lambda path: execute(path, "DROP TABLE measurement"),
    "bad row": lambda path: execute(path, "UPDATE measurement SET versions='?'"),
    "no text": lambda path: execute(path, "UPDATE measurement SET subgraph=CAST(x'ff' AS TEXT)"),
}


@pytest.fixture(params=DAMAGE)
def damaged(request: pytest.FixtureRequest, database: ProfileDatabase, path: Path) -> bytes:
    """The content of a database that was damaged."""
    database.add(*(measured(number) for number in range(50)))
    DAMAGE[request.param](path)
    return path.read_bytes()


def test_what_is_damaged_is_moved_aside(
    damaged: bytes, database: ProfileDatabase, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert database.all() == ()
    (aside,) = path.parent.glob("profile.db.corrupt-*")
    assert aside.read_bytes() == damaged
    warning = capsys.readouterr().err
    assert (warning.count("\n"), f"{path}: " in warning, f"moved aside to {aside}," in warning) == (1, True, True)


def test_a_new_database_takes_its_place(damaged: bytes, path: Path) -> None:
    fresh = ProfileDatabase.open(path)
    fresh.all()
    fresh.add(measured(7))
    assert ProfileDatabase.open(path).all() == (measured(7),)


def test_writing_repairs_what_it_meets(database: ProfileDatabase, path: Path) -> None:
    path.parent.mkdir()
    DAMAGE["no database"](path)
    database.add(measured())
    assert database.all() == (measured(),)


def test_what_is_moved_aside_later_has_a_name_of_its_own(database: ProfileDatabase, path: Path) -> None:
    for _ in range(3):
        database.add(measured())
        DAMAGE["no database"](path)
        database.all()
    assert len(list(path.parent.glob("profile.db.corrupt-*"))) == 3


def test_an_empty_file_is_an_empty_database(database: ProfileDatabase, path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert database.all() == ()
    assert database.add(measured()) == 1


@pytest.mark.parametrize("use", [lambda d: d.all(), lambda d: d.add(measured())])
def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, use: Callable[[ProfileDatabase], object]) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"weights" * 1000)
    with pytest.raises(DatabaseError, match=r"model\.onnx: not a database"):
        use(ProfileDatabase.open(model))
    assert model.read_bytes() == b"weights" * 1000


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    execute(tmp_path / "other.db", "CREATE TABLE t (x)")
    with pytest.raises(DatabaseError, match="of another program"):
        ProfileDatabase.open(tmp_path / "other.db").add(measured())
    assert [p.name for p in tmp_path.iterdir()] == ["other.db"]


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="is not a file"):
        ProfileDatabase.open(tmp_path).all()


# --- locks and permissions


def test_a_locked_database(database: ProfileDatabase, path: Path) -> None:
    database.add(measured())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="locked by another process for"):
            ProfileDatabase.open(path, timeout=0.05).add(measured(2))
    assert len(database.all()) == 1


def test_reading_does_not_wait_for_a_writer(database: ProfileDatabase, path: Path) -> None:
    database.add(measured())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM measurement")
        assert ProfileDatabase.open(path, timeout=0).all() == (measured(),)


@pytest.fixture
def read_only() -> Iterator[ProfileDatabase]:
    """A database with one measurement, where this process may not write."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ProfileDatabase.open(folder / "profile.db").add(measured())
        (folder / "profile.db").chmod(0o444)
        folder.chmod(0o555)
        if os.geteuid() == 0:  # may write everywhere
            os.seteuid(NOBODY)
        yield ProfileDatabase.open(folder / "profile.db")
        os.seteuid(os.getuid())
        folder.chmod(0o755)


def test_what_may_not_be_written_can_be_read(read_only: ProfileDatabase) -> None:
    assert read_only.all() == (measured(),)


def test_writing_where_one_may_not(read_only: ProfileDatabase) -> None:
    with pytest.raises(DatabaseError, match=r"cannot be opened or written .*; set XDG_CACHE_HOME"):
        read_only.add(measured(2))


def test_making_a_database_where_one_may_not(read_only: ProfileDatabase) -> None:
    with pytest.raises(DatabaseError, match="Permission denied"):
        ProfileDatabase.open(read_only.path.parent / "sub" / "profile.db").add(measured())


# --- what compiled kernels tell of estimates


def test_factors_are_medians_over_the_kernels_of_a_template(database: ProfileDatabase) -> None:
    for number, ratio in enumerate((1.0, 3.0, 9.0)):
        database.add(replace(measured(number), template="contraction", latency=ratio * 2e-5, estimate=2e-5))
    database.add(replace(measured(7), template="rows", latency=1.0, estimate=0.5))  # one kernel says nothing of others
    database.add(replace(measured(8), device="other", template="rows", latency=1.0, estimate=0.5))
    assert database.factors("host") == {"contraction": pytest.approx(3.0)}


def test_schedules_of_other_software_are_left_out(database: ProfileDatabase) -> None:
    database.add(replace(measured(1), schedule='{"a":1}', latency=2.0, versions={"tvm": "new"}))
    database.add(replace(measured(1), schedule="", latency=3.0, versions={"tvm": "new"}))
    database.add(replace(measured(1), latency=1.0, versions={"tvm": "old"}))
    assert database.schedules("host", {"tvm": "new"}) == {key(1): {'{"a":1}': 2.0, "": 3.0}}
