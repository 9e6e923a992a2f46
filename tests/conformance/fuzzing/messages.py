"""What the process that runs commands on mutants is asked, and answers. Both sides import it by the same name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """A command line of eqfuse, and the folder to run it in."""

    folder: Path
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What a command left behind. `escaped` is the exception that it raised, `peak` the bytes of memory of the largest
    of its processes, `temporary` what it left among the temporary files."""

    code: int
    out: bytes
    err: bytes
    escaped: str
    peak: int
    temporary: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Two models to run in ONNX Runtime.

    `verified`: whether the command compared them, too, so that an original that loads makes a result that does, even
    where it cannot run. `exact`: whether what overflows in the original must do so in the result.
    """

    original: Path
    result: Path
    verified: bool
    exact: bool


@dataclass(frozen=True)
class Verdict:
    """`compared`: whether the original runs at all; `difference` says how the result is wrong."""

    compared: bool
    difference: str = ""
