"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from eqfuse.support import files
from eqfuse.support.errors import EqfuseError
from eqfuse.support.files import replace_folder, staged_file


def folder(path: Path, content: str) -> Path:
    path.mkdir(parents=True)
    (path / "file").write_text(content)
    return path


def replaced_by_many(tmp_path: Path, threads: int, times: int) -> list[BaseException]:
    """Let threads put one folder after another to the same place at once; what went wrong."""
    folders = [[folder(tmp_path / f"{i}" / f"{n}", "new") for n in range(times)] for i in range(threads)]
    problems: list[BaseException] = []

    def work(mine: list[Path]) -> None:
        try:
            for each in mine:
                replace_folder(each, tmp_path / "place")
        except OSError as error:
            problems.append(error)

    running = [threading.Thread(target=work, args=(mine,)) for mine in folders]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return problems


def _fail_halfway(path: Path) -> None:
    with staged_file(path) as staged:
        staged.write_text("half of the n")
        raise OSError("disk full")


def test_a_file_replaces_another_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with staged_file(path) as staged:
        staged.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_completed_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(EqfuseError, match="file: cannot be written: disk full"):
        _fail_halfway(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("exchanges", [True, False])
def test_several_may_replace_a_folder_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool) -> None:
    if not exchanges:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    folder(tmp_path / "place", "old")
    assert replaced_by_many(tmp_path, threads=4, times=50) == []
    assert (tmp_path / "place" / "file").read_text() == "new"


def test_a_folder_is_there_at_any_time(tmp_path: Path) -> None:
    folder(tmp_path / "place", "old")
    done = threading.Event()
    absent: list[str] = []

    def look() -> None:
        while not done.is_set():
            try:
                (tmp_path / "place" / "file").read_text()
            except FileNotFoundError as error:
                absent.append(str(error))

    looking = threading.Thread(target=look)
    looking.start()
    replaced_by_many(tmp_path, threads=1, times=500)
    done.set()
    looking.join()
    assert absent == []


def test_a_link_to_a_folder_is_replaced_and_the_folder_stays(tmp_path: Path) -> None:
    elsewhere = folder(tmp_path / "elsewhere", "old")
    (tmp_path / "place").symlink_to(elsewhere)
    replace_folder(folder(tmp_path / "staged", "new"), tmp_path / "place")
    assert (tmp_path / "place" / "file").read_text() == "new"
    assert (elsewhere / "file").read_text() == "old"


def test_a_place_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_folder(folder(tmp_path / "staged", "new"), tmp_path / "nowhere" / "place")
