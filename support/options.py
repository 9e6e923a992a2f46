"""Options that users set. Each is stated once, as the field of a frozen dataclass: by type, default and a sentence.
Signature and help of a function, the flags of its command and the checks are made from these. Light to import."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, partial, reduce, wraps
from inspect import Signature, cleandoc, signature
from operator import or_
from pathlib import Path
from types import GenericAlias, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import UsageError

__all__ = [
    "About", "Converted", "Counts", "File", "Files", "Names", "NotNegative", "NotNegativeInteger", "OptionError",
    "PathLike", "Positive", "PositiveInteger", "about", "check_option", "check_options", "choices_of", "list_options",
    "option", "option_class", "option_types", "options_of", "part_of", "require_names", "sentence_of", "takes",
]  # fmt: skip

Kind = TypeVar("Kind")
Answer = TypeVar("Answer")
Given = TypeVar("Given")
Kept = TypeVar("Kept")
Parameters = ParamSpec("Parameters")

_FINITE = ("le", sys.float_info.max)
Positive = Annotated[float, ("gt", 0), _FINITE]
NotNegative = Annotated[float, ("ge", 0), _FINITE]
PositiveInteger = Annotated[int, ("ge", 1)]
NotNegativeInteger = Annotated[int, ("ge", 0)]
"""Numbers, and the bounds of msgspec.Meta, which takes time to import."""

if TYPE_CHECKING:
    # mypy gives an inherited field of a frozen class the type that it accepts instead of the one that it keeps
    from dataclasses import dataclass as option_class

    class Converted(Generic[Given, Kept]):
        """The type of a field that takes values of one type, and keeps them as another."""

        def __get__(self, options: object, kind: Any) -> Kept: ...
        def __set__(self, options: Any, value: Given) -> None: ...

else:
    option_class = partial(dataclass, frozen=True)

    class Converted:
        """`check_options` converts: when the program runs, the type is the one that is kept."""

        def __class_getitem__(cls, types: tuple[Any, Any]) -> Any:
            return types[1]


PathLike = str | os.PathLike[str]
File = Converted[PathLike | None, Path | None]
Files = Converted[PathLike | Iterable[PathLike], tuple[Path, ...]]
Names = Converted[str | Iterable[str], tuple[str, ...]]
Counts = Converted[int | Iterable[int], tuple[PositiveInteger, ...]]


@dataclass(frozen=True)
class About:
    """The properties of an option besides its type and default.

    `off` is the sentence of the flag ``--no-NAME`` of an option that is on by default. `flags` are spellings other than
    the name; `const` is the value of a flag without one; `in_commas`: a flag takes several values between commas.
    """

    sentence: str
    metavar: str | None = None
    off: str = ""
    flags: tuple[str, ...] = ()
    const: Any = None
    in_commas: bool = False
    is_checked: bool = True


def option(default: Any, sentence: str, **more: Any) -> Any:
    """A field of a dataclass that is an option; `more` are fields of `About`."""
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=about(sentence, **more))
    return field(default=default, metadata=about(sentence, **more))


def about(sentence: str, **more: Any) -> Mapping[str, About]:
    """The metadata of a field that has to be given."""
    return {"about": About(sentence, **more)}


class OptionError(UsageError):
    """A value that an option cannot have. The command line puts its own spelling of the name before the `problem`."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


# --- functions that take options


def takes(options: Callable[Parameters, Kind]) -> Callable[[Callable[[Kind], Answer]], Callable[Parameters, Answer]]:
    """Let a function of a dataclass have the fields as parameters, and their sentences in its documentation.

    A misspelled name raises an OptionError that suggests the right one.
    """

    def decorate(function: Callable[[Kind], Answer]) -> Callable[Parameters, Answer]:
        shown = _signature_of(options)
        construct: Any = options

        @wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
            require_names(kwargs, shown.parameters)
            given = shown.bind(*args, **kwargs).arguments  # its TypeError names the missing argument, and no class
            return function(construct(**given))

        described: Any = call
        described.__signature__ = shown.replace(return_annotation=signature(function).return_annotation)
        described.__doc__ = f"{cleandoc(function.__doc__ or '')}\n\n{_describe(options, shown.parameters)}"
        return call

    return decorate


def _signature_of(options: Any) -> Signature:
    """The constructor's parameters in the order of `list_options`; a default may be made by a factory."""
    parameters = signature(options).parameters
    made = {each.name: each.default_factory() for each in fields(options) if each.default_factory is not MISSING}
    names = [each.name for each in list_options(options)]
    return Signature([parameters[name].replace(default=made.get(name, parameters[name].default)) for name in names])


def list_options(kind: Any) -> list[Field[Any]]:
    """The fields of a dataclass: positional ones, then its own, then those of each class that it inherits from."""
    by_name = {each.name: each for each in fields(kind)}
    names = [each.name for each in fields(kind) if not each.kw_only]
    names += [name for one in kind.__mro__ for name in vars(one).get("__annotations__", ())]
    return [by_name[name] for name in dict.fromkeys(names) if name in by_name]


