"""Processes that write to one profile database at once, and that are killed while they write."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from eqfuse.costmodels.measuring.profile import Measurement, ProfileDatabase
from eqfuse.support.database import DatabaseFile

WRITER = """
import sys
from datetime import UTC, datetime
from eqfuse.support.database import DatabaseFile
from eqfuse.costmodels.measuring.profile import Measurement, ProfileDatabase
path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
database = ProfileDatabase.open(path, timeout=60)
for number in range(first, first + count):
    database.add(Measurement(f"{number:064x}", "host", 1.0, 0.0, 1, {}, subgraph="x" * 2000))
    print(number, flush=True)
"""


def writer(path: Path, first: int, count: int) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", WRITER, str(path), str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


@pytest.mark.parametrize(
    "prepare", [lambda path: None, lambda path: path.write_text("no database" * 9)], ids=["new", "damaged"]
)
def test_processes_write_at_once(tmp_path: Path, prepare: Callable[[Path], object]) -> None:
    path = tmp_path / "profile.db"
    prepare(path)
    writers = [writer(path, 100 * index, 25) for index in range(4)]
    errors = [process.communicate(timeout=60)[1] for process in writers]
    assert [process.returncode for process in writers] == [0] * 4, errors
    keys = {100 * index + number for index in range(4) for number in range(25)}
    assert {int(m.key, 16) for m in ProfileDatabase.open(path).all()} == keys
    assert len(list(tmp_path.glob("*.corrupt-*"))) == "".join(errors).count("moved aside")


def test_a_file_that_another_moves_aside_at_that_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "profile.db"
    database = ProfileDatabase.open(path)
    database.add(Measurement("0" * 64, "host", 1.0, 0.0, 1, {}))
    look = DatabaseFile._exists

    def looked(self: DatabaseFile) -> bool:
        monkeypatch.undo()
        found = look(self)
        path.rename(tmp_path / "aside")
        return found

    monkeypatch.setattr(DatabaseFile, "_exists", looked)
    assert database.add(Measurement("1" * 64, "host", 1.0, 0.0, 1, {})) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_loses_nothing_it_had_written(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "profile.db"
    process = writer(path, 0, 10**9)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(random.Random(seed).randrange(1, 60))]
    process.send_signal(signal.SIGKILL)
    reported = [int(line) for line in (*lines, *process.communicate(timeout=60)[0].splitlines())]
    kept = {int(m.key, 16) for m in ProfileDatabase.open(path).all()}
    assert (integrity(path), set(reported) - kept) == ("ok", set())
    assert ProfileDatabase.open(path).add(Measurement("f" * 64, "host", 1.0, 0.0, 1, {})) == 1
