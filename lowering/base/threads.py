"""How many threads a model is compiled for, and runs on."""

from __future__ import annotations

from ...support.options import OptionError
from ...support.processor import available_cores

MOST_THREADS = 1024
"""More than any machine makes use of for one model; as many as thread_pool.c has room for."""


def check_threads(threads: int | None) -> None:
    """Raise OptionError for a number of threads that no model is compiled for or runs on."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise OptionError("threads", f"must be 1 to {MOST_THREADS}, not {threads}")


def threads_for(compiled_for: int, asked_for: int | None = None) -> int:
    """How many threads a model runs on: those asked for, or those it was compiled for, but not more than cores.

    Raises OptionError for a number of them that cannot be had.
    """
    check_threads(asked_for)
    return min(asked_for or compiled_for, available_cores())
