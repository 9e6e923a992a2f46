"""Text files that appear whole or not at all, and the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import EqfuseError, UsageError
from .scratch import staging_folder


def check_destination(path: Path) -> None:
    """Raise UsageError where no file can be written: before the work, not after it."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name the file to write")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is a device or a pipe; name a file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path}: the folder {path.parent} cannot be written to")


def cache_folder() -> Path:
    """Where everything is kept between runs: ``$XDG_CACHE_HOME/eqfuse``, by default under ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eqfuse"


def write_text(path: Path, text: str) -> None:
    """Write the whole file or none. Raises EqfuseError where it cannot be written."""
    try:
        with staging_folder(path) as folder:
            staged = folder / path.name
            staged.write_text(text, encoding="utf-8")
            os.replace(staged, path)
    except OSError as error:
        raise EqfuseError(f"{path}: cannot be written: {error.strerror or error}") from None
