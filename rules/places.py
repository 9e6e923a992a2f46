"""Where rule files are: the shipped catalogue, its analyses, and what a user names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.errors import RuleError

if TYPE_CHECKING:
    from .records import RuleFile

DIRECTORY = Path(__file__).parent
ANALYSIS = DIRECTORY / "analysis"


@cache
def analysis_files() -> tuple[RuleFile, ...]:
    """The files that derive shapes, dtypes and the like, the declarations first."""
    from .records import read_file  # its imports take a while, and most runs read no rule file

    paths = sorted(ANALYSIS.glob("*.egg"), key=lambda path: (path.stem != "declarations", path.name))
    return tuple(read_file(path) for path in paths)


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


@cache
def shipped_files() -> tuple[RuleFile, ...]:
    """The files of the catalogue by path, the analyses apart."""
    from .records import read_file

    return tuple(read_file(p) for p in rule_paths((DIRECTORY,)) if ANALYSIS not in p.parents)
