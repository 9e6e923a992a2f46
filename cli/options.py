"""From parsed arguments to the API's options, with the checks for which the parser would need heavy imports."""

from __future__ import annotations

import argparse
from typing import TypeVar

from ..driver.options import CostOptions
from ..driver.usage import check_device, check_rule_folders
from ..support.errors import UsageError
from ..support.options import OptionError
from .arguments import flag_of, given_options

AnyOptions = TypeVar("AnyOptions")


def options_of(kind: type[AnyOptions], arguments: argparse.Namespace, **fixed: object) -> AnyOptions:
    """The options of one of the classes of `driver.options`, those that are `fixed` whatever was typed.

    Raises UsageError or RuleError for a value that cannot be used.
    """
    values = given_options(kind, arguments) | fixed
    check_rule_folders(values.get("rules", ()))
    if "input_shapes" in values:
        values["input_shapes"] = dict(values["input_shapes"])
    try:
        options = kind(**values)
    except OptionError as error:
        raise UsageError(f"{flag_of(kind, error.name)}: {error.problem}") from None
    if isinstance(options, CostOptions):
        check_device(options.device)
    return options
