"""Processes that answer requests, and what becomes of one that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eqfuse.support.errors import EqfuseError, UsageError
from eqfuse.support.processes import worker_process
from eqfuse.support.processes.worker_process import WorkerDiedError, WorkerFailedError, WorkerPool, WorkerProcess

MODULE = """
import os, sys, time
from eqfuse.support.errors import UsageError
from eqfuse.support.options import OptionError

def answer(request):
    if request == "compute":
        while True:
            pass
    if request == "wait":
        time.sleep(0.5)
        return "waited"
    if request == "hang":
        time.sleep(60)
    if request == "die":
        raise SystemExit(3)
    if request == "illegal":
        print("reason", file=sys.stderr)
        os.kill(os.getpid(), 4)
    if request == "print":
        os.write(1, b"chatter")
    if request == "refuse":
        raise UsageError("not this")
    if request == "option":
        raise OptionError("cost", "must be one of flops, roofline")
    if request == "number":
        return os.getpid()
    if request == "child":
        return os.fork() or time.sleep(60)
    return 2 * request

def factory(first):
    return lambda request: first + request

def count(to):
    yield from range(to)

def hog(size):
    return len(bytes(size))

def busy(path):
    open(path, "w").write(str(os.getpid()))
    while True:
        time.sleep(0.01)
