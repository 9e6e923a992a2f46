"""The C files of the loops, by operator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..base.errors import LoweringError

_FOLDER = Path(__file__).with_name("sources")
_OPERATORS = re.compile(r"/\* Operators: ([\w\s*]+?)\*/")
_DEFINED = re.compile(r"^\s*#define (\w+)", re.MULTILINE)


@cache
def loop_files() -> Mapping[str, Path]:
    """The file of each operator that has a loop, by its name in ONNX."""
    files: dict[str, Path] = {}
    for path in sorted(_FOLDER.rglob("*.c")):
        named = _OPERATORS.match(path.read_text(encoding="utf-8"))
        if named is None:
            raise LoweringError(f"{path.name}: its first line has to be /* Operators: ... */")
        files.update(dict.fromkeys(re.findall(r"\w+", named[1]), path))
    return files


@cache
def header() -> str:
    """The header that every loop is written with."""
    return (_FOLDER / "tensor.h").read_text(encoding="utf-8")


@cache
def control_flow() -> str:
    """The header that Loop and Scan are written with."""
    return (_FOLDER / "control_flow.h").read_text(encoding="utf-8")


@cache
def packed() -> str:
    """How a compiled model calls a loop."""
    return (_FOLDER / "packed.h").read_text(encoding="utf-8")


@cache
def loop_text(operator: str) -> tuple[str, tuple[str, ...]]:
    """The C text of an operator's loop, and the macros that it defines."""
    text = loop_files()[operator].read_text(encoding="utf-8")
    return text, tuple(dict.fromkeys(_DEFINED.findall(text)))
