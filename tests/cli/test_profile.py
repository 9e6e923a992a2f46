"""``eqfuse profile list``, ``export``, ``import`` and ``clear``."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eqfuse.costmodels.measuring.profile import Measurement, ProfileDatabase

from .command_line import CommandLine

TEXT = "%0: float32[1,8]\n  %1: float32[1,8] = Exp(%0)\n  %2: float32[1,8] = Softmax(%1) {axis=-1}\nreturn %2"
MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def database(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> ProfileDatabase:
    """The user's database, with a measurement on `host` and one on `dsa`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(eqfuse.folder / "cache"))
    made = ProfileDatabase.open()
    versions = {"eqfuse": "0.1.0", "tvm": "0.27"}
    made.add(
        Measurement("a" * 64, "host", 2.5e-5, 1e-6, 20, versions, '{"tile":8}', TEXT, MOMENT),
        Measurement("b" * 64, "dsa", 1.5, 0.25, 3, versions, "", TEXT, MOMENT),
    )
    return made


def test_list_shows_each_measurement(eqfuse: CommandLine, database: ProfileDatabase) -> None:
    outcome = eqfuse.run("profile", "list", "-v")
    lines = outcome.out.rstrip().splitlines()
    assert (outcome.code, outcome.err) == (0, "")
    assert lines[0] == f"2 measurements in {database.path}"
    assert " ".join(lines[-1].split()) == (
        'aaaaaaaaaaaa host Exp Softmax {"tile":8} eqfuse 0.1.0, tvm 0.27 2026-01-31 12:00:00 25 us 1 us 20'
    )
    short = eqfuse.run("profile", "list").out.rstrip().splitlines()
    assert short[-1].split() == ["aaaaaaaaaaaa", "host", "Exp", "Softmax", "25", "us", "1", "us", "20"]


def test_list_of_a_device_as_json(eqfuse: CommandLine, database: ProfileDatabase) -> None:
    records = json.loads(eqfuse.run("profile", "list", "--device", "dsa", "--json").out)["measurements"]
    assert [(r["key"], r["latency"], r["measured_at"]) for r in records] == [
        ("b" * 64, 1.5, "2026-01-31T12:00:00.000000+00:00")
    ]


@pytest.mark.parametrize("action", ["list", "clear"])
def test_without_a_database_none_is_made(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(eqfuse.folder))
    outcome = eqfuse.run("profile", action)
    assert (outcome.code, "0 measurements" in outcome.out, eqfuse.files()) == (0, True, [])


def test_export_and_import(eqfuse: CommandLine, database: ProfileDatabase) -> None:
    exported = eqfuse.run("profile", "export", "out.json")
    imported = eqfuse.run("profile", "import", "out.json", "--database", "other.db")
    assert (exported.out, imported.out) == ("out.json: 2 measurements written\n", "other.db: 2 measurements imported\n")
    assert ProfileDatabase.open(eqfuse.folder / "other.db").all() == database.all()


def test_import_keeps_what_is_newer(eqfuse: CommandLine, database: ProfileDatabase) -> None:
    eqfuse.run("profile", "export", "out.json")
    content = json.loads(Path("out.json").read_text())
    content["measurements"][0]["measured_at"] = "2025-01-01T00:00:00Z"
    eqfuse.write("out.json", json.dumps(content))
    outcome = eqfuse.run("profile", "import", "out.json")
    assert outcome.out.endswith(": 1 measurement imported; 1 older than those in the database, left out\n")


def test_import_names_the_bad_field(eqfuse: CommandLine, database: ProfileDatabase) -> None:
    eqfuse.run("profile", "export", "out.json")
    eqfuse.write("out.json", Path("out.json").read_text().replace('"latency": 2.5e-05', '"latency": "fast"'))
    error = eqfuse.fail(1, "profile", "import", "out.json", "--database", "other.db")
    assert error == "out.json: field measurements[1].latency: must be a number, not 'fast'"
    assert "other.db" not in eqfuse.files()


def test_clear_says_what_it_removed(eqfuse: CommandLine, database: ProfileDatabase) -> None:
    outcome = eqfuse.run("profile", "clear", "--device", "host")
    assert outcome.out == f"{database.path}: 1 measurement of device host removed\n"
    assert [m.device for m in database.all()] == ["dsa"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("export", "out.json"), {"file": "out.json", "exported": 2}),
        (("export", "out.json", "--device", "dsa"), {"file": "out.json", "exported": 1}),
        (("clear",), {"database": "{path}", "removed": 2}),
    ],
)
def test_results_as_json(
    eqfuse: CommandLine, database: ProfileDatabase, arguments: tuple[str, ...], expected: dict[str, object]
) -> None:
    content = json.loads(eqfuse.run("profile", *arguments, "--json").out)
    assert {name: content[name] for name in expected} == {
        k: str(database.path) if v == "{path}" else v for k, v in expected.items()
    }


def test_quiet_prints_nothing(eqfuse: CommandLine, database: ProfileDatabase) -> None:
    outcomes = [eqfuse.run("profile", *a, "-q") for a in (("list",), ("export", "o"), ("import", "o"), ("clear",))]
    assert [(o.code, o.out, o.err) for o in outcomes] == [(0, "", "")] * 4


def test_a_damaged_database_is_a_warning(eqfuse: CommandLine, database: ProfileDatabase) -> None:
    database.path.write_bytes(b"damaged" * 1000)
    outcome = eqfuse.run("profile", "list")
    assert (outcome.code, outcome.out) == (0, f"0 measurements in {database.path}\n")
    assert outcome.err.startswith(f"eqfuse: warning: {database.path}: ")
    assert f"moved aside to {database.path}.corrupt-" in outcome.err


def test_a_model_is_no_database(eqfuse: CommandLine) -> None:
    model = eqfuse.small()
    content = model.read_bytes()
    outcome = eqfuse.run("profile", "list", "--database", "in.onnx")
    assert (outcome.code, outcome.error.split(" (")[0]) == (1, "in.onnx: not a database")
    assert model.read_bytes() == content


def test_a_locked_database_is_an_error(
    eqfuse: CommandLine, database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eqfuse.costmodels.measuring.profile.WAIT", 0.05)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        outcome = eqfuse.run("profile", "clear")
    assert outcome.code == 1
    assert "locked by another process" in outcome.error


@pytest.mark.parametrize("arguments", [("export",), ("import",), ("import", "a", "--device", "host")])
def test_usage(eqfuse: CommandLine, arguments: tuple[str, ...]) -> None:
    assert eqfuse.run("profile", *arguments).code == 2
