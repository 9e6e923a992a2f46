"""Compiling kernels in several processes at once. One that crashes costs its kernel, nothing else."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .kernel_messages import Answer, Request

_SECONDS = 60.0
"""How long a kernel may take; a schedule that takes longer to compile is given up for a plain one."""
_PATIENCE = 0.05
"""Seconds between two attempts to end a process."""


def compile_kernels(requests: Sequence[Request], processes: int) -> Iterator[Answer]:
    """An answer for each request, in the order they come in."""
    waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    for request in requests:
        waiting.put(request)
    workers = [_Worker(waiting, answers) for _ in range(min(processes, len(requests)))]
    try:
        for _ in requests:
            yield answers.get()
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process, and a thread that hands it one kernel after another and starts it again when it dies."""

    def __init__(self, waiting: queue.SimpleQueue[Request], answers: queue.SimpleQueue[Answer]) -> None:
        self._waiting = waiting
        self._answers = answers
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process; harmless when it is gone already."""
        self._stopped = True
        while self._thread.is_alive():  # it may have started another one meanwhile
            self._end()
            self._thread.join(_PATIENCE)
        self._end()

    def _run(self) -> None:
        while not self._stopped:
            try:
                request = self._waiting.get_nowait()
            except queue.Empty:
                return
            answer = self._ask(request)
            if answer.problem and not self._stopped:
                second = self._ask(replace(request, with_rules=False))
                answer = replace(second, recovered=answer.problem)
            self._answers.put(answer)

    def _ask(self, request: Request) -> Answer:
        process = self._started()
        assert process.stdin
        assert process.stdout
        alarm = threading.Timer(_SECONDS, process.kill)
        alarm.start()
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            answer: Answer = pickle.load(process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            code = self._end()
            return Answer(request.name, 0.0, problem=f"the compiler crashed (exit code {code})")
        finally:
            alarm.cancel()
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.kernel_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        return self._process

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return code
