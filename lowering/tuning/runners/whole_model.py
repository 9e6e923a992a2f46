"""Compares whole models on the devices of a tracker, end to end: the faster one is kept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from statistics import median

from ....ir.types import TensorType
from ....support.scratch import scratch_folder
from ...base.errors import TuningError
from ...base.target import Target
from ...plan.manifest import PLAN
from ...plan.plan import Plan
from ...program.project import build_object
from .measuring import KernelObject
from .rpc_runner import RpcRunner

_SECONDS = 75.0
"""Seconds for one model, a quarter of the time that both may take together: they have to get to the device, too."""


def speed_up(tracker: str, device_key: str, target: Target, before: Path, after: Path) -> float:
    """How many times as fast the C project `after` is as `before`, on a device, in interleaved pairs.

    Raises ToolError without the cross compiler, TuningError if there is no device, or it does not run them.
    """
    with (
        scratch_folder("model") as scratch,
        closing(RpcRunner(tracker, device_key, target.triple, target.threads, _SECONDS)) as runner,
    ):
        models = [_as_kernel(folder, target, Path(scratch), f"model_{i}") for i, folder in enumerate((before, after))]
        (pairs,) = runner.compare(models[0], models[1:])
    if not pairs:
        raise TuningError(f"{tracker}: no device with the key {device_key!r} ran the whole model in time")
    return median(old / new for old, new in pairs)


def _as_kernel(folder: Path, target: Target, scratch: Path, symbol: str) -> KernelObject:
    """A model as a function of its inputs and outputs."""
    object_file = scratch / f"{symbol}.o"
    build_object(folder, object_file, target.device, symbol, target.threads)
    plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
    buffers = [plan.buffers[number] for number in (*plan.inputs, *plan.outputs)]
    types = tuple(TensorType(b.dtype, tuple(e if isinstance(e, int) else str(e) for e in b.shape)) for b in buffers)
    return KernelObject(symbol, object_file, types, len(plan.outputs))
