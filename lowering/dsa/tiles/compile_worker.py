"""The process that compiles tiles, and its requests. Light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....costmodels.device import Device
from ....support.errors import describe_error


@dataclass(frozen=True)
class TileJob:
    """Functions by name, as TVM's JSON, for one object file; `plain`: by the plainest schedule."""

    functions: Mapping[str, str]
    device: Device
    target: Mapping[str, Any]
    object_file: str
    plain: bool = False


@dataclass(frozen=True)
class TileResult:
    """The functions that are in the object file, and the last problem with others."""

    names: tuple[str, ...]
    problem: str = ""


def compile_tiles(job: TileJob) -> TileResult:
    """Compile all functions of a job as one module, which takes a fraction of the time that many take."""
    import tvm

    from ...kernels.build import build
    from ...schedules import Draft, apply_rule, fallback, plain

    module, problem = {}, ""
    for name, text in job.functions.items():
        try:
            draft = Draft.of(tvm.ir.load_json(text), job.device)
            scheduled = apply_rule(plain if job.plain else fallback, draft)
            assert scheduled is not None  # both match every function
            (function,) = scheduled.schedule.mod.functions.values()
            module[name] = function.with_attr("global_symbol", name)
        except Exception as error:  # TVM raises many kinds; each of them is about this function alone
            problem = describe_error(error)
    if module:
        try:
            executable = build(tvm.IRModule(module), tvm.target.Target(dict(job.target)))
            executable.mod.write_to_file(job.object_file, "o")
        except Exception as error:
            return TileResult((), describe_error(error))
    return TileResult(tuple(module), problem)
