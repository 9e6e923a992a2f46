"""The process that schedules and compiles kernels: requests come in and answers go out as pickles.

TVM may crash on a kernel and take its process with it, so it has processes of its own.
"""

from __future__ import annotations

import pickle
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .kernel_messages import Answer, Request

if TYPE_CHECKING:
    from typing import BinaryIO


@dataclass(frozen=True)
class _Scheduled:
    """Fallback of the schedules' own result: nothing is packed."""

    schedule: Any
    repack: Any = None


def compile_kernel(request: Request) -> Answer:
    """Schedule and compile one kernel to an object file. What goes wrong is part of the answer."""
    started = time.perf_counter()
    try:
        repack = _compile(request)
    except Exception as error:  # TVM raises many kinds; each of them is about this kernel alone
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Answer(request.name, time.perf_counter() - started, problem=text[-300:])
    return Answer(request.name, time.perf_counter() - started, repack=repack)


def _compile(request: Request) -> Any:
    import tvm

    prim_func = tvm.ir.load_json(request.prim_func)
    scheduled = _schedule(prim_func, request)
    (function,) = scheduled.schedule.mod.functions.values()
    module = tvm.IRModule({request.name: function.with_attr("global_symbol", request.name)})
    executable = tvm.compile(module, target=tvm.target.Target(request.target))
    executable.mod.write_to_file(request.object_file, "o")
    return scheduled.repack


def _schedule(prim_func: Any, request: Request) -> Any:
    from .scheduling import plain

    return _Scheduled(plain(prim_func, request.device))


def main() -> None:
    """Answer until there are no more requests."""
    requests: BinaryIO = sys.stdin.buffer
    answers: BinaryIO = sys.stdout.buffer
    sys.stdout = sys.stderr  # what libraries print is no answer
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            request: Request = pickle.load(requests)
            Path(request.object_file).parent.mkdir(exist_ok=True)
            pickle.dump(compile_kernel(request), answers)
            answers.flush()


if __name__ == "__main__":
    main()
