"""Measures kernels on other machines, through TVM's RPC: on as many at once as the tracker knows."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ....support.scratch import scratch_folder
from ....support.worker_process import WorkerProcess
from ..errors import TuningError
from .linking import Linker
from .measure_protocol import Kernels, Rounds, ask
from .measuring import KernelObject, Timing
from .rpc_worker import Device
from .tracker import Tracker

ATTEMPTS = 3
"""How many sessions may be lost over a kernel before it is the kernel's fault."""
_LONGEST = 1200.0
"""Seconds until a request is given up: others may use the devices too, so it may wait for long."""
_POLL = 1.0
"""Seconds between two looks at the tracker."""
_PAUSE = 0.01
"""Seconds between two looks at a thread that ends."""
_PATIENCE = 10.0
"""Seconds that all servers may be gone: a device may be starting again."""


class RpcRunner:
    """Runs kernels on the servers with the key `device_key` of the tracker at HOST:PORT.

    They are linked for the target `triple` and run on so many threads; each may take `timeout` seconds on the device.
    Each runs in a session of its own; one whose session is lost runs again, on any server. Raises TuningError where
    there is no tracker or no server, here and later, and UsageError, ToolError or LoweringError without a linker.
    """

    def __init__(self, tracker: str, device_key: str, triple: str, threads: int, timeout: float = 10.0) -> None:
        architecture = triple.partition("-")[0]
        linker = Linker.of(architecture)
        place = Tracker.at(tracker, device_key)
        place.required_servers()
        self._folder = scratch_folder("libraries")
        guard = linker.guard(Path(self._folder.name))
        self._device = Device(place, architecture, guard, threads, timeout)
        self._processes: list[WorkerProcess] = []

    @property
    def name(self) -> str:
        """What tells its times from others'."""
        return f"rpc:{self._device.tracker.key}"

    def measure(self, kernels: Sequence[KernelObject]) -> list[Timing]:
        """A timing of each, in their order. A kernel that crashes or hangs costs itself alone."""
        return [rounds.timing for rounds in self._all([(kernel,) for kernel in kernels])]

    def compare(self, incumbent: KernelObject, challengers: Sequence[KernelObject]) -> list[list[tuple[float, float]]]:
        """For each challenger, seconds of (incumbent, challenger) in interleaved pairs; none where one fails."""
        return [rounds.pairs for rounds in self._all([(incumbent, challenger) for challenger in challengers])]

    def close(self) -> None:
        """End the processes and their sessions."""
        for process in self._processes:
            process.end()
        self._folder.cleanup()

    def _all(self, requests: Sequence[Kernels]) -> list[Rounds]:
        servers = self._device.tracker.required_servers()
        batch = _Batch(requests)
        with self._working(batch, min(servers, len(requests))):
            gone = 0.0
            while not batch.done.wait(_POLL):
                gone = 0.0 if self._has_servers() else gone + _POLL
                if gone > _PATIENCE:
                    self._device.tracker.required_servers()
        return batch.answers

    def _has_servers(self) -> bool:
        try:
            return self._device.tracker.servers() > 0
        except TuningError:
            return False

    @contextmanager
    def _working(self, batch: _Batch, number: int) -> Iterator[None]:
        """So many processes work on the batch; if it is not done by the end, the processes are ended."""
        while len(self._processes) < number:
            self._processes.append(WorkerProcess(f"{__package__}.rpc_worker", *self._device.arguments(_LONGEST)))
        processes = self._processes[:number]
        threads = [threading.Thread(target=batch.work, args=(process,), daemon=True) for process in processes]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            batch.finish(len(threads))
            while any(thread.is_alive() for thread in threads):
                if not batch.done.is_set():  # again and again: one may just be starting its process
                    for process in processes:
                        process.end()
                time.sleep(_PAUSE)


@dataclass(frozen=True)
class _Job:
    """The request at that place, whose session was lost so many times."""

    place: int
    kernels: Kernels
    lost: int = 0


class _Batch:
    """Requests, handed out to threads, and their answers."""

    def __init__(self, requests: Sequence[Kernels]) -> None:
        self.done = threading.Event()
        self.finished = False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._answers: dict[int, Rounds] = {}
        self._number = len(requests)
        for place, kernels in enumerate(requests):
            self._jobs.put(_Job(place, kernels))
        if not requests:
            self.done.set()

    @property
    def answers(self) -> list[Rounds]:
        """In the order of the requests, when all are done."""
        return [self._answers[place] for place in range(self._number)]

    def work(self, process: WorkerProcess) -> None:
        """Have the process answer one after the other, until all are done."""
        while (job := self._jobs.get()) is not None and not self.finished:
            rounds = _asked(process, job.kernels)
            if rounds.lost and job.lost + 1 < ATTEMPTS:
                self._jobs.put(replace(job, lost=job.lost + 1))
            else:
                self._answers[job.place] = rounds
            if len(self._answers) == self._number:
                self.done.set()

    def finish(self, threads: int) -> None:
        """No thread is to begin another request."""
        self.finished = True
        for _ in range(threads):
            self._jobs.put(None)


def _asked(process: WorkerProcess, kernels: Kernels) -> Rounds:
    """Kernels run elsewhere: a process that dies here is not their fault."""
    rounds = ask(process, kernels, _LONGEST)
    return rounds if rounds.seconds else replace(rounds, lost=rounds.lost or not process.is_running)
