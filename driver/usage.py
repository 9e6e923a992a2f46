"""Checks of what users name, before any work begins: devices, and folders of rules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..costmodels.device import default_device, load_device
from ..costmodels.device_file import DeviceError
from ..rules.places import rule_paths
from ..support.errors import RuleError, UsageError


def check_device(name: str | None, cost: str) -> None:
    """Raise UsageError for a device that is unknown or whose file is wrong; None is the default for `cost`."""
    try:
        load_device(name or default_device(cost))
    except DeviceError as error:
        raise UsageError(f"--device: {error}") from error


def check_rule_folders(paths: Iterable[Path]) -> None:
    """Raise RuleError for a folder without rule files: most likely another one was meant."""
    for path in paths:
        if path.is_dir() and not rule_paths([path]):
            raise RuleError(f"{path}: no .egg file is in this folder")
