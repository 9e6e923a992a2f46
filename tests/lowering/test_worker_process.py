"""Processes that answer requests, and what becomes of one that dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from eqfuse.lowering.worker_process import WorkerDiedError, WorkerProcess

DOUBLE = """
import pickle, sys, time
while True:
    request = pickle.load(sys.stdin.buffer)
    if request == "hang":
        time.sleep(60)
    if request == "die":
        raise SystemExit(3)
    pickle.dump(2 * request, sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def process(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("module")
    (folder / "doubling_worker.py").write_text(DOUBLE, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    process = WorkerProcess("doubling_worker")
    yield process
    process.end()


@pytest.mark.parametrize(
    ("request_", "seconds", "text", "timed_out"),
    [("die", 10.0, r"crashed \(exit code 3\)", False), ("hang", 0.5, "took too long", True)],
)
def test_one_that_dies_is_said_and_started_again(
    process: WorkerProcess, request_: str, seconds: float, text: str, timed_out: bool
) -> None:
    with pytest.raises(WorkerDiedError, match=text) as died:
        process.ask(request_, seconds)
    assert (died.value.timed_out, process.is_running) == (timed_out, False)
    assert process.ask(21, 10.0) == 42


def test_one_that_is_killed_while_it_waits_is_not_the_next_requests_fault(process: WorkerProcess) -> None:
    assert process.ask(1, 10.0) == 2
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGKILL)
    while process.is_running:
        time.sleep(0.01)
    assert process.ask(21, 10.0) == 42


def test_one_that_cannot_be_started_is_said(process: WorkerProcess) -> None:
    process._command[0] = "/nowhere/python"
    with pytest.raises(WorkerDiedError, match="cannot be started: No such file") as died:
        process.ask(1, 10.0)
    assert not died.value.started
