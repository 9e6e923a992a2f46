"""Stores of results in the user's cache folder, so that later runs need not compute them again."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from .files import cache_folder
from .scratch import staging_folder

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The error codes of systems for a full disk."""


@dataclass(frozen=True)
class Store:
    """Files or folders in a folder, each under a key that names everything its content depends on.

    An entry appears whole or not at all, even if several processes write it. If nothing can be written nothing is kept;
    a full disk is worth a warning. With `most`, the entries that were not used for the longest time are removed.
    """

    folder: Path
    most: int | None = None

    @staticmethod
    def in_cache(name: str, most: int | None = None) -> Store:
        """A store in the cache folder: ``$XDG_CACHE_HOME/eqfuse/NAME``, by default under ``~/.cache``."""
        return Store(cache_folder() / name, most)

    def path(self, key: str) -> Path:
        """The path of the entry, whether it exists or not."""
        return self.folder / key

    def keep(self, key: str, write: Callable[[Path], object]) -> None:
        """Let `write` make the entry at a separate path, and move it to its place if that is free or has a file."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with staging_folder(self.path(key)) as staging:
                write(staging / key)
                os.utime(staging / key)
                os.replace(staging / key, self.path(key))
            if self.most is not None:
                self.trim(self.most)
        except OSError as error:
            if error.errno in FULL:
                _warn(self.folder, error.strerror)

    def keep_bytes(self, key: str, content: bytes) -> None:
        """Keep a file with a checksum, for `read_bytes`."""
        self.keep(key, lambda path: path.write_bytes(sha256(content).digest() + content))

    def read_bytes(self, key: str) -> bytes | None:
        """The content that `keep_bytes` kept; None without one, or if the file was damaged."""
        try:
            stored = self.path(key).read_bytes()
        except OSError:
            return None
        digest, content = stored[: sha256().digest_size], stored[sha256().digest_size :]
        if sha256(content).digest() != digest:
            return None
        self.use(key)
        return content

    def use(self, key: str) -> None:
        """Note that the entry was used just now."""
        with suppress(OSError):
            os.utime(self.path(key))

    def drop(self, key: str) -> None:
        """Remove the entry, a file or a folder."""
        path = self.path(key)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()

    def trim(self, most: int) -> None:
        """Remove the entries that were not used for the longest time, until `most` are left."""
        with suppress(OSError):
            entries = [path for path in self.folder.iterdir() if not path.name.startswith(".")]
            entries.sort(key=lambda path: path.stat().st_mtime, reverse=True)
            for path in entries[most:]:
                self.drop(path.name)


@cache
def source_digest(*packages: str, suffixes: tuple[str, ...] = (".py", ".toml", ".egg", ".c")) -> str:
    """SHA-256 of the source, rule and device files in packages of this project.

    It is part of the keys, so that a version under development does not get the results of yesterday's.
    """
    root = Path(__file__).parent.parent
    digest = sha256()
    for package in packages:
        for file in sorted(path for path in (root / package).rglob("*") if path.suffix in suffixes):
            digest.update(file.read_bytes())
    return digest.hexdigest()


@cache
def _warn(folder: Path, reason: str) -> None:
    """Say once that a disk is full: each kernel of a model would say it again."""
    print(f"eqfuse: warning: {folder}: nothing more is kept: {reason}", file=sys.stderr)
