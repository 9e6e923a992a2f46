"""The command line in a folder of the test's own, and a cache folder, so that what a user measured decides no test."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from eqfuse.cli import progress

from ..caches import own_cache
from .command_line import CommandLine


@pytest.fixture
def eqfuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    """The command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # rows of tables are lines
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield CommandLine(tmp_path, capsys)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _no_repeated_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a command in this process is done before it says that it lives."""
    monkeypatch.setattr(progress, "_REPEATED", 1e6)


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", own_cache(tmp_path_factory.mktemp("cache")))
        yield
