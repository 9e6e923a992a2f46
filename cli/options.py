"""From parsed arguments to the API's options, and what the parser cannot check without heavy imports."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onnx import defs

from ..api import Options
from ..costmodels.device import Device, DeviceError, load_device
from ..errors import RuleError, UsageError
from ..rules.loader import rule_paths


def options_of(arguments: argparse.Namespace, *, verify: bool) -> Options:
    """The options of `optimize` and `bisect`. Raises UsageError or RuleError for a value that cannot be used."""
    device_of(arguments)
    check_rule_folders(arguments.rules)
    _check_opset(arguments.opset)
    return Options(
        cost=arguments.cost,
        device=arguments.device,
        precision=arguments.precision,
        rules=tuple(arguments.rules),
        only=tuple(arguments.only),
        skip=tuple(arguments.skip),
        time_limit=arguments.time_limit,
        node_limit=arguments.node_limit,
        iterations=arguments.iterations,
        extraction=arguments.extraction,
        opset=arguments.opset,
        input_shapes=dict(arguments.input_shapes),
        verify=verify,
        atol=arguments.atol,
        rtol=arguments.rtol,
        verify_limit=arguments.verify_limit,
        seed=arguments.seed,
        intensive=getattr(arguments, "intensive", True),
        **_partition(arguments),
    )


def _partition(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of a partition, which only `optimize` has. Raises UsageError for those that say nothing together."""
    method = getattr(arguments, "partition", "none")
    if method == "none":
        for name in ("as_functions", "certify", "certificate"):
            if getattr(arguments, name, False):
                raise UsageError(f"--{name.replace('_', '-')} is about sub-graphs; say how to cut by --partition")
        return {}
    if method == "joint" and arguments.cost == "flops":
        raise UsageError(f"--partition joint minimises time; it cannot be had with --cost {arguments.cost}")
    names = ("partition", "as_functions", "certify", "certificate")
    return {name: getattr(arguments, name) for name in names}


def device_of(arguments: argparse.Namespace) -> Device:
    """The device that `--device` names. Raises UsageError where there is none."""
    try:
        return load_device(arguments.device)
    except DeviceError as error:
        raise UsageError(f"--device: {error}") from error


def check_rule_folders(paths: Iterable[Path]) -> None:
    """Raise RuleError for a folder without rule files: most likely another one was meant."""
    for path in paths:
        if path.is_dir() and not rule_paths([path]):
            raise RuleError(f"{path}: no .egg file is in this folder")


def _check_opset(opset: int | None) -> None:
    newest = defs.onnx_opset_version()
    if opset is not None and opset > newest:
        raise UsageError(f"--opset {opset}: the newest one known here is {newest}")
