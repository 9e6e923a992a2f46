"""From parsed arguments to the API's options, and what the parser cannot check without heavy imports."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TypeVar

from ..driver.usage import check_device, check_rule_folders
from ..support.errors import UsageError
from ..support.options import OptionError

AnyOptions = TypeVar("AnyOptions")


def options_of(kind: type[AnyOptions], arguments: argparse.Namespace, **fixed: object) -> AnyOptions:
    """The options of one of the classes of `driver.options`, those that are `fixed` whatever was typed.

    Raises UsageError or RuleError for a value that cannot be used.
    """
    given = vars(arguments) | fixed
    if "cost" in given:
        check_device(given["device"], given["cost"])
    check_rule_folders(given.get("rules", ()))
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    values = {name: value for name in names if (value := given.get(name)) is not None}
    if "input_shapes" in values:
        values["input_shapes"] = dict(values["input_shapes"])
    try:
        return kind(**values)
    except OptionError as error:
        raise UsageError(f"--{error.name.replace('_', '-')}: {error.problem}") from None
