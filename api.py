"""The public API: optimise a model, compile it, and load what was compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .driver.clock import Observer
from .driver.optimize import Result, optimize_model
from .driver.options import Options
from .support.options import options_of

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from .driver.compilation import Compiled
    from .lowering.bundle.loaded import LoadedModel


def optimize(
    model: str | Path | onnx.ModelProto | ir.Model,
    output: str | Path | None = None,
    *,
    observer: Observer | None = None,
    **options: Any,
) -> Result:
    """Optimise an ONNX model; with `output`, write it there once it is verified.

    `options` are the fields of `Options`. Raises EqfuseError with one clear line on anything a user can mend, among
    them VerificationError where the result differs from the original, or cannot be compared with it: then nothing is
    written.
    """
    return optimize_model(model, Path(output) if output is not None else None, options_of(Options, options), observer)


def compile(
    model: str | Path | onnx.ModelProto | ir.Model,
    output: str | Path,
    *,
    target: str = "host",
    threads: int | None = None,
    observer: Observer | None = None,
    accelerator: Mapping[str, Any] | None = None,
    tuning: Mapping[str, Any] | None = None,
    **options: Any,
) -> Compiled:
    """Compile an ONNX model for a target to a bundle: a folder that `load` runs. It is written once it is verified.

    `options` are the fields of `Options`; `partition` is "joint" unless it says otherwise, and `device` is the target.
    With a target ``dsa-NAME``, `accelerator` may hold the `batch`, `floats`, `variant`, `order` and `per_cluster` of
    the command line. `tuning` are the fields of `lowering.tuning.settings.Settings`, ``{"trials": 200}`` at least: then
    schedules are searched for. Raises EqfuseError with one clear line on anything a user can mend.
    """
    from .driver.compile import compile_model  # TVM takes a second to import
    from .lowering.tuning.settings import Settings

    wanted = None
    if accelerator is not None:
        from .driver.accelerator import AcceleratorOptions

        wanted = options_of(AcceleratorOptions, accelerator)
    return compile_model(
        model, Path(output), options_of(Options, {"partition": "joint", **options}),
        target=target, threads=threads, tuning=options_of(Settings, tuning) if tuning is not None else None,
        accelerator=wanted, observer=observer,
    )  # fmt: skip


def load(path: str | Path, threads: int | None = None) -> LoadedModel:
    """Load a compiled bundle: call what comes back with arrays, in the order of its inputs or by their names.

    Raises EqfuseError with one clear line where the bundle is damaged, edited, or made for another machine.
    """
    from .lowering.running.runner import load as load_bundle

    return load_bundle(path, threads)


__all__: Sequence[str] = ["Options", "Result", "compile", "load", "optimize"]
