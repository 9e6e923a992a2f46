"""The command line in a folder of the test's own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .command_line import CommandLine


@pytest.fixture
def eqfuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    """The command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)
    yield CommandLine(tmp_path, capsys)
    signal.signal(signal.SIGTERM, handler)
