"""Libraries of TVM's, and the threads that their kernels share loops among (thread_pool.c)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..support.processor import available_cores
from ..support.scratch import scratch_folder

MOST_THREADS = 1024
"""More than any machine makes use of for one model; as many as thread_pool.c has room for."""
USE_THREADS = "use_threads"
"""The function of each library that sets the number of threads for kernels that the calling thread runs from now on."""


def check_threads(threads: int | None) -> None:
    """Raise UsageError for a number of threads that no model is compiled for or runs on."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"threads: must be 1 to {MOST_THREADS}, not {threads}")


def threads_for(compiled_for: int, asked_for: int | None = None) -> int:
    """How many threads a model runs on: those asked for, or those it was compiled for, but not more than cores.

    Raises UsageError for a number of them that cannot be had.
    """
    check_threads(asked_for)
    return min(asked_for or compiled_for, available_cores())


def load_library(path: Path) -> Any:
    """The library as it is now."""
    import tvm

    with own_path(path) as own:
        return tvm.runtime.load_module(str(own))


@contextmanager
def own_path(library: Path) -> Iterator[Path]:
    """A path to load a library by: at one that was loaded before, the system takes what was there.

    It is a hard link where that can be had: a library that replaces the first one meanwhile does not change the link.
    (A symbolic link does not do, TVM follows it.)
    """
    with scratch_folder("load") as folder:
        own = Path(folder) / library.name
        try:
            os.link(library, own)
        except OSError:  # another file system, one without links, or somebody else's file
            shutil.copyfile(library, own)
        yield own