def _describe(kind: Any, names: Iterable[str]) -> str:
    """A paragraph for each parameter of a dataclass."""
    options = {each.name: each for each in fields(kind)}
    return "\n".join(_paragraph(f"{name}: {sentence_of(options[name])}") for name in names)


@cache
def _paragraph(text: str) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= _WIDTH:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def sentence_of(each: Field[Any]) -> str:
    """The sentence of an option, with its default if the sentence names none."""
    sentence: str = each.metadata["about"].sentence
    default = each.default
    if default in (MISSING, None, "", ()) or isinstance(default, bool) or "(default" in sentence:
        return sentence
    return f"{sentence} (default {f'{default:g}' if isinstance(default, float) else default})"


# --- checks


def options_of(kind: type[Kind], given: Mapping[str, Any]) -> Kind:
    """The options of these names. Raises UsageError for a name that does not exist, and for one that is missing."""
    options = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    require_names(given, options)
    for name, each in options.items():
        if name not in given and each.default is MISSING and each.default_factory is MISSING:
            raise OptionError(name, "has to be given")
    return kind(**given)


def part_of(kind: type[Kind], options: Any) -> Kind:
    """The options of a class among those of a class that has more."""
    return kind(**{field.name: getattr(options, field.name) for field in fields(kind)})  # type: ignore[arg-type]


def require_names(names: Iterable[str], options: Iterable[str]) -> None:
    """Raise OptionError for a name that is not among the options; it suggests the nearest."""
    options = list(options)
    for name in names:
        if name not in options:
            near = get_close_matches(str(name), options, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(options)}"
            raise OptionError(str(name), f"is no option; {hint}")


def check_options(options: Any) -> None:
    """Convert each field of a frozen dataclass to its type. Raises OptionError if that fails.

    One value stands for a sequence of one, any iterable for a tuple, a mapping for a dataclass of options, a number of
    numpy's for Python's.
    """
    for name, kind in option_types(options.__class__).items():
        object.__setattr__(options, name, check_option(name, getattr(options, name), kind))


@cache
def option_types(kind: Any) -> Mapping[str, Any]:
    """The type of each field that is checked; it allows None if that is the default."""
    types: Mapping[str, Any] = get_type_hints(kind, include_extras=True)
    return {
        each.name: types[each.name]
        for each in fields(kind)
        if "about" not in each.metadata or each.metadata["about"].is_checked
    }


def check_option(name: str, value: Any, kind: Any) -> Any:
    """The value as one of this type. Raises OptionError."""
    import msgspec

    for one in (kind, *get_args(kind)):
        if is_dataclass(one) and isinstance(one, type) and isinstance(value, Mapping | one | None):
            return options_of(one, value) if isinstance(value, Mapping) else value
    is_single = isinstance(value, _SINGLE) or not isinstance(value, Iterable)
    plain = _plain((value,) if is_single and get_origin(kind) is tuple else value)
    try:
        return msgspec.convert(plain, _with_bounds(kind), dec_hook=_read_path)
    except msgspec.ValidationError as error:
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        raise OptionError(name, f"{shown} is not {_wanted(str(error), kind)}") from None


_WIDTH = 116
"""Columns of a docstring, which `help` may indent by four."""
_SHOWN = 80
"""Characters of a value that a message shows."""
_SINGLE = (str, bytes, os.PathLike)
_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "True or False", "array": "a sequence",
    "object": "a mapping of names",
}  # fmt: skip
_BOUNDS = {"> 0.0": "a number above 0", ">= 1": "a number above 0", "<=": "a finite number"}
"""msgspec's words for types and bounds, and those of users."""
_EXPECTED = re.compile(r"Expected `([\w |]+)`(?: (.*?))?(?:, got .*)?(?: - at .*)?")


@cache
def _with_bounds(kind: Any) -> Any:
    """A type as msgspec checks it."""
    from msgspec import Meta

    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return Annotated[arguments[0], Meta(**dict(arguments[1:]))]
    if origin in (Union, UnionType):
        return reduce(or_, map(_with_bounds, arguments))
    return GenericAlias(tuple, (_with_bounds(arguments[0]), ...)) if origin is tuple else kind


def _wanted(problem: str, kind: Any) -> str:
    """The values that are allowed, from msgspec's words."""
    if problem.startswith("Invalid enum value") or get_origin(kind) is Literal:
        return f"one of {', '.join(choices_of(kind))}"
    expected = _EXPECTED.fullmatch(problem)
    if expected is None:
        return "a path"
    if expected[2]:
        return next((text for bound, text in _BOUNDS.items() if expected[2].startswith(bound)), "a number from 0 on")
    return " or ".join(_WORDS.get(word, word) for word in expected[1].split(" | ") if word != "null")


def choices_of(kind: Any) -> tuple[str, ...]:
    """The names that a type allows, one beside None too; () if it is none of names."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return next((names for each in get_args(kind) if (names := choices_of(each))), ())


def _plain(value: Any) -> Any:
    """A value that msgspec reads: plain containers and numbers, texts for paths."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        return value.tolist()
    if isinstance(value, Mapping):
        return {_plain(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value]
    return value


def _read_path(kind: type, value: Any) -> Any:
    return Path(value) if kind is Path else value
