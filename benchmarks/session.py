"""What a session costs and saves beside ONNX Runtime's, from its first call on, with an empty cache.

Both are called in turns with the same inputs on one thread: first from the start on, while another process compiles the
model; then again after its verdict. Times of calls are CPU times of the calling thread, which other processes disturb
least; `compiler` is what the other process and its own ones took.

    python benchmarks/session.py model.onnx inputs.npz [--calls 2000]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

import eqfuse

_LIMIT = 1800.0
"""Seconds until the verdict has to be there."""
_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux."""
Feeds = Mapping[str, Any]


def cpu_time(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the calling thread, and the result."""
    begin = time.thread_time()
    result = call()
    return time.thread_time() - begin, result


def call_in_turns(sessions: Mapping[str, Any], feeds: Feeds, calls: int) -> dict[str, np.ndarray[Any, Any]]:
    """The CPU seconds of each call, by session; the order changes with every turn."""
    taken = {name: np.zeros(calls) for name in sessions}
    names = list(sessions)
    for turn in range(calls):
        for name in names if turn % 2 else reversed(names):
            taken[name][turn], _ = cpu_time(partial(sessions[name].run, None, dict(feeds)))
    return taken


def wait_for_verdict(session: Any, feeds: Feeds) -> None:
    until = time.monotonic() + _LIMIT
    while session.report().sizes[0].reason in ("being compiled", "waits for more calls"):
        if time.monotonic() > until:
            raise TimeoutError("there is no verdict")
        session.run(None, dict(feeds))
        time.sleep(0.05)


def adopt_orphans() -> None:
    """Let processes whose parents end become children of this one, which counts their CPU time once they have ended."""
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1)


def has_children() -> bool:
    """Whether processes still run, those that have ended being counted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def measure(model: Path, feeds: Feeds, calls: int, table: Table) -> str:
    """Add the rows of a model; what the session says of itself in the end."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    sessions = {}
    for name, module in (("ONNX Runtime", onnxruntime), ("eqfuse", eqfuse)):
        start, sessions[name] = cpu_time(partial(module.InferenceSession, model, options))
        first, _ = cpu_time(partial(sessions[name].run, None, dict(feeds)))
        table.add_row("start", name, *(f"{1e6 * each:.0f}" for each in (start, first)), "", "")
    for phase in ("compiling", "decided"):
        for name, taken in call_in_turns(sessions, feeds, calls).items():
            first, middle, late = 1e6 * taken[0], *np.percentile(taken * 1e6, [50, 99])
            times = f"{first:.0f}", f"{middle:.1f}, {late:.1f}", f"{taken.sum():.3f}"
            table.add_row(phase, name, "", *times)
        wait_for_verdict(sessions["eqfuse"], feeds)
    while has_children():
        time.sleep(0.1)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    table.add_row("", "compiler", "", "", "", f"{used.ru_utime + used.ru_stime:.1f}")
    return str(sessions["eqfuse"].report())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("inputs", type=Path, help="an .npz file with an array for each input")
    parser.add_argument("--calls", type=int, default=2000, help="calls of each session in each phase")
    options = parser.parse_args()
    with np.load(options.inputs) as arrays:
        feeds = dict(arrays)
    adopt_orphans()
    table = Table("phase", "session", "create, us", "first call, us", "p50, p99, us", "all, CPU s")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        report = measure(options.model, feeds, options.calls, table)
    console = Console(width=120)
    console.print(options.model.stem, table)
    console.print(report)


if __name__ == "__main__":
    main()
