"""The process that has kernels run on another machine, through TVM's RPC: each request in a session of its own.

The server ends a session that takes too long, so that a kernel that hangs does not keep the device.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ....ir.types import TensorType
from ....support.scratch import scratch_folder
from ..sampling import Run
from .linking import Linker
from .measure_protocol import COMPARISON, Kernels, Rounds, one_line, serve
from .measuring import KernelObject
from .tensors import example_tensors
from .tracker import Tracker

_SILENCE = 10.0
"""Seconds after which a session that the server should have ended is taken for lost."""
_LITTLE_AND_BIG = 1
"""TVM's affinity mode that takes any core."""


@dataclass(frozen=True)
class Device:
    """Servers of one kind, and what is needed to bring kernels there. `seconds` is for measuring one kernel.

    `guard` is linked to each kernel (see `Linker.guard`).
    """

    tracker: Tracker
    architecture: str
    guard: Path
    threads: int
    seconds: float

    def arguments(self, longest: float) -> list[str]:
        """Those of the process, for which a request may take so long."""
        tracker = self.tracker
        values = (tracker.host, tracker.port, tracker.key, self.architecture, self.guard, self.threads, self.seconds)
        return [str(value) for value in (*values, longest)]

    def answer(self, kernels: Kernels) -> Rounds:
        """Run the kernels on a server as soon as one is free."""
        seconds = self.seconds if len(kernels) == 1 else COMPARISON * self.seconds
        with scratch_folder("measure") as folder:
            libraries = self._linked(kernels, Path(folder))
            found = self._in_session(kernels, libraries, seconds)
        if found.problem:
            gc.collect()  # what refers to the session keeps the server busy
        return found

    def _linked(self, kernels: Kernels, folder: Path) -> list[Path]:
        linker = Linker.of(self.architecture)
        libraries = [folder / f"kernel_{number}.so" for number in range(len(kernels))]
        for kernel, library in zip(kernels, libraries, strict=True):
            linker.link((kernel.object_file, self.guard), library)
        return libraries

    def _in_session(self, kernels: Kernels, libraries: Sequence[Path], seconds: float) -> Rounds:
        from tvm.error import RPCSessionTimeoutError

        try:
            session = self.tracker.session(seconds)
        except (RuntimeError, OSError) as error:  # the server went away while it was handed out
            return Rounds(problem=one_line(error), lost=True)
        signal.setitimer(signal.ITIMER_REAL, seconds + _SILENCE)
        try:
            return self._measured(session, kernels, libraries)
        except RPCSessionTimeoutError:
            return Rounds(problem=f"took longer than {seconds:g} s")
        except Exception as error:  # TVM raises many kinds
            return Rounds(problem=one_line(error), lost=not _answers(session))

    def _measured(self, session: Any, kernels: Kernels, libraries: Sequence[Path]) -> Rounds:
        session.get_function("runtime.config_threadpool")(_LITTLE_AND_BIG, self.threads)
        upload = cache(lambda parameters: _uploaded(session, parameters))
        runs = []
        for kernel, library in zip(kernels, libraries, strict=True):
            session.upload(str(library))
            module = session.load_module(library.name)
            runs.append(_run(module, kernel, session.cpu(0), upload(kernel.parameters)))
        return Rounds.of(runs)


def _uploaded(session: Any, parameters: tuple[TensorType, ...]) -> list[Any]:
    import tvm

    return [tvm.runtime.tensor(array, session.cpu(0)) for array in example_tensors(parameters)]


def _run(module: Any, kernel: KernelObject, device: Any, arguments: Sequence[Any]) -> Run:
    """Timed on the device, by its wall clock."""

    def run(number: int) -> float:
        evaluate = module.time_evaluator(kernel.symbol, device, number=number)
        return float(evaluate(*arguments).mean) * number

    return run


def _answers(session: Any) -> bool:
    """Whether there still is a server at the other end."""
    with suppress(Exception):
        session.get_function("tvm.rpc.server.workpath")
        return True
    return False


def main() -> None:
    """Answer until there are no more requests. The arguments are those of `Device.arguments`."""
    host, port, key, architecture, guard, threads, seconds, longest = sys.argv[1:]
    tracker = Tracker(host, int(port), key)
    device = Device(tracker, architecture, Path(guard), int(threads), float(seconds))
    import tvm  # noqa: F401  # before the first request, whose time runs

    serve(device.answer, float(longest))


if __name__ == "__main__":
    main()
