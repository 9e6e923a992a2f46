"""The process that calls functions for `isolation`: it answers requests until there are no more."""

from __future__ import annotations

import os
import signal

from ...errors import EqfuseError
from ...support.processor import available_cores
from ...support.worker_process import serve
from ..errors import LoweringError
from ..tvm_runtime import runtime
from .isolation import Answer, Request

_IDLE = 60
"""Seconds without a request after which the process ends itself, so that its memory is free again."""


def answer(request: Request) -> Answer:
    """Call the function. What goes wrong is part of the answer."""
    signal.alarm(0)
    try:
        os.chdir(request.folder)
        return Answer(request.function(*request.arguments, **request.named))
    except EqfuseError as error:
        return Answer(problem=error)
    except Exception as error:  # of TVM, of ONNX Runtime, of the system: many kinds
        return Answer(problem=LoweringError(" ".join(f"{type(error).__name__}: {error}".split())[-300:]))
    finally:
        signal.alarm(_IDLE)


if __name__ == "__main__":
    runtime(available_cores())
    serve(answer)
