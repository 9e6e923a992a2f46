"""Compiling kernels in several processes at once. One that crashes costs its kernel, nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace

from ...support.worker_process import WorkerDiedError, WorkerPool, WorkerProcess
from .messages import Answer, Request

SECONDS = 60.0
"""How long a kernel may take; a schedule that takes longer to compile is given up for a plain one."""


def compile_requests(requests: Sequence[Request], processes: int) -> Iterator[Answer]:
    """An answer for each request, in the order they come in. What fails is tried again with a plain schedule."""
    with KernelPool(min(processes, len(requests))) as pool:
        yield from pool.compile(requests)


class KernelPool:
    """At most `processes` processes that compile kernels, kept from one call to the next: each imports TVM once.

    A kernel may take `seconds`; with `again_plainly` one that fails gets a plain schedule. Close it, or use ``with``.
    """

    def __init__(self, processes: int, seconds: float = SECONDS, again_plainly: bool = True) -> None:
        self._threads = ThreadPoolExecutor(max(1, processes), "compile")
        self._processes = WorkerPool(lambda: WorkerProcess(f"{__package__}.worker:compile_kernel"))
        self._seconds = seconds
        self._again_plainly = again_plainly

    def __enter__(self) -> KernelPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compile(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """An answer for each request, in the order they come in; several threads may call at once.

        The work begins with the call. Closing the iterator gives up the kernels that are not begun.
        """
        return _take([self._threads.submit(self._answer, request) for request in requests])

    def close(self) -> None:
        """End the processes; kernels that are not compiled are answered with a problem."""
        self._processes.close()
        self._threads.shutdown()

    def _answer(self, request: Request) -> Answer:
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
