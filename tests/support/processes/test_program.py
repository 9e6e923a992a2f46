"""Programs that are no Python: what they print, and what becomes of those that fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eqfuse.support.processes.program import ToolError, run_program
from eqfuse.support.scratch import scratch_root


def test_its_temporary_files_go_with_those_of_this_process() -> None:
    assert run_program(["sh", "-c", 'echo "$TMPDIR"'], 10.0) == f"{scratch_root()}\n"


def test_one_that_may_fail_is_heard_all_the_same() -> None:
    assert run_program(["sh", "-c", "echo list; exit 1"], 10.0, may_fail=True) == "list\n"


@pytest.mark.parametrize(
    ("script", "text", "status"),
    [
        ("echo context >&2; echo 'x.c:1: error: no' >&2; exit 3", "sh: failed (exit code 3): x.c:1: error: no", 3),
        ("echo no room; exit 1", "sh: failed (exit code 1): no room", 1),
        ("kill -SEGV $$", "sh: failed (signal 11): no message", -11),
    ],
)
def test_a_failure_is_one_line(script: str, text: str, status: int) -> None:
    with pytest.raises(ToolError, match=re.escape(text)) as caught:
        run_program(["sh", "-c", script], 10.0)
    assert (caught.value.status, caught.value.timed_out) == (status, False)


def test_one_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="absent: cannot be run: No such file"):
        run_program([tmp_path / "absent"], 10.0)


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="sh: stopped after 0 s") as caught:
        run_program(["sh", "-c", "sleep 0.5; touch late"], 0.2, folder=tmp_path)
    assert caught.value.timed_out
    assert not list(tmp_path.iterdir())
