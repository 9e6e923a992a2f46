"""The process that judges compiled code for a model and a set of input sizes: a `Job` on standard input, a `Verdict` on
standard output.

It yields to everything else, and outlives its parent if it has begun by then: the next process finds the verdict.
"""

from __future__ import annotations

import errno
import os
import pickle
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...support.errors import EqfuseError
from ...support.processes.forked_process import allow_forks
from ...support.scratch import scratch_folder
from ...support.store import FULL
from .verdicts import Job, Verdict, Verdicts, require_equal, try_lock

if TYPE_CHECKING:
    from ...lowering.bundle.loaded import LoadedModel

_NICENESS = 19
_LIMIT = 1800
"""Seconds after which the process ends itself, the wait for others not counted."""
_WAIT = 0.5
"""Seconds between two checks whether other models are done: one is compiled at a time."""
_BLOCKS = 10
"""Blocks of calls of both by which their times are compared."""
_SECONDS = 5.0
"""Seconds after which fewer blocks are enough."""
_FASTER = 1.02
"""How many times as long ONNX Runtime has to take for compiled code to take over: less may be noise."""


def main() -> None:
    """Answer the job."""
    os.nice(_NICENESS)
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of libraries go to standard error
    job: Job = pickle.load(sys.stdin.buffer)
    parent, verdicts = os.getppid(), Verdicts()
    while (turn := try_lock(verdicts.folder() / ".compiling.lock")) is None:
        time.sleep(_WAIT)
        if os.getppid() != parent:
            return  # nobody waits any more
    signal.alarm(_LIMIT)
    allow_forks()
    with scratch_folder("session") as folder:
        verdict = find_verdict(job, Path(folder), verdicts)
    answer.write(verdict.text)
    answer.close()
    os.close(turn)


def find_verdict(job: Job, folder: Path, verdicts: Verdicts) -> Verdict:
    """Compile, compare and time the model in a folder, and keep the verdict."""
    bundle = folder / "bundle"
    try:
        verdict = _judge(job, folder, bundle)
    except Exception as error:  # of many kinds; each of them is a reason to leave the model to ONNX Runtime
        reason = " ".join(str(error).split()) if isinstance(error, EqfuseError) else repr(error)
        verdict = Verdict(False, reason[:500], lasting=not _is_full(error))
    if verdict.lasting and not verdicts.keep(job.key, verdict, bundle if verdict.takes_over else None):
        verdict = replace(verdict, takes_over=False, reason=f"{verdicts.folder()}: cannot be written to", lasting=False)
    return verdict


def _judge(job: Job, folder: Path, bundle: Path) -> Verdict:
    import onnxruntime

    from ...engine.verification.judges.quantization import largest_steps
    from ...lowering.running.runner import load
    from ..compiler.compile import compile_model
    from ..compiler.options import CompileOptions

    model = folder / "model.onnx"
    if isinstance(job.model, bytes):
        model.write_bytes(job.model)
    else:
        model = Path(job.model)
    sample = folder / "inputs.npz"
    np.savez(sample, allow_pickle=False, **job.inputs)
    if job.typical is None:
        shapes = {name: array.shape for name, array in job.inputs.items()}
        options = CompileOptions(partition="none", threads=job.threads, input_shapes=shapes, inputs=(sample,))
    else:
        options = CompileOptions(partition="none", threads=job.threads, typical=job.typical, inputs=(sample,))
    compile_model(model, bundle, options)
    compiled = load(bundle, job.threads)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = job.threads
    session = onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    expected = dict(zip((o.name for o in session.get_outputs()), session.run(None, dict(job.inputs)), strict=True))
    computed = compiled.run(job.inputs)
    steps = largest_steps(model, dict(job.inputs), expected, computed)
    require_equal(expected, computed, steps)
    speed = _compare_times(session, compiled, job)
    if speed < _FASTER:
        return Verdict(False, "not clearly faster", speed)
    return Verdict(True, "compiled", speed, steps=steps)


def _compare_times(session: Any, compiled: LoadedModel, job: Job) -> float:
    """How many times as long ONNX Runtime takes; on one thread in CPU time."""
    from ...lowering.running.turns import time_warm_calls, wait_until_idle

    feeds, clock = dict(job.inputs), time.process_time if job.threads == 1 else time.perf_counter
    wait_until_idle()
    runtime, taken = time_warm_calls(
        lambda: session.run(None, feeds), lambda: compiled.run(feeds), clock=clock, blocks=_BLOCKS, seconds=_SECONDS
    )
    return runtime / max(taken, 1e-9)


def _is_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it comes from, is that a disk is full or memory is out."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in FULL):
            return True
        if os.strerror(errno.ENOSPC) in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


if __name__ == "__main__":
    main()
