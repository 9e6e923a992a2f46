"""Compiling kernels in several processes at once. One that crashes costs its kernel, nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace

from ...support.processes.worker_process import WorkerDiedError, WorkerPool, WorkerProcess
from .messages import Answer, Request

SECONDS = 60.0
"""How much of the processor's time a kernel may take; a schedule that takes longer to compile is given up for a plain
one. Kernels of free sizes take 10 s."""
_IDLE_SECONDS = 60.0
"""How long a process waits for another kernel before it frees its memory."""
_KERNELS_OF_A_PROCESS = 4
"""A process is started for so many kernels at least: it takes as long to import TVM as to compile three."""
_POOLS: dict[int, KernelPool] = {}
"""Pools that wait for the next kernels, by their size."""


def prepare(processes: int) -> None:
    """Start one of so many processes now, so that the next kernels need not wait while it imports TVM."""
    _POOLS.setdefault(processes, KernelPool(processes)).prepare()


def compile_requests(requests: Sequence[Request], processes: int) -> Iterator[Answer]:
    """An answer for each request, in the order they come in. What fails is tried again with a plain schedule.

    The processes are kept for the next call.
    """
    pool = _POOLS.pop(processes, None) or KernelPool(processes)
    try:
        yield from pool.compile(requests, -(-len(requests) // _KERNELS_OF_A_PROCESS))
    except BaseException:
        pool.close()
        raise
    _POOLS.setdefault(processes, pool)


class KernelPool:
    """At most `processes` processes that compile kernels, kept from one call to the next: each imports TVM once.

    A kernel may take `seconds` of the processor's time; with `again_plainly` one that fails gets a plain schedule.
    Close it, or use ``with``.
    """

    def __init__(self, processes: int, seconds: float = SECONDS, again_plainly: bool = True) -> None:
        self._threads = ThreadPoolExecutor(max(1, processes), "compile")
        worker = f"{__package__}.worker:compile_kernel"
        self._processes = WorkerPool(lambda: WorkerProcess(worker, idle_seconds=_IDLE_SECONDS, in_processor_time=True))
        self._seconds = seconds
        self._again_plainly = again_plainly

    def __enter__(self) -> KernelPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self) -> None:
        """Start a process where none is idle."""
        self._processes.prepare()

    def compile(self, requests: Sequence[Request], at_once: int | None = None) -> Iterator[Answer]:
        """An answer for each request, in the order they come in; several threads may call at once.

        At most `at_once` are compiled at once. The work begins with the call. Closing the iterator gives up the kernels
        that are not begun.
        """
        limit = threading.Semaphore(at_once or len(requests))
        return _take([self._threads.submit(self._answer, request, limit) for request in requests])

    def close(self) -> None:
        """End the processes; kernels that are not compiled are answered with a problem."""
        self._processes.close()
        self._threads.shutdown()

    def _answer(self, request: Request, limit: threading.Semaphore) -> Answer:
        with limit:
            answer = self._ask(request)
            if answer.problem and self._again_plainly:
                return replace(self._ask(replace(request, with_rules=False)), recovered=answer.problem)
            return answer

    def _ask(self, request: Request) -> Answer:
        try:
            answer: Answer = self._processes.ask(request, self._seconds)
        except WorkerDiedError as error:
            return Answer(request.name, 0.0, problem=f"the compiler {error}", lost=not error.started)
        return answer


def _take(answers: Sequence[Future[Answer]]) -> Iterator[Answer]:
    try:
        for answer in as_completed(answers):
            yield answer.result()
    finally:
        for answer in answers:
            answer.cancel()