"""


@pytest.fixture
def module(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("module")
    (folder / "answering.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def process(module: Path) -> Iterator[WorkerProcess]:
    process = WorkerProcess("answering:answer")
    yield process
    process.end()


def is_gone(process: int) -> bool:
    """Whether it ends within ten seconds."""
    for _ in range(100):
        path = Path("/proc", str(process), "stat")
        if not path.exists() or path.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


def is_collected(process: int) -> bool:
    """Whether nothing is left of it within ten seconds, not even its exit code."""
    for _ in range(100):
        if not Path("/proc", str(process)).exists():
            return True
        time.sleep(0.1)
    return False


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


def test_a_limit_of_processor_time_counts_no_waiting(module: Path) -> None:
    with closing(WorkerProcess("answering:answer", in_processor_time=True)) as process:
        assert process.ask("wait", 0.3) == "waited"
        with pytest.raises(WorkerDiedError, match="took too long") as died:
            process.ask("compute", 0.3)
        assert died.value.timed_out


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


def test_a_signal_that_kills_one_is_named_with_what_was_printed(process: WorkerProcess) -> None:
    with pytest.raises(WorkerDiedError, match=r"crashed \(SIGILL\)") as died:
        process.ask("illegal", 10.0)
    assert (died.value.signal, died.value.output) == (signal.SIGILL, "reason\n")


def test_what_libraries_print_is_no_answer(process: WorkerProcess) -> None:
    assert process.ask("print", 10.0) == "printprint"


def test_exceptions_come_back(process: WorkerProcess) -> None:
    with pytest.raises(UsageError, match="not this"):
        process.ask("refuse", 10.0)
    with pytest.raises(WorkerFailedError, match="TypeError: unsupported operand") as failed:
        process.ask(None, 10.0)
    assert failed.value.kind == "TypeError"
    assert process.is_running


def test_a_setup_makes_the_function_once(module: Path) -> None:
    with closing(WorkerProcess("answering:factory", setup=(40,), start_seconds=10.0)) as process:
        assert (process.ask(1, 10.0), process.ask(2, 10.0)) == (41, 42)


def test_a_start_that_fails_is_no_fault_of_the_request(module: Path) -> None:
    with closing(WorkerProcess("answering:absent", start_seconds=10.0)) as process:
        with pytest.raises(WorkerDiedError, match="exit code 1") as died:
            process.ask(1, 10.0)
        assert not died.value.started
        assert "AttributeError" in died.value.output


def test_messages_come_one_by_one(module: Path) -> None:
    with closing(WorkerProcess("answering:count")) as process:
        process.send(2)
        process.send(1)
        assert [process.receive(10.0) for _ in range(5)] == [0, 1, None, 0, None]


def test_the_memory_is_limited(module: Path) -> None:
    with closing(WorkerProcess("answering:hog")) as process:
        process.send(1 << 30, memory=1 << 29)
        with pytest.raises(WorkerFailedError, match="MemoryError"):
            process.receive(10.0)


def test_one_that_is_idle_for_too_long_is_started_again(module: Path) -> None:
    with closing(WorkerProcess("answering:answer", idle_seconds=0.2)) as process:
        assert process.ask(1, 10.0) == 2
        while process.is_running:
            time.sleep(0.01)
        assert process.ask(21, 10.0) == 42


def test_one_that_ends_by_itself_is_collected(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "may_fork", lambda: False)
    with closing(WorkerProcess("answering:answer", idle_seconds=0.2)) as process:
        number = process.ask("number", 10.0)
        assert is_gone(number)
        assert is_collected(number)


def test_one_that_is_forgotten_is_collected(module: Path) -> None:
    number = WorkerProcess("answering:answer").ask("number", 10.0)
    assert is_collected(number)


def test_what_it_started_ends_with_it(process: WorkerProcess) -> None:
    child = process.ask("child", 10.0)
    process.end()
    assert is_gone(child)


def test_a_pool_has_a_process_for_each_thread_and_ends_all(module: Path) -> None:
    pool = WorkerPool(lambda: WorkerProcess("answering:answer"))
    with pool.borrow() as first, pool.borrow() as second:
        assert first.ask(1, 10.0) == second.ask(1, 10.0) == 2
    assert pool.ask(21, 10.0) == 42
    closing_thread = threading.Timer(0.5, pool.close)
    closing_thread.start()
    with pytest.raises(WorkerDiedError, match="was stopped"):
        pool.ask("hang", 10.0)
    closing_thread.join()
    assert not first.is_running
    assert not second.is_running
    with pytest.raises(WorkerDiedError, match="was stopped"):
        pool.ask(1, 10.0)


def test_a_pool_answers_all_requests_in_either_order(module: Path) -> None:
    with WorkerPool(lambda: WorkerProcess("answering:answer")) as pool:
        requests = ["wait", 1, 2, 3]
        assert list(pool.ask_all(WorkerProcess.ask, requests, 2)) == ["waited", 2, 4, 6]
        assert set(pool.ask_all(WorkerProcess.ask, requests, 2, in_order=False)) == {"waited", 2, 4, 6}
        assert len(pool._all) == 2
        assert list(pool.ask_all(WorkerProcess.ask, [], 2)) == []


def test_a_pool_is_asked_while_other_work_goes_on(module: Path) -> None:
    with WorkerPool(lambda: WorkerProcess("answering:answer")) as pool:
        with pool.ask_meanwhile(21, 10.0) as receive:
            assert receive() == 42
        with pool.ask_meanwhile("refuse", 10.0) as receive, pytest.raises(UsageError, match="not this"):
            receive()
        with pool.ask_meanwhile("wait", 10.0):
            pass
        assert pool.ask(1, 10.0) == 2  # not what nobody awaited
        with pool.ask_meanwhile("hang", 0.1) as receive, pytest.raises(WorkerDiedError, match="took too long"):
            receive()


def test_a_request_that_fails_ends_those_that_run_and_not_the_pool(module: Path) -> None:
    with WorkerPool(lambda: WorkerProcess("answering:answer")) as pool:
        with pytest.raises(UsageError, match="not this"):
            list(pool.ask_all(WorkerProcess.ask, ["refuse", "hang", "hang", "hang"], 2))
        assert pool.ask(21, 10.0) == 42


def test_what_is_called_meanwhile_may_give_up(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_POLL", 0.05)

    def give_up() -> None:
        raise UsageError("enough")

    with WorkerPool(lambda: WorkerProcess("answering:answer")) as pool:
        with pytest.raises(UsageError, match="enough"):
            list(pool.ask_all(WorkerProcess.ask, ["hang", "hang"], 1, meanwhile=give_up))
        assert pool.ask(21, 10.0) == 42


def test_what_lies_in_the_working_folder_is_not_imported(
    process: WorkerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit(7)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert process.ask(21, 10.0) == 42


def test_one_whose_parent_is_killed_ends_whatever_it_does(module: Path, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from eqfuse.support.processes.worker_process import WorkerProcess\n"
        "WorkerProcess('answering:busy').ask(sys.argv[1], 60)\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    named = tmp_path / "worker.pid"
    parent = subprocess.Popen([sys.executable, "-c", script, str(named)], env={**os.environ, "PYTHONPATH": path})
    while not (named.exists() and named.read_text()):
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    assert is_gone(int(named.read_text()))


def test_an_error_that_cannot_be_sent_comes_as_its_line(process: WorkerProcess) -> None:
    with pytest.raises(EqfuseError, match="must be one of flops, roofline"):
        process.ask("option", 20)


def test_none_outlives_the_process_that_started_it(module: Path) -> None:
    """However busy it is: once the other is gone, so is it."""
    script = """
from eqfuse.support.processes.worker_process import WorkerProcess
busy = WorkerProcess("answering:answer")
print(WorkerProcess.ask(busy, "wait"), busy._process.pid)
busy.send("compute")
"""
    path = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    answer, number = done.stdout.split()
    assert answer == "waited"
    with pytest.raises(ProcessLookupError):
        os.kill(int(number), 0)
