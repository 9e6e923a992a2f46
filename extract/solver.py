"""Asking z3 within a deadline, so that neither a long step nor Ctrl-C is lost on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from .interruptible import interruptible

_GRACE = 0.05
"""z3 looks at its own time-out only now and then; so many seconds after it, it is interrupted from outside."""


def checked(solver: Any, context: Any, deadline: float, assumptions: Sequence[Any] = ()) -> Any:
    """z3's word on a solver or optimiser of `context`: unknown where the deadline (time.monotonic) comes first."""
    import z3

    remaining = max(deadline - time.monotonic(), 0.0)
    solver.set("timeout", max(int(remaining * 1000), 1))
    watchdog = threading.Timer(remaining + _GRACE, context.interrupt)
    watchdog.start()
    try:
        return interruptible(lambda: solver.check(*assumptions), context.interrupt)
    except z3.Z3Exception:
        return z3.unknown
    finally:
        watchdog.cancel()
