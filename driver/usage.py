"""Names that users give, looked up and checked: devices, cost models, runtimes, and folders of rules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..costmodels.choices import DEFAULT_RUNTIME
from ..costmodels.device import load_device
from ..costmodels.device_file import DeviceError
from ..costmodels.model import CostModel, cost_model
from ..costmodels.runtime import NO_RUNTIME, Runtime, load_runtime
from ..rules.places import rule_paths
from ..support.errors import RuleError, UsageError
from .options import CostOptions, Options


def cost_model_for(options: CostOptions) -> CostModel:
    """The costs that extraction minimises; "profile" takes the user's measurements, and the roofline for all others."""
    device = load_device(options.device)
    if options.cost != "profile":
        return cost_model(options.cost, device)
    from ..costmodels.measuring.profile import ProfileDatabase  # with SQLite, which takes time to import
    from ..extract.partition.profile_cost import ProfileCost

    return ProfileCost(device, ProfileDatabase.open())


def runtime_for(options: Options) -> Runtime:
    """The runtime; only its forms if the kernels of a partition are for another one, and if FLOPs are minimised instead
    of its time."""
    runtime = _load_runtime(options.runtime, options)
    if options.partition != "none":
        return runtime.forms
    return runtime if options.cost != "flops" else runtime.timeless


def summarized_runtime(options: CostOptions, runtime: str = DEFAULT_RUNTIME) -> Runtime:
    """The runtime whose one kernel for several nodes a predicted time counts as one; FLOPs count all nodes."""
    if options.cost == "flops":
        return NO_RUNTIME
    return _load_runtime(runtime, options)


def _load_runtime(name: str, options: CostOptions) -> Runtime:
    return load_runtime(name).on(load_device(options.device).mtriple.partition("-")[0])


def check_device(name: str) -> None:
    """Raise UsageError for a device that is unknown or whose file is wrong."""
    try:
        load_device(name)
    except DeviceError as error:
        raise UsageError(f"--device: {error}") from error


def check_rule_folders(paths: Iterable[Path]) -> None:
    """Raise RuleError for a folder without rule files: most likely another one was meant."""
    for path in paths:
        if path.is_dir() and not rule_paths([path]):
            raise RuleError(f"{path}: no .egg file is in this folder")
