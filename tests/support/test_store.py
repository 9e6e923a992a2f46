"""Stores: entries appear whole, the oldest go, and nothing is lost but the store where nothing can be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from eqfuse.support.store import Store


def test_an_entry_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")

    def write_half(place: Path) -> None:
        place.write_text("ha")
        raise OSError(errno.EIO, "Input/output error")

    store.keep("entry", write_half)
    assert list(store.folder.iterdir()) == []
    store.keep("entry", lambda place: place.write_text("first"))
    store.keep("entry", lambda place: place.write_text("second"))
    assert store.path("entry").read_text() == "second"


def test_the_entries_that_were_not_used_for_long_go(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept", most=2)
    for age, key in ((3, "a"), (2, "b")):
        store.keep(key, Path.mkdir)
        os.utime(store.path(key), (0, 10 - age))
    store.use("a")
    store.keep("c", Path.mkdir)
    assert sorted(path.name for path in store.folder.iterdir()) == ["a", "c"]


@pytest.mark.parametrize("damage", [b"", b"cut", b"\0" * 32 + b"content", None], ids=str)
def test_a_file_that_was_damaged_is_none_until_it_is_kept_again(tmp_path: Path, damage: bytes | None) -> None:
    store = Store(tmp_path / "kept")
    assert store.read_bytes("entry") is None
    store.keep_bytes("entry", b"content")
    assert store.read_bytes("entry") == b"content"
    whole = store.path("entry").read_bytes()
    store.path("entry").write_bytes(whole[:-1] + b"x" if damage is None else damage)
    assert store.read_bytes("entry") is None
    store.keep_bytes("entry", b"content")
    assert store.read_bytes("entry") == b"content"


@pytest.mark.parametrize(
    ("number", "warning"),
    [(errno.ENOSPC, "nothing more is kept: No space left on device"), (errno.EROFS, "")],
)
def test_what_cannot_be_written_is_not_kept(
    tmp_path: Path, number: int, warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(place: Path) -> None:
        raise OSError(number, os.strerror(number))

    for entry in ("entry", "another"):  # a full disk is told once
        Store(tmp_path / "kept").keep(entry, fail)
    said = capsys.readouterr().err
    assert said == (f"eqfuse: warning: {tmp_path / 'kept'}: {warning}\n" if warning else "")
