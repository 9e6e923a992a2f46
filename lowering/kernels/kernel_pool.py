"""Compiling kernels in several processes at once. One that crashes costs its kernel, nothing else."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

from ...support.worker_process import WorkerDiedError, WorkerProcess
from .kernel_messages import Answer, Request

SECONDS = 60.0
"""How long a kernel may take; a schedule that takes longer to compile is given up for a plain one."""
_PATIENCE = 0.05
"""Seconds between two attempts to end a process."""


def compile_kernels(requests: Sequence[Request], processes: int) -> Iterator[Answer]:
    """An answer for each request, in the order they come in. What fails is tried again with a plain schedule."""
    with KernelPool(min(processes, len(requests))) as pool:
        yield from pool.compile(requests)


class KernelPool:
    """So many processes that compile kernels, kept from one call to the next: each imports TVM once.

    A kernel may take `seconds`; with `again_plainly` one that fails gets a plain schedule. Close it, or use ``with``.
    """

    def __init__(self, processes: int, seconds: float = SECONDS, again_plainly: bool = True) -> None:
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._workers = [_Worker(self._waiting, seconds, again_plainly) for _ in range(processes)]

    def __enter__(self) -> KernelPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def compile(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """An answer for each request, in the order they come in; several threads may call at once.

        The work begins with the call. Closing the iterator gives up what is not begun.
        """
        batch = _Batch()
        for request in requests:
            self._waiting.put(_Job(request, batch))
        return batch.take(len(requests))

    def close(self) -> None:
        """End the processes. What is not compiled is answered with a problem."""
        for worker in self._workers:
            worker.stopped = True
        for _ in self._workers:
            self._waiting.put(None)
        for worker in self._workers:
            worker.stop()


@dataclass(frozen=True)
class _Batch:
    """Where the answers to one call go, and whether anybody still waits for them."""

    answers: queue.SimpleQueue[Answer] = field(default_factory=queue.SimpleQueue)
    given_up: threading.Event = field(default_factory=threading.Event)

    def take(self, number: int) -> Iterator[Answer]:
        try:
            for _ in range(number):
                yield self.answers.get()
        finally:
            self.given_up.set()


@dataclass(frozen=True)
class _Job:
    request: Request
    batch: _Batch


class _Worker:
    """A process, and a thread that hands it one kernel after another."""

    def __init__(self, waiting: queue.SimpleQueue[_Job | None], seconds: float, again_plainly: bool) -> None:
        self.stopped = False
        self._waiting = waiting
        self._seconds = seconds
        self._again_plainly = again_plainly
        self._process = WorkerProcess(f"{__package__}.kernel_worker")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process; harmless when it is gone already."""
        while self._thread.is_alive():  # it may have started another one meanwhile
            self._process.end()
            self._thread.join(_PATIENCE)
        self._process.end()

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None:
            if not job.batch.given_up.is_set():
                job.batch.answers.put(self._answer(job.request))

    def _answer(self, request: Request) -> Answer:
        answer = self._ask(request)
        if answer.problem and self._again_plainly and not self.stopped:
            second = self._ask(replace(request, with_rules=False))
            return replace(second, recovered=answer.problem)
        return answer

    def _ask(self, request: Request) -> Answer:
        if self.stopped:
            return Answer(request.name, 0.0, problem="the compiler was stopped")
        try:
            answer: Answer = self._process.ask(request, self._seconds)
        except WorkerDiedError as error:
            return Answer(request.name, 0.0, problem=f"the compiler {error}", lost=not error.started)
        return answer
