"""From parsed arguments to the API's options, and what the parser cannot check without heavy imports."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from ..costmodels.device import default_device, load_device
from ..costmodels.device_file import DeviceError
from ..rules.places import rule_paths
from ..support.errors import RuleError, UsageError
from ..support.options import OptionError

AnyOptions = TypeVar("AnyOptions")


def options_of(kind: type[AnyOptions], arguments: argparse.Namespace, **fixed: object) -> AnyOptions:
    """The options of one of the classes of `driver.options`, those that are `fixed` whatever was typed.

    Raises UsageError or RuleError for a value that cannot be used.
    """
    given = vars(arguments) | fixed
    if "cost" in given:
        try:
            load_device(given["device"] or default_device(given["cost"]))
        except DeviceError as error:
            raise UsageError(f"--device: {error}") from error
    check_rule_folders(given.get("rules", ()))
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    values = {name: value for name in names if (value := given.get(name)) is not None}
    if "input_shapes" in values:
        values["input_shapes"] = dict(values["input_shapes"])
    try:
        return kind(**values)
    except OptionError as error:
        raise UsageError(f"--{error.name.replace('_', '-')}: {error.problem}") from None


def check_rule_folders(paths: Iterable[Path]) -> None:
    """Raise RuleError for a folder without rule files: most likely another one was meant."""
    for path in paths:
        if path.is_dir() and not rule_paths([path]):
            raise RuleError(f"{path}: no .egg file is in this folder")
