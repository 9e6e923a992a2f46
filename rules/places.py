"""Where rule files are: the shipped catalogue, its analyses, and what a user names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.errors import RuleError
from ..support.store import Store, source_digest

if TYPE_CHECKING:
    from .records import RuleFile

DIRECTORY = Path(__file__).resolve().parent
ANALYSIS = DIRECTORY / "analysis"
_KEPT = 4
"""Catalogues of about 1 MB each: those of a few versions of this package."""


def is_analysis(path: Path) -> bool:
    """Whether a file, however its path is written, is a shipped one that derives facts."""
    return ANALYSIS in path.resolve().parents


def analysis_files() -> tuple[RuleFile, ...]:
    """The files that derive shapes, dtypes and the like, the declarations first."""
    return tuple(sorted(_of_folder(analyses=True), key=lambda file: file.path.stem != "declarations"))


def shipped_files() -> tuple[RuleFile, ...]:
    """The files of the catalogue by path, the analyses apart."""
    return _of_folder(analyses=False)


@cache
def _of_folder(*, analyses: bool) -> tuple[RuleFile, ...]:
    return tuple(file for file in _catalogue() if is_analysis(file.path) == analyses)


@cache
def _catalogue() -> tuple[RuleFile, ...]:
    """All shipped files by path, kept in the user's cache: reading the rules again takes half a second."""
    from msgspec import json  # these imports take a while, and most runs read no rule file

    from .records import RuleFile, read_file

    store = Store.in_cache("catalogue", _KEPT)
    key = sha256(f"{DIRECTORY} {source_digest('rules', 'ir')}".encode()).hexdigest()
    if (stored := store.read_bytes(key)) is not None:
        return json.decode(stored, type=tuple[RuleFile, ...], dec_hook=lambda kind, content: kind(content))
    files = tuple(map(read_file, rule_paths((DIRECTORY,))))
    store.keep_bytes(key, json.encode(files, enc_hook=str))
    return files


def rule_paths(paths: Iterable[Path]) -> list[Path]:
    """The .egg files among `paths` and in the folders among them, in a fixed order.

    Raises RuleError for a device or a pipe, which may have no end.
    """
    files: list[Path] = []
    for path in paths:
        files += sorted(p for p in path.rglob("*.egg") if not p.is_dir()) if path.is_dir() else [path]
    for path in files:
        if path.exists() and not path.is_file():
            raise RuleError(f"{path}: is a device or a pipe, not a rule file")
    return files
