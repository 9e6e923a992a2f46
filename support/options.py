"""Options that users set: each is checked against the type of its field, in one line for whoever set it."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import UsageError

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Bound:
    """A bound of the numbers of a field."""

    least: float
    is_excluded: bool

    @property
    def text(self) -> str:
        """``a number above 0``."""
        return f"a number above {self.least:g}" if self.is_excluded else f"a number from {self.least:g} on"

    def allows(self, number: float) -> bool:
        """Whether it is one of them; a number that is not finite never is."""
        return math.isfinite(number) and (number > self.least if self.is_excluded else number >= self.least)


ABOVE_ZERO = Bound(0, is_excluded=True)
FROM_ZERO = Bound(0, is_excluded=False)
Positive = Annotated[float, ABOVE_ZERO]
NotNegative = Annotated[float, FROM_ZERO]
PositiveInteger = Annotated[int, ABOVE_ZERO]
NotNegativeInteger = Annotated[int, FROM_ZERO]


class OptionError(UsageError):
    """A value that an option cannot have. The command line puts its own spelling of the name before the `problem`."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


def options_of(kind: type[Kind], given: Mapping[str, Any]) -> Kind:
    """The options of these names. Raises UsageError for a name that does not exist, and for one that is missing."""
    options = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    require_names(given, options)
    for name, field in options.items():
        if name not in given and field.default is MISSING and field.default_factory is MISSING:
            raise OptionError(name, "has to be given")
    return kind(**given)


def pick_options(kind: type[Kind], arguments: Mapping[str, Any]) -> Kind:
    """The options among the arguments of a function, which may have others."""
    return kind(**{field.name: arguments[field.name] for field in fields(kind)})  # type: ignore[arg-type]


def require_names(names: Iterable[str], options: Iterable[str]) -> None:
    """Raise OptionError for a name that is not among the options; it suggests the nearest."""
    options = list(options)
    for name in names:
        if name not in options:
            near = get_close_matches(str(name), options, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(options)}"
            raise OptionError(str(name), f"is no option; {hint}")


def check_options(options: Any) -> None:
    """Bring each field of a frozen dataclass to the type of its annotation. Raises OptionError where that fails.

    One path or text stands for a sequence of one; any iterable for a tuple; a number of numpy's for Python's.
    """
    types = get_type_hints(type(options), include_extras=True)
    for field in fields(options):
        value = getattr(options, field.name)
        try:
            object.__setattr__(options, field.name, _convert(value, types[field.name]))
        except _MismatchError as mismatch:
            shown = repr(value)
            shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
            raise OptionError(field.name, f"{shown} is not {mismatch}") from None


_SHOWN = 80
"""Characters of a value that a message shows."""


class _MismatchError(Exception):
    """A value of another type; the text names the right one."""


def _convert(value: Any, wanted: Any) -> Any:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        number = _convert(value, arguments[0])
        if not arguments[1].allows(number):
            raise _MismatchError(arguments[1].text)
        return number
    if origin is Literal:
        if not isinstance(value, str) or value not in arguments:
            raise _MismatchError(f"one of {', '.join(map(str, arguments))}")
        return value
    if origin in (Union, UnionType):
        return _convert_to_one_of(value, arguments)
    if origin is tuple:
        return _convert_sequence(value, arguments[0])
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _MismatchError("a mapping of names")
        return {_convert(name, arguments[0]): _convert(each, arguments[1]) for name, each in value.items()}
    return _convert_plain(value, wanted)


def _convert_to_one_of(value: Any, kinds: tuple[Any, ...]) -> Any:
    if value is None and type(None) in kinds:
        return None
    problems = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _convert(value, kind)
            except _MismatchError as mismatch:
                problems.append(str(mismatch))
    raise _MismatchError(" or ".join(problems))


def _convert_sequence(value: Any, element: Any) -> tuple[Any, ...]:
    single = (str, os.PathLike) if element is Path else str
    if element in (Path, str) and isinstance(value, single):
        value = (value,)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise _MismatchError(f"a sequence, each {_NAMES.get(element, 'of its own type')}")
    return tuple(_convert(each, element) for each in value)


_NAMES = {bool: "True or False", int: "a whole number", float: "a number", str: "a text", Path: "a path"}


def _convert_plain(value: Any, wanted: type) -> Any:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)  # True is an int, and no number here
    if wanted is Path and isinstance(value, (str, os.PathLike)):
        return Path(value)
    if wanted is int and is_number and isinstance(value, numbers.Integral):
        return int(value)
    if wanted is float and is_number:
        return float(value)
    if wanted not in (int, float) and isinstance(value, wanted):
        return value
    raise _MismatchError(_NAMES.get(wanted, f"a {wanted.__name__}"))
