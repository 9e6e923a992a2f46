"""From parsed arguments to the API's options, and what the parser cannot check without heavy imports."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from ..costmodels.device import Device, default_device, load_device
from ..costmodels.device_file import DeviceError
from ..driver.options import Options
from ..errors import RuleError, UsageError
from ..rules.places import rule_paths
from ..support.options import OptionError


def options_of(arguments: argparse.Namespace, *, verify: bool) -> Options:
    """The options of `optimize` and `bisect`. Raises UsageError or RuleError for a value that cannot be used."""
    device_of(arguments)
    check_rule_folders(arguments.rules)
    given = {field.name: value for field in fields(Options) if (value := vars(arguments).get(field.name)) is not None}
    try:
        return Options(**{**given, "input_shapes": dict(arguments.input_shapes), "verify": verify})
    except OptionError as error:
        raise UsageError(f"--{error.name.replace('_', '-')}: {error.problem}") from None


def device_of(arguments: argparse.Namespace) -> Device:
    """The device that `--device` names. Raises UsageError where there is none."""
    try:
        return load_device(arguments.device or default_device(arguments.cost))
    except DeviceError as error:
        raise UsageError(f"--device: {error}") from error


def check_rule_folders(paths: Iterable[Path]) -> None:
    """Raise RuleError for a folder without rule files: most likely another one was meant."""
    for path in paths:
        if path.is_dir() and not rule_paths([path]):
            raise RuleError(f"{path}: no .egg file is in this folder")
