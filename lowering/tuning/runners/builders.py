"""Who compiles candidates: processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ....support.errors import describe_error
from ....support.scratch import scratch_folder
from ...base.errors import TuningError
from ...base.toolchain import versions
from ...kernels.messages import Answer, Request
from ...kernels.pool import SECONDS, compile_candidates, compiling_processes

_CONNECT_SECONDS = 10.0
"""Seconds that the scheduler of a cluster may take to answer."""
_POLL = 5.0
"""Seconds between two looks at whether the cluster still has workers."""
_PATIENCE = 30.0
"""Seconds that all workers may be gone: Dask starts them again."""
_HAVE_TO_AGREE = ("eqfuse", "apache-tvm", "apache-tvm-ffi")


class Builder(Protocol):
    """Compiles candidates to the object files that their requests name."""

    def build(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """An answer for each request, in the order they come in; its object file is there by then, or a problem is."""
        ...

    def close(self) -> None:
        """End the processes that it holds."""
        ...


class PoolBuilder:
    """Compiles in processes of this machine, which stay from one call to the next.

    What takes longer than `seconds` of the processor's time or crashes the compiler is a problem: no plain schedule
    replaces it.
    """

    def __init__(self, processes: int, seconds: float = SECONDS) -> None:
        self._pool, self._processes, self._seconds = compiling_processes(), processes, seconds

    def build(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """An answer for each request, in the order they come in."""
        return compile_candidates(requests, self._processes, self._seconds, self._pool)

    def close(self) -> None:
        """End the processes."""
        self._pool.close()


class ClusterBuilder:
    """Compiles on the workers of the Dask cluster at that address, HOST:PORT of its scheduler.

    Each of them needs the same eqfuse as here. One that dies has its work done by another. Raises TuningError if
    there is no cluster, no worker or no such eqfuse, when it starts or while it builds.
    """

    def __init__(self, address: str, seconds: float = SECONDS) -> None:
        distributed = _import_distributed()
        self._address = address
        self._seconds = seconds
        try:
            self._client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise TuningError(
                f"{address}: no Dask scheduler answers ({' '.join(str(error).split())}); start one: dask scheduler"
            ) from None
        try:
            self._check_workers()
        except TuningError:
            self.close()
            raise

    def build(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """An answer for each request, in the order they come in; the object files are brought here."""
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        waiting = {}
        for request in requests:
            try:
                future = self._client.submit(compile_on_worker, request, self._seconds, pure=False)
            except _import_distributed().client.ClosedClientError:
                raise TuningError(self._gone()) from None
            waiting[future] = request
            future.add_done_callback(done.put)
        return self._answers(waiting, done)

    def _answers(self, waiting: dict[Any, Request], done: queue.SimpleQueue[Any]) -> Iterator[Answer]:
        try:
            while waiting:
                future = self._next(done)
                if future.status not in ("finished", "error"):  # the scheduler went away
                    raise TuningError(self._gone())
                yield _receive(future, waiting.pop(future))
        finally:
            self._client.cancel(list(waiting))

    def close(self) -> None:
        """Leave the cluster, which stays."""
        self._client.close()

    def _check_workers(self) -> None:
        if not self._has_workers():
            raise TuningError(self._no_workers())
        try:
            versions_of_workers: dict[str, dict[str, str]] = self._client.run(versions)
        except (ImportError, AttributeError) as error:
            raise TuningError(f"{self._address}: a worker cannot import eqfuse ({error}); install it there") from None
        here = versions()
        for worker, there in versions_of_workers.items():
            for name in _HAVE_TO_AGREE:
                if there[name] != here[name]:
                    raise TuningError(f"{worker}: has {name} {there[name]}, not {here[name]}; install the same there")

    def _next(self, done: queue.SimpleQueue[Any]) -> Any:
        gone = 0.0
        while True:
            with suppress(queue.Empty):
                return done.get(timeout=_POLL)
            gone = 0.0 if self._has_workers() else gone + _POLL
            if gone > _PATIENCE:
                raise TuningError(self._no_workers())

    def _has_workers(self) -> bool:
        return bool(self._client.scheduler_info(n_workers=1)["workers"])

    def _gone(self) -> str:
        return f"{self._address}: the Dask scheduler is gone; start it again, and the same command goes on"

    def _no_workers(self) -> str:
        return f"{self._address}: the Dask cluster has no workers; start some: dask worker {self._address}"


def compile_on_worker(request: Request, seconds: float) -> tuple[Answer, bytes]:
    """Compile on a worker of a cluster; the object file, empty if there is none.

    TVM may crash, and the worker should outlive it, so it has processes of its own.
    """
    with scratch_folder("build") as folder:
        place = Path(folder) / "kernel.o"
        (answer,) = compile_candidates([replace(request, object_file=str(place))], 1, seconds)
        return answer, b"" if answer.problem else place.read_bytes()


def _receive(future: Any, request: Request) -> Answer:
    if future.status != "finished":
        return Answer(request.name, 0.0, problem=f"not compiled: {describe_error(future.exception())}")
    answer: Answer
    answer, content = future.result()
    if not answer.problem:
        place = Path(request.object_file)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return answer


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise TuningError("distributed: not installed; pip install distributed") from None
    return distributed
