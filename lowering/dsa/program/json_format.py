"""A program as JSON and back: an object for each record, without the fields that have their default.

Memories and engines are written as they print (``LB[0.3]``, ``0.3.mme``), instructions carry their kind in ``op``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from .instructions import Engine, Level, Memory, Program, ProgramError, Unit

FORMAT = "eqfuse-dsa-program"
VERSION = 1
_MEMORY = re.compile(r"(DDR)|GB\[(\d+)\]|LB\[(\d+)\.(\d+)\]")
_ENGINE = re.compile(rf"(\d+)\.(?:(\d+)\.)?({'|'.join(unit.value for unit in Unit)})(\d*)")
_PLACE_OF_ERROR = re.compile(r"(.*) - at `\$\.?(.*)`")


class _Header(msgspec.Struct):
    format: str = ""
    version: int | None = None


class _Document(msgspec.Struct):
    format: str
    version: int
    program: Program


def dump_json(program: Program) -> str:
    """Write a program as JSON, which `load_json` reads back."""
    return msgspec.json.encode(_Document(FORMAT, VERSION, program), enc_hook=str).decode()


def load_json(text: str) -> Program:
    """Read what `dump_json` wrote. Raises ProgramError that names the field: ``program.buffers[3].size``."""
    try:
        header = msgspec.json.decode(text, type=_Header)
    except msgspec.ValidationError:
        header = _Header()
    except msgspec.DecodeError as error:
        raise ProgramError(f"a program file that is not JSON: {error}") from None
    if header.format != FORMAT:
        raise ProgramError(f'a program file needs "format": "{FORMAT}"')
    if header.version != VERSION:
        raise ProgramError(f"a program file of version {header.version}; this eqfuse reads version {VERSION}")
    try:
        return msgspec.json.decode(text, type=_Document, dec_hook=_read_place).program
    except msgspec.ValidationError as error:
        match = _PLACE_OF_ERROR.fullmatch(str(error))
        raise ProgramError(f"{match[2]}: {match[1]}" if match else f"a program file: {error}") from None


def _read_place(kind: type, text: Any) -> Memory | Engine:
    """Read a memory or an engine. Raises ValueError, whose text msgspec reports with the field."""
    place = None
    if isinstance(text, str):
        place = _memory(text) if kind is Memory else _engine(text)
    if place is None:
        raise ValueError(f"{text!r} is no {kind.__name__.lower()}")
    return place


@cache
def _memory(text: str) -> Memory | None:
    if not (match := _MEMORY.fullmatch(text)):
        return None
    ddr, gb, cluster, core = match.groups()
    if ddr:
        return Memory(Level.DDR)
    return Memory(Level.GB, int(gb)) if gb else Memory(Level.LB, int(cluster), int(core))


@cache
def _engine(text: str) -> Engine | None:
    if not (match := _ENGINE.fullmatch(text)):
        return None
    cluster, core, unit, channel = match.groups()
    return Engine(int(cluster), int(core) if core else None, Unit(unit), int(channel or 0))
