"""A program as JSON and back: one object for each dataclass, without the fields that have their default.

Memories and engines are written as they print (``LB[0.3]``, ``0.3.mme``), instructions carry their kind in ``op``.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Any

from .instructions import (
    Barrier,
    Compute,
    Engine,
    IndexedTransfer,
    Instruction,
    Level,
    Memory,
    Program,
    ProgramError,
    Transfer,
    Unit,
)

FORMAT = "eqfuse-dsa-program"
VERSION = 1
_OPS: dict[str, type] = {
    "transfer": Transfer,
    "indexed_transfer": IndexedTransfer,
    "compute": Compute,
    "barrier": Barrier,
}
_NAMES = {kind: name for name, kind in _OPS.items()}
_MEMORY = re.compile(r"DDR|GB\[(\d+)\]|LB\[(\d+)\.(\d+)\]")
_ENGINE = re.compile(r"(\d+)\.(?:(\d+)\.)?([a-z]+)(\d*)")


class _Mismatch(Exception):
    """Something that does not fit; `path` grows from the inside to the outside."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path


def dump_json(program: Program) -> str:
    """The program; `load_json` reads it back."""
    return json.dumps({"format": FORMAT, "version": VERSION, "program": _encode(program)}, separators=(",", ":"))


def load_json(text: str) -> Program:
    """The program that `dump_json` wrote. Raises ProgramError that names the field: ``program.buffers[3].size``."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProgramError(f"a program file that is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProgramError(f'a program file needs "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        raise ProgramError(f"a program file of version {document.get('version')}; this eqfuse reads version {VERSION}")
    try:
        program = _record(Program, document.get("program"))
    except _Mismatch as error:
        raise ProgramError(f"program{error.path}: {error.message}") from None
    assert isinstance(program, Program)
    return program


def _encode(value: Any) -> Any:
    kind: Any = type(value)
    if kind is tuple:
        return [_encode(each) for each in value]
    if kind in (int, str, bool, type(None)):
        return value
    if kind in (Memory, Engine):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    tag = {"op": _NAMES[kind]} if kind in _NAMES else {}
    given = ((each, getattr(value, name)) for name, each in _fields(kind).items())
    return tag | {
        each.name: _encode(field) for each, field in given if each.default is MISSING or field != each.default
    }


@cache
def _fields(kind: Any) -> dict[str, Field[Any]]:
    return {each.name: each for each in fields(kind)}


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """Makes a value of the annotation `kind` from JSON."""
    if kind in (Memory, Engine):
        return partial(_place, kind)
    if kind == Instruction:
        return _instruction
    if isinstance(kind, types.UnionType):
        return partial(_optional, _decoder(typing.get_args(kind)[0]))
    if typing.get_origin(kind) is tuple:
        return partial(_items, _decoder(typing.get_args(kind)[0]))
    if issubclass(kind, Enum):
        return partial(_member, kind)
    return partial(_record if is_dataclass(kind) else _plain, kind)


def _plain(kind: type, data: Any) -> Any:
    if type(data) is not kind:
        raise _Mismatch(f"expected {kind.__name__}, found {json.dumps(data)[:40]}")
    return data


def _optional(decode: Callable[[Any], Any], data: Any) -> Any:
    return None if data is None else decode(data)


def _items(decode: Callable[[Any], Any], data: Any) -> tuple[Any, ...]:
    found: list[Any] = []
    for each in _plain(list, data):
        try:
            found.append(decode(each))
        except _Mismatch as error:
            error.path = f"[{len(found)}]{error.path}"
            raise
    return tuple(found)


def _member(kind: type[Enum], data: Any) -> Enum:
    for member in kind:
        if member.value == data:
            return member
    known = ", ".join(str(member.value) for member in kind)
    raise _Mismatch(f"{json.dumps(data)[:40]} is none of {known}")


def _instruction(data: Any) -> Any:
    op = _plain(dict, data).get("op")
    if op not in _OPS:
        raise _Mismatch(f"{op!r} is none of {', '.join(_OPS)}", ".op")
    return _record(_OPS[op], {name: value for name, value in data.items() if name != "op"})


@cache
def _decoders(kind: Any) -> tuple[dict[str, Callable[[Any], Any]], frozenset[str]]:
    """By field; and the fields that must be there."""
    hints = typing.get_type_hints(kind)
    needed = (name for name, each in _fields(kind).items() if each.default is MISSING)
    return {name: _decoder(hints[name]) for name in _fields(kind)}, frozenset(needed)


def _record(kind: type, data: Any) -> Any:
    decoders, needed = _decoders(kind)
    for name in sorted(needed - _plain(dict, data).keys()):
        raise _Mismatch("missing", f".{name}")
    values = {}
    for name, value in data.items():
        if name not in decoders:
            raise _Mismatch("unknown field", f".{name}")
        try:
            values[name] = decoders[name](value)
        except _Mismatch as error:
            error.path = f".{name}{error.path}"
            raise
    return kind(**values)


def _place(kind: type, data: Any) -> Memory | Engine:
    found = _memory(_plain(str, data)) if kind is Memory else _engine(_plain(str, data))
    if found is None:
        raise _Mismatch(f"{data!r} is no {'memory' if kind is Memory else 'engine'}")
    return found


@cache
def _memory(text: str) -> Memory | None:
    if not (match := _MEMORY.fullmatch(text)):
        return None
    gb, cluster, core = match.groups()
    if gb is not None:
        return Memory(Level.GB, int(gb))
    return Memory(Level.LB, int(cluster), int(core)) if cluster is not None else Memory(Level.DDR)


@cache
def _engine(text: str) -> Engine | None:
    match = _ENGINE.fullmatch(text)
    if not match or match[3] not in {unit.value for unit in Unit}:
        return None
    cluster, core, unit, channel = match.groups()
    return Engine(int(cluster), int(core) if core is not None else None, Unit(unit), int(channel or 0))
