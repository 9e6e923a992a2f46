"""Temporary folders: gone with their process, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eqfuse.support.scratch import staging_folder

HOLD = """
import sys, time
from pathlib import Path
from eqfuse.support.scratch import scratch_folder, staging_folder
with scratch_folder("held"), staging_folder(Path(sys.argv[1])):
    print("ready", flush=True)
    if sys.argv[2] == "wait":
        time.sleep(60)
"""


def holder(folder: Path, then: str) -> subprocess.Popen[bytes]:
    """A process that holds a scratch folder in `folder` and a staging folder beside `folder/out`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / "out"), then],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def age(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - 3600,) * 2)


def test_nothing_is_left_by_a_process_that_ends(tmp_path: Path) -> None:
    assert holder(tmp_path, "end").wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed = holder(tmp_path, "wait")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(list(tmp_path.iterdir())) == 2
    age(tmp_path)
    assert holder(tmp_path, "end").wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_living_process_holds_is_left_alone(tmp_path: Path) -> None:
    living = holder(tmp_path, "wait")
    before = set(tmp_path.iterdir())
    age(tmp_path)
    assert holder(tmp_path, "end").wait() == 0
    assert set(tmp_path.iterdir()) == before
    living.kill()
    living.wait()


@pytest.mark.parametrize("name", ["eqfuse-bundle", "eqfuse-scratch-mine", ".out.eqfuse-staging-kept"])
def test_a_folder_of_the_user_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    age(tmp_path)
    assert holder(tmp_path, "end").wait() == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_staging_folder_goes_where_an_error_leaves_it(tmp_path: Path) -> None:
    def fail() -> None:
        with staging_folder(tmp_path / "a[b]*") as folder:
            (folder / "part").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []
