"""The flags of options, made from the fields that state them (support/options.py). Imports nothing heavy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from ..support.options import About, OptionError, check_option, choices_of, list_options, option_types, sentence_of


def add_options(
    parser: argparse._ActionsContainer,
    kind: Any,
    *,
    only: Collection[str] = (),
    without: Collection[str] = (),
    flags: Mapping[str, str] | None = None,
) -> None:
    """Add a flag for each option of a dataclass; `flags` maps options to other spellings in this command.

    An argument that is not given is None, so that the dataclass alone knows the default.
    """
    types = option_types(kind)
    spelled = {each.name: _flags(each)[-1] for each in fields(kind)} | dict(flags or {})
    for each in list_options(kind):
        if each.name not in without and (not only or each.name in only):
            names = [spelled[each.name]] if each.name in (flags or {}) else _flags(each)
            text = re.sub(r"`(\w+)`", lambda name: spelled.get(name[1], name[0]), sentence_of(each))
            parser.add_argument(*names, dest=_destination(each), **_reading(each, types[each.name], text))


def given_options(kind: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of a dataclass that were typed."""
    values = {each.name: vars(arguments).get(_destination(each)) for each in fields(kind)}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return {name: value for name, value in given.items() if value is not None}


def flag_of(kind: Any, name: str) -> str:
    """The spelling of an option on the command line."""
    return next((_flags(each)[-1] for each in fields(kind) if each.name == name), f"--{name.replace('_', '-')}")


def _flags(each: Field[Any]) -> tuple[str, ...]:
    about: About | None = each.metadata.get("about")
    return (about.flags if about else ()) or (f"--{'no-' * (each.default is True)}{each.name.replace('_', '-')}",)


def _destination(each: Field[Any]) -> str:
    return each.name if each.default is True else _flags(each)[-1].removeprefix("--").replace("-", "_")


def _reading(each: Field[Any], kind: Any, text: str) -> dict[str, Any]:
    """How argparse reads an option of this type."""
    about: About = each.metadata["about"]
    if kind is bool:
        if each.default:
            return {"action": "store_false", "default": None, "help": about.off}
        return {"action": "store_true", "default": None, "help": text}
    if names := choices_of(kind):
        return {"choices": names, "help": text}
    origin, metavar = get_origin(kind), about.metavar
    if origin is tuple and about.in_commas:
        metavar = metavar if metavar and "," in metavar else f"{metavar},..."
        return {"action": "extend", "type": several(get_args(kind)[0]), "metavar": metavar, "help": text}
    if origin is tuple or origin in (Mapping, dict):
        read = input_shape if origin is not tuple else reader(get_args(kind)[0])
        return {"action": "append", "type": read, "metavar": metavar, "help": f"{text}; repeatable"}
    optional = {"nargs": "?", "const": about.const} if about.const is not None else {}
    return {"type": reader(kind), "metavar": metavar or "N", "help": text, **optional}


def reader(kind: Any) -> Callable[[str], Any]:
    """A converter of a text to a type that is checked, or that also allows None."""
    if get_origin(kind) is not Annotated:
        plain = next((each for each in get_args(kind) if each is not type(None)), kind)
        return reader(plain) if plain is not kind else Path if kind is Path else str
    number: type[Any] = get_args(kind)[0]

    def read(text: str) -> Any:
        try:
            value = number(text)
        except ValueError:
            kind_of_number = "whole number" if number is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {kind_of_number}") from None
        try:
            return check_option("", value, kind)
        except OptionError as error:
            raise argparse.ArgumentTypeError(error.problem.replace(repr(value), text, 1)) from None

    return read


def several(kind: Any) -> Callable[[str], list[Any]]:
    """A converter of texts between commas."""
    read = reader(kind)

    return lambda text: [read(each.strip()) for each in text.split(",") if each.strip()]


def input_shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """``x:1,3,224,224`` and its variants; a dimension may be a name, and `[]` is the shape of a scalar."""
    name, colon, shape = text.rpartition(":")
    if not colon or not name or not shape:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:SHAPE, such as x:1,3,224,224")
    return name, tuple(int(d) if d.isdecimal() else d for d in _dimensions(shape))


def _dimensions(shape: str) -> list[str]:
    body = re.sub(r"^\[(.*)\]$", r"\1", shape.strip())
    crossed = body.split("x")  # 1x3x224x224 or Nx3x224x224, but not a dimension that is called `max`
    if all(re.fullmatch(r"\d+|[A-Za-z]", d) for d in crossed) and any(d.isdecimal() for d in crossed):
        return crossed
    dimensions = [d.strip() for d in body.split(",")] if body.strip() else []
    if not all(re.fullmatch(r"\d+|[A-Za-z_]\w*", d, re.ASCII) for d in dimensions):
        raise argparse.ArgumentTypeError(f"{shape!r} is not a shape: a dimension is a number or a name")
    return dimensions
