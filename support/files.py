"""Files and folders that appear whole or not at all, and the user's cache folder."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import EqfuseError, UsageError
from .scratch import staging_folder


def check_destination(path: Path) -> None:
    """Raise UsageError if no file can be written: before the work, not after it."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name the file to write")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is a device or a pipe; name a file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path}: the folder {path.parent} cannot be written to")


def cache_folder() -> Path:
    """The folder of everything that is kept between runs: ``$XDG_CACHE_HOME/eqfuse``, by default under ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eqfuse"


def write_text(path: Path, text: str) -> None:
    """Write the whole file or none. Raises EqfuseError if it cannot be written."""
    with staged_file(path) as staged:
        staged.write_text(text, encoding="utf-8")


@contextmanager
def staged_file(path: Path) -> Iterator[Path]:
    """The path at which to write a file that replaces `path` at the end, unless an exception ends the context.

    Raises EqfuseError if it cannot be written.
    """
    try:
        with staging_folder(path) as folder:
            yield folder / path.name
            os.replace(folder / path.name, path)
    except OSError as error:
        raise EqfuseError(f"{path}: cannot be written: {error.strerror or error}") from None


def replace_folder(folder: Path, path: Path) -> None:
    """Move a folder to `path` on the same file system; the earlier content of `path` is then at `folder`, or gone.

    At any time, even if other processes do the same, there is a whole folder at `path`: the last one stays. Only if the
    system cannot exchange two names (other than Linux, some network file systems) `path` is free for a moment.
    Raises OSError.
    """
    while True:
        try:
            os.rename(folder, path)  # replaces only an empty folder
            return
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
        with suppress(FileNotFoundError):  # another process has just moved it away
            if _exchange(folder, path):
                return
            earlier = (folder.with_name(f"{folder.name}.earlier{number}") for number in itertools.count())
            os.rename(path, next(name for name in earlier if not name.exists()))


_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
"""The error codes of systems if a folder that is not empty, or a link to one, has the name."""
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
"""Constants of Linux, <fcntl.h>."""


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step; False if the system or the file system cannot. Raises OSError."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(second))
