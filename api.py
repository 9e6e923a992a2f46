"""The public API. The parameters of each function are the fields of a dataclass: its options (driver/options.py), which
the command of the same name has too, and its other arguments."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field
from inspect import cleandoc, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

import onnx
import onnx_ir as ir

from .driver.clock import Observer
from .driver.compiler.options import CompileOptions
from .driver.optimize import OptimizePass, Result, optimize_model
from .driver.options import BenchOptions, CostOptions, InspectOptions, MeasureOptions, Options, VerifyOptions
from .lowering.running.runner import load
from .support.options import File, PathLike, about, option, option_class, part_of, takes

if TYPE_CHECKING:
    from .driver.bench import Emulation, Estimation, KernelLatency, Latency, ServiceReport, Simulation
    from .driver.compiler.compilation import Compiled
    from .driver.inspect import Difference, Inspection, Verification

ModelLike = PathLike | onnx.ModelProto | ir.Model
Parameters = ParamSpec("Parameters")
_NOWHERE: Any = None
InMemory = TypeVar("InMemory", onnx.ModelProto, ir.Model)

__all__ = [
    "OptimizePass", "Options", "Result", "bench", "compile", "diff", "inspect", "load", "optimize",
    "optimize_with_result", "verify",
]  # fmt: skip


@option_class(kw_only=True, init=False, repr=False, eq=False)
class _Model:
    """The first argument of a function; `option` describes those that can be left out."""

    model: ModelLike = field(kw_only=False, metadata=about("the path of an ONNX file, or a model", is_checked=False))


@option_class(kw_only=True, init=False, repr=False, eq=False)
class _Candidate(_Model):
    candidate: ModelLike = field(kw_only=False, metadata=about("the model to compare with it", is_checked=False))


@option_class(kw_only=True, init=False, repr=False, eq=False)
class _Observed:
    observer: Observer | None = option(
        None, "is called with the phase and a line of detail during the work", is_checked=False
    )


@option_class(kw_only=True, repr=False, eq=False)
class _Optimize(_Observed, Options, MeasureOptions, _Model):
    output: File = field(default=_NOWHERE, kw_only=False, metadata=about("the file to write"))


@option_class(kw_only=True, repr=False, eq=False)
class _Compile(_Observed, CompileOptions, _Model):
    output: PathLike = field(kw_only=False, metadata=about("the folder to write", is_checked=False))


@option_class(kw_only=True, repr=False, eq=False)
class _Verify(VerifyOptions, _Candidate):
    pass


@option_class(kw_only=True, repr=False, eq=False)
class _Inspect(InspectOptions, _Model):
    pass


@option_class(kw_only=True, repr=False, eq=False)
class _Diff(CostOptions, _Candidate):
    pass


@option_class(kw_only=True, repr=False, eq=False)
class _Bench(BenchOptions):
    bundle: PathLike = field(kw_only=False, metadata=about("the folder that `compile` wrote", is_checked=False))


class _ReturnKindOfModel(Protocol[Parameters]):
    """A function that returns a model in memory for a model in memory, and a `Result` for the path of a file."""

    @overload
    def __call__(self, model: InMemory, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> InMemory: ...
    @overload
    def __call__(self, model: PathLike, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result: ...


def _return_kind_of_model(
    function: Callable[Concatenate[ModelLike, Parameters], Result],
) -> _ReturnKindOfModel[Parameters]:
    """`optimize`: the same call, but it returns a model of the kind that it is given."""

    def optimize(model: Any, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
        """Optimise an ONNX model; with `output`, write it there once it is verified.

        Returns a new onnx.ModelProto for a ModelProto, a new onnx_ir.Model for an onnx_ir.Model (the given model is
        never changed), and for the path of a file the `Result` with figures and verdict, which `optimize_with_result`
        returns for every model.

        Raises EqfuseError with one clear line on any error that a user can mend, among them VerificationError if the
        result differs from the original, or cannot be compared with it: then nothing is written.
        """
        result = function(model, *args, **kwargs)
        if isinstance(model, (str, os.PathLike)):
            return result
        return result.model if isinstance(model, type(result.model)) else result.proto

    call: Any = optimize
    call.__signature__ = signature(function).replace(return_annotation="ModelProto | onnx_ir.Model | Result")
    options = (function.__doc__ or "").partition("\n\n")[2]
    call.__doc__ = f"{cleandoc(optimize.__doc__ or '')}\n\n{options}"
    typed: _ReturnKindOfModel[Parameters] = call
    return typed


@takes(_Optimize)
def optimize_with_result(call: _Optimize) -> Result:
    """Optimise as `optimize` does, with the `Result` for any model: figures, rules, verdict, and the model itself."""
    options, measure = part_of(Options, call), part_of(MeasureOptions, call)
    return optimize_model(call.model, call.output, options, call.observer, measure=measure)


optimize = _return_kind_of_model(optimize_with_result)


@takes(_Compile)
def compile(call: _Compile) -> Compiled:
    """Compile an ONNX model for a target to a bundle: a folder that `load` runs. It is written once it is verified.

    For a processor, `device` is the target. With format "c" the folder is a C project without Python, whose names begin
    with `prefix`. Raises EqfuseError with one clear line on any error that a user can mend.
    """
    from .driver.compiler.compile import compile_model  # TVM takes a second to import

    return compile_model(call.model, Path(call.output), call, call.observer)


@takes(_Verify)
def verify(call: _Verify) -> Verification:
    """Run two models on the same inputs and compare their outputs.

    The `status` of the result says whether they agree. Raises VerificationError if there is no verdict.
    """
    from .driver.inspect import verify_models

    return verify_models(call.model, call.candidate, call)


@takes(_Inspect)
def inspect(call: _Inspect) -> Inspection:
    """Describe a model: inputs, outputs, operators, predicted cost, and its partition if it has or gets one."""
    from .driver.inspect import inspect_model

    return inspect_model(call.model, call)


@takes(_Diff)
def diff(call: _Diff) -> Difference:
    """The figures of two models, by one cost model."""
    from .driver.inspect import diff_models

    return diff_models(call.model, call.candidate, call)


@takes(_Bench)
def bench(call: _Bench) -> Latency | ServiceReport | KernelLatency | Emulation | Simulation | Estimation:
    """Measure a compiled bundle: its time, with ``against="ort"`` beside ONNX Runtime's.

    Dynamic dimensions have the sizes that the bundle is optimised for, and `batch`. The result is a `Latency`; with
    `throughput`, a number of clients that call at once, a `ServiceReport`; with `kernels` a `KernelLatency`; with
    `emulate` an `Emulation` of a bundle for Arm; for an accelerator the `Simulation` of its program, and for an Ethos-U
    Vela's estimate of it, an `Estimation`.
    """
    from .driver.bench import bench_model

    return bench_model(Path(call.bundle), call)
