"""TVM with a number of threads: both of its settings are needed, one of them before it is imported."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from ..support.processor import available_cores
from ..support.scratch import scratch_folder

_LITTLE_AND_BIG = 1
"""TVM's affinity mode that takes any core."""


def runtime(threads: int) -> Any:
    """The module `tvm`, its kernels to run on `threads` threads. The setting holds for the whole process."""
    if "tvm" not in sys.modules:
        os.environ.setdefault("TVM_BIND_THREADS", "0")  # a bound thread waits while its core works for others
        os.environ.setdefault("TVM_NUM_THREADS", str(max(threads, available_cores())))
    import tvm

    tvm.get_global_func("runtime.config_threadpool")(_LITTLE_AND_BIG, threads)
    return tvm


def load_library(path: Path) -> Any:
    """The library as it is now, by a path of its own: at a path that was loaded before the system takes what was there.

    A symbolic link does not do, TVM follows it.
    """
    import tvm

    with scratch_folder("load") as folder:
        own = Path(folder) / path.name
        try:
            os.link(path, own)
        except OSError:  # another file system, or one without links
            shutil.copyfile(path, own)
        return tvm.runtime.load_module(str(own))
