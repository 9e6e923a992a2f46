"""Temporary folders that do not outlive their process for long, however it ends.

Each process has one folder below the system's for temporary files, and holds a lock on it. The folder of a killed
process is recognised by its lock, which the system has released, and removed by the next process that makes one.
"""

from __future__ import annotations

import atexit
import fcntl
import glob
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "eqfuse-scratch-"
_STAGING = ".eqfuse-staging-"
_TOKEN_BYTES = 8
"""Random bytes in the name of a folder."""
_FRESH = 10.0
"""Seconds for which a folder without a lock may be one that is just being made."""

_root: tuple[int, Path] | None = None
"""The process that made the folder, and the folder."""
_making = threading.Lock()


def scratch_root() -> Path:
    """The folder of this process for everything temporary; removed when it ends."""
    global _root
    with _making:
        if _root is None or _root[0] != os.getpid() or not _root[1].is_dir():
            parent = Path(tempfile.gettempdir())
            _sweep(parent, _PREFIX)
            folder = parent / f"{_PREFIX}{os.urandom(_TOKEN_BYTES).hex()}"
            atexit.register(_remove, folder, os.getpid())  # before the folder exists: a signal may come at any moment
            folder.mkdir(0o700)
            _lock(folder)  # until the process ends
            _root = (os.getpid(), folder)
        return _root[1]


def scratch_environment() -> dict[str, str]:
    """The environment for a program whose temporary files go with those of this process."""
    return {**os.environ, "TMPDIR": str(scratch_root())}


def scratch_folder(label: str) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder of this process, as a context; `label` begins its name."""
    return tempfile.TemporaryDirectory(prefix=f"{label}-", dir=scratch_root(), ignore_cleanup_errors=True)


@contextmanager
def staging_folder(beside: Path) -> Iterator[Path]:
    """A folder beside a file or folder that is about to be written, on its file system; removed at the end.

    Raises OSError if none can be made.
    """
    parent = beside.absolute().parent
    prefix = f".{beside.name[:100]}{_STAGING}"
    _sweep(parent, prefix)
    folder = parent / f"{prefix}{os.urandom(_TOKEN_BYTES).hex()}"
    lock = None
    try:
        folder.mkdir(0o700)
    except OSError as error:  # with the path that the user named
        raise OSError(error.errno, error.strerror, str(beside)) from None
    try:
        lock = _lock(folder)
        yield folder
    finally:
        _remove(folder, os.getpid(), lock)


def _lock(folder: Path) -> int | None:
    """A locked handle of the folder; None if the file system has no locks. Not passed on to other programs."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove(folder: Path, owner: int, lock: int | None = None) -> None:
    if os.getpid() == owner:  # a forked process has its parent's folder, and leaves it alone
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            with suppress(OSError):
                os.close(lock)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove folders of this name and a token whose processes are gone, as far as they are this user's.

    A folder that the user calls by the same prefix has no token, and is not removed.
    """
    token = "[0-9a-f]" * 2 * _TOKEN_BYTES
    with suppress(OSError):
        for folder in parent.glob(glob.escape(prefix) + token):
            with suppress(OSError):
                info = folder.lstat()
                if info.st_uid == os.getuid() and folder.is_dir() and time.time() - info.st_mtime > _FRESH:
                    lock = _lock(folder)
                    if lock is not None:
                        _remove(folder, os.getpid(), lock)
