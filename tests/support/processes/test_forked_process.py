"""Worker processes that are copies of a process: in a process of its own, since tests run beside threads."""

from __future__ import annotations

import subprocess
import sys

_SETUP = """
import os, threading
from eqfuse.support.processes.forked_process import ForkedProcess, allow_forks, may_fork
from eqfuse.support.processes.worker_process import WorkerDiedError, WorkerProcess
inherited = os.open("/dev/null", os.O_RDONLY)
allow_forks()

def worker(name):
    return WorkerProcess(name, forks=True)

def death(name, request, seconds=60.0):
    try:
        return worker(name).ask(request, seconds)
    except WorkerDiedError as error:
        return str(error), error.timed_out, error.output
"""


def run(script: str) -> list[str]:
    """The lines that a program of one thread prints."""
    command = [sys.executable, "-P", "-c", _SETUP + script]
    environment = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert not done.stderr
    return done.stdout.splitlines()


def test_a_copy_answers_one_request_after_the_other() -> None:
    script = """
answering = worker("operator:neg")
print(answering.ask(1), answering.ask(2), isinstance(answering._process, ForkedProcess))
print(answering.end(), answering.is_running, answering.ask(3))
"""
    assert run(script) == ["-1 -2 True", "-9 False -3"]


def test_a_copy_that_crashes_or_hangs_is_reported_with_its_output() -> None:
    script = """
print(death("os:_exit", 3))
print(death("builtins:exec", "import os; print('last words', flush=True); os.abort()"))
print(death("time:sleep", 60, 0.2)[:2])
"""
    assert run(script) == [
        "('crashed (exit code 3)', False, '')",
        "('crashed (SIGABRT)', False, 'last words\\n')",
        "('took too long', True)",
    ]


def test_a_copy_has_its_own_files_group_and_output() -> None:
    script = """
print(len(worker("os:listdir").ask("/proc/self/fd")), os.path.exists(f"/proc/self/fd/{inherited}"))
print(worker("os:getpgid").ask(0) != os.getpgid(0))
print(worker("builtins:print").ask("not for the standard output"))
"""
    assert run(script) == ["7 True", "True", "None"]  # streams, pipes, its parent, and the listing itself


def test_a_process_with_threads_is_not_copied() -> None:
    script = """
print(may_fork())
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(may_fork())
answering = worker("operator:neg")
print(answering.ask(1), type(answering._process).__name__)
"""
    assert run(script) == ["True", "False", "-1 Popen"]


def test_a_process_without_threads_collects_those_that_ended_with_the_next_start() -> None:
    script = """
ended = WorkerProcess("os:getpgid", idle_seconds=0.1)
number = ended.ask(0)
os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)  # its last thread, too, has ended
print(threading.active_count(), worker("operator:neg").ask(1), os.path.exists(f"/proc/{number}"))
"""
    assert run(script) == ["1 -1 False"]
