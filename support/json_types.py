"""JSON read by the types of its fields: a wrong content is named by the path of its field."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn, TypeVar

import msgspec

Kind = TypeVar("Kind")

_SHOWN = 60
"""Characters of a value that a message shows."""
_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "array": "a list",
    "object": "an object",
}  # fmt: skip
"""msgspec's words for types, and those of people who do not know Python."""
_EXPECTED = re.compile(r"Expected `(\w+)[^`]*`(?: (>=|<=) (\S+))?.*")
_MISSING = re.compile(r"Object missing required field `(\w+)`")


class JsonFieldError(Exception):
    """A field that has a wrong content; `path` is like ``inputs[0].shape``, "" for the whole."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"field {path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


def parse_json(text: str) -> Any:
    """The content of a JSON text. Raises ValueError, also for NaN and for a text that is nested too deeply."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def convert_json(content: object, kind: type[Kind]) -> Kind:
    """An object of a dataclass from parsed JSON, whose fields have to be its fields. Raises JsonFieldError."""
    try:
        converted = msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        path = place.rpartition("$")[2].rstrip("`").removeprefix(".")
        raise _explain(problem, path, content) from None
    _refuse_unknown(content, msgspec.to_builtins(converted), "")
    return converted


def _explain(problem: str, path: str, content: object) -> JsonFieldError:
    missing, expected = _MISSING.fullmatch(problem), _EXPECTED.fullmatch(problem)
    if missing:
        return JsonFieldError(".".join(filter(None, (path, missing[1]))), "missing")
    if not expected:
        return JsonFieldError(path, problem)
    words = _WORDS.get(expected[1], expected[1])
    if expected[2]:
        words = f"at {'least' if expected[2] == '>=' else 'most'} {expected[3]}"
    return JsonFieldError(path, f"must be {words}, not {_value_at(path, content)}")


def _value_at(path: str, content: Any) -> str:
    """The value at a path, as a message shows it."""
    for step in re.findall(r"\.\.\.|[^.\[\]]+", path):
        if step == "...":  # some value of a mapping
            return "another value"
        content = content[int(step) if isinstance(content, list) else step]
    return shorten(content)


def _refuse_unknown(content: object, converted: object, path: str) -> None:
    """Raise JsonFieldError if the content has a field that no type has."""
    if isinstance(content, dict) and isinstance(converted, dict):
        for name, value in content.items():
            place = f"{path}.{name}" if path else name
            if name not in converted:
                raise JsonFieldError(place, "unknown")
            _refuse_unknown(value, converted[name], place)
    elif isinstance(content, list) and isinstance(converted, list | tuple):
        for number, (value, kept) in enumerate(zip(content, converted, strict=True)):
            _refuse_unknown(value, kept, f"{path}[{number}]")


def shorten(value: object) -> str:
    """A value for a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
