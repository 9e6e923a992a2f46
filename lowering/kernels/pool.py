"""Compiling kernels in several processes at once. One that crashes costs its kernel, nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ...support.processes.worker_process import WorkerDiedError, WorkerPool, WorkerProcess
from .messages import Answer, Request

SECONDS = 60.0
"""Seconds of the processor's time that a kernel may take; a schedule that takes longer to compile is given up for a
plain one. Kernels of dynamic sizes take 10 s."""
_IDLE_SECONDS = 60.0
"""Seconds that a process waits for another kernel before it frees its memory."""
_KERNELS_OF_A_PROCESS = 4
"""Each process gets at least this number of kernels: it takes as long to import TVM as to compile three."""


def compiling_processes() -> WorkerPool:
    """Processes that compile kernels: each imports TVM once."""
    worker = f"{__package__}.worker:compile_kernel"
    return WorkerPool(lambda: WorkerProcess(worker, idle_seconds=_IDLE_SECONDS, in_processor_time=True))


_POOL = compiling_processes()
"""The processes are kept for the next kernels."""


def prepare() -> None:
    """Start a process now, so that the next kernels need not wait while it imports TVM."""
    _POOL.prepare()


def compile_requests(requests: Sequence[Request], processes: int) -> Iterator[Answer]:
    """An answer for each request, in the order they come in, from at most `processes` processes.

    What fails is tried again with a plain schedule.
    """
    at_once = min(processes, -(-len(requests) // _KERNELS_OF_A_PROCESS))
    return _POOL.ask_all(_compile_at_all, requests, at_once, in_order=False)


def compile_candidates(
    requests: Sequence[Request], processes: int, seconds: float, pool: WorkerPool = _POOL
) -> Iterator[Answer]:
    """The same, but what fails or takes more than `seconds` of the processor's time is a problem."""
    return pool.ask_all(partial(_compile, seconds=seconds), requests, processes, in_order=False)


def _compile_at_all(process: WorkerProcess, request: Request) -> Answer:
    answer = _compile(process, request, SECONDS)
    if not answer.problem:
        return answer
    return replace(_compile(process, replace(request, with_rules=False), SECONDS), recovered=answer.problem)


def _compile(process: WorkerProcess, request: Request, seconds: float) -> Answer:
    try:
        answer: Answer = process.ask(request, seconds)
    except WorkerDiedError as error:
        return Answer(request.name, 0.0, problem=f"the compiler {error}", lost=not error.started)
    return answer
