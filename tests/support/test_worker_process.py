"""Processes that answer requests, and what becomes of one that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eqfuse.support.worker_process import WorkerDiedError, WorkerProcess

DOUBLE = """
import os, pickle, sys, time
while True:
    request = pickle.load(sys.stdin.buffer)
    if request == "hang":
        time.sleep(60)
    if request == "die":
        raise SystemExit(3)
    if request == "illegal":
        os.kill(os.getpid(), 4)
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


def test_one_that_was_started_before_answers_the_first_request(process: WorkerProcess) -> None:
    process.start()
    started = process._process
    assert process.is_running
    assert process.ask(21, 10.0) == 42
    assert process._process is started


def test_one_that_cannot_be_started_is_said(process: WorkerProcess) -> None:
    process._command[0] = "/nowhere/python"
    with pytest.raises(WorkerDiedError, match="cannot be started: No such file") as died:
        process.ask(1, 10.0)
    assert not died.value.started


def test_a_signal_that_kills_one_is_named(process: WorkerProcess) -> None:
    with pytest.raises(WorkerDiedError, match=r"crashed \(SIGILL\)") as died:
        process.ask("illegal", 10.0)
    assert died.value.signal == signal.SIGILL


def test_what_lies_in_the_working_folder_is_not_imported(
    process: WorkerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit(7)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert process.ask(21, 10.0) == 42


def test_one_whose_parent_is_killed_ends_whatever_it_does(tmp_path: Path) -> None:
    (tmp_path / "busy_worker.py").write_text(
        "import os, time\n"
        "from eqfuse.support.worker_process import serve\n"
        "def answer(request):\n"
        "    open(request, 'w').write(str(os.getpid()))\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        "serve(answer)\n",
        encoding="utf-8",
    )
    script = (
        "import sys\n"
        "from eqfuse.support.worker_process import WorkerProcess\n"
        "WorkerProcess('busy_worker').ask(sys.argv[1], 60)\n"
    )
    path = os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])
    named = tmp_path / "worker.pid"
    parent = subprocess.Popen([sys.executable, "-c", script, str(named)], env={**os.environ, "PYTHONPATH": path})
    while not (named.exists() and named.read_text()):
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    worker = Path("/proc", named.read_text())
    for _ in range(100):
        if not worker.exists():
            return
        time.sleep(0.1)
    raise AssertionError("the worker goes on")
