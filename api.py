"""The public API. Each keyword option is a field of the options class of its function (driver/options.py) and an option
of the command of the same name; the classes document and check them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from .driver.clock import Observer
from .driver.optimize import OptimizePass, Result, optimize_model
from .driver.options import (
    NO_SHAPES,
    BenchOptions,
    CostName,
    Extraction,
    InspectOptions,
    MeasureOptions,
    Options,
    PartitionMethod,
    Precision,
    PricingOptions,
    Shapes,
    VerifyOptions,
)
from .driver.sizes import batch_sizes
from .lowering.running.runner import load
from .support.options import options_of, pick_options, require_names

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from .driver.bench import Emulation, KernelLatency, Latency, ServiceReport, Simulation
    from .driver.compiler.accelerator import AcceleratorOptions
    from .driver.compiler.compilation import Compiled
    from .driver.compiler.compile import Format
    from .driver.inspect import Difference, Inspection, Verification
    from .lowering.tuning.settings import Settings

    ModelLike = str | Path | onnx.ModelProto | ir.Model
    PathLike = str | Path
    Paths = str | Path | Sequence[str | Path]
    Names = str | Sequence[str]

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
InMemory = TypeVar("InMemory", "onnx.ModelProto", "ir.Model")

__all__ = [
    "OptimizePass", "Options", "Result", "bench", "compile", "diff", "inspect", "load", "optimize",
    "optimize_with_result", "verify",
]  # fmt: skip


def _suggest_names(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Let a misspelled option raise a UsageError that suggests the right name, in place of a TypeError."""
    names = [name for name, each in signature(function).parameters.items() if each.kind is Parameter.KEYWORD_ONLY]
    others = [name for name in signature(function).parameters if name not in names]

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        require_names([name for name in kwargs if name not in others], names)
        return function(*args, **kwargs)

    return call


class _Optimize(Protocol[Parameters]):
    """A function that gives a model in memory for a model in memory, and a `Result` for the path of a file."""

    @overload
    def __call__(self, model: InMemory, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> InMemory: ...
    @overload
    def __call__(self, model: PathLike, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result: ...


def _return_kind_of_model(
    function: Callable[Concatenate[ModelLike, Parameters], Result],
) -> _Optimize[Parameters]:
    """`optimize`: the same call, but what it returns is of the kind that it is given."""

    def optimize(model: Any, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
        """Optimise an ONNX model; with `output`, write it there once it is verified.

        Returns what it is given: a new onnx.ModelProto for a ModelProto and a new onnx_ir.Model for an onnx_ir.Model,
        neither of which is changed; for the path of a file, the `Result` with figures and verdict, which
        `optimize_with_result` gives for every model. With `measure`, candidates are timed in ONNX Runtime for that many
        seconds, and the result is the fastest. `precision`: "exact" keeps every bit; "real" assumes finite inputs, of
        which a NaN or an infinity may give another result; "fast" may change overflow inside the model, too.

        Raises EqfuseError with one clear line on anything a user can mend, among them VerificationError where the
        result differs from the original, or cannot be compared with it: then nothing is written.
        """
        result = function(model, *args, **kwargs)
        if isinstance(model, (str, os.PathLike)):
            return result
        return result.model if isinstance(model, type(result.model)) else result.proto

    call: Any = optimize
    call.__signature__ = signature(function).replace(return_annotation="ModelProto | onnx_ir.Model | Result")
    typed: _Optimize[Parameters] = call
    return typed


@_suggest_names
def optimize_with_result(
    model: ModelLike,
    output: PathLike | None = None,
    *,
    observer: Observer | None = None,
    cost: CostName = "roofline",
    device: str = "",
    precision: Precision = "real",
    rules: Paths = (),
    only: Names = (),
    skip: Names = (),
    domains: Names = (),
    trust_rules: bool = False,
    time_limit: float | None = None,
    node_limit: int = 50_000,
    iterations: int = 200,
    extraction: Extraction = "exact",
    runtime: str = "onnxruntime",
    opset: int | None = None,
    input_shapes: Shapes = NO_SHAPES,
    dim: Names = (),
    typical: Names = (),
    range: Names = (),
    outputs: Names = (),
    custom_ops: Paths = (),
    verify: bool = True,
    inputs: Paths = (),
    atol: float | None = None,
    rtol: float | None = None,
    verify_limit: float | None = None,
    seed: int = 0,
    partition: PartitionMethod = "none",
    as_functions: bool = False,
    certify: bool = False,
    certificate: PathLike | None = None,
    intensive: bool = True,
    measure: float | None = None,
    threads: int | None = None,
) -> Result:
    """Optimise as `optimize` does, with the `Result` for any model: figures, rules, verdict, and the model itself."""
    options, measurement = pick_options(Options, locals()), pick_options(MeasureOptions, locals())
    return optimize_model(model, Path(output) if output is not None else None, options, observer, measure=measurement)


optimize = _return_kind_of_model(optimize_with_result)


@_suggest_names
def compile(
    model: ModelLike,
    output: PathLike,
    *,
    target: str = "host",
    threads: int | None = None,
    measure: bool = True,
    batch: int | Sequence[int] = (),
    format: Format | None = None,
    prefix: str | None = None,
    accelerator: AcceleratorOptions | Mapping[str, Any] | None = None,
    tuning: Settings | Mapping[str, Any] | None = None,
    observer: Observer | None = None,
    cost: CostName = "roofline",
    device: str = "",
    precision: Precision = "real",
    rules: Paths = (),
    only: Names = (),
    skip: Names = (),
    domains: Names = (),
    trust_rules: bool = False,
    time_limit: float | None = None,
    node_limit: int = 50_000,
    iterations: int = 200,
    extraction: Extraction = "exact",
    runtime: str = "onnxruntime",
    opset: int | None = None,
    input_shapes: Shapes = NO_SHAPES,
    dim: Names = (),
    typical: Names = (),
    range: Names = (),
    outputs: Names = (),
    custom_ops: Paths = (),
    verify: bool = True,
    inputs: Paths = (),
    atol: float | None = None,
    rtol: float | None = None,
    verify_limit: float | None = None,
    seed: int = 0,
    partition: PartitionMethod = "joint",
    as_functions: bool = False,
    certify: bool = False,
    certificate: PathLike | None = None,
    intensive: bool = True,
) -> Compiled:
    """Compile an ONNX model for a target to a bundle: a folder that `load` runs. It is written once it is verified.

    For a processor, `device` is the target; with `measure` its kernels are timed, and slow ones compiled in another way
    where that is faster. `batch` is a size of the batch or several, each of which gets kernels beside those for all
    sizes; a model for one sample takes several then. With format "c" the folder is a C project without Python, whose
    names begin with `prefix` (default "eqfuse"). For a target ``dsa-NAME``, `accelerator` may hold `batch`, `floats`,
    `variant`, `order` and `per_cluster`. `tuning`, at least ``{"trials": 200}``, searches for schedules; it may hold
    the fields of `lowering.tuning.settings.Settings`. Raises EqfuseError with one clear line on anything a user can
    mend.
    """
    from .driver.compiler.compile import compile_model  # TVM takes a second to import
    from .lowering.tuning.settings import Settings

    options = pick_options(Options, locals())
    if isinstance(accelerator, Mapping):
        from .driver.compiler.accelerator import AcceleratorOptions

        accelerator = options_of(AcceleratorOptions, accelerator)
    return compile_model(
        model, Path(output), options, target=target, threads=threads, measure=measure, batch=batch_sizes(batch),
        format=format, prefix=prefix,
        tuning=options_of(Settings, tuning) if isinstance(tuning, Mapping) else tuning,
        accelerator=accelerator, observer=observer,
    )  # fmt: skip


@_suggest_names
def verify(
    model: ModelLike,
    candidate: ModelLike,
    *,
    input_shapes: Shapes = NO_SHAPES,
    inputs: Paths = (),
    atol: float | None = None,
    rtol: float | None = None,
    verify_limit: float = 300.0,
    seed: int = 0,
    custom_ops: Paths = (),
) -> Verification:
    """Run two models on the same inputs and compare their outputs.

    The `status` of the result says whether they agree. Raises VerificationError where there is no verdict.
    """
    from .driver.inspect import verify_models

    return verify_models(model, candidate, pick_options(VerifyOptions, locals()))


@_suggest_names
def inspect(
    model: ModelLike,
    *,
    cost: CostName = "roofline",
    device: str = "",
    input_shapes: Shapes = NO_SHAPES,
    dim: Names = (),
    partition: PartitionMethod | None = None,
    certificate: PathLike | None = None,
    certify: bool = False,
    time_limit: float = 10.0,
) -> Inspection:
    """Describe a model: inputs, outputs, operators, predicted cost, and its partition if it has or gets one."""
    from .driver.inspect import inspect_model

    return inspect_model(model, pick_options(InspectOptions, locals()))


@_suggest_names
def diff(model: ModelLike, candidate: ModelLike, *, cost: CostName = "roofline", device: str = "") -> Difference:
    """The figures of two models, by one cost model."""
    from .driver.inspect import diff_models

    return diff_models(model, candidate, pick_options(PricingOptions, locals()))


@_suggest_names
def bench(
    bundle: PathLike,
    *,
    against: str | None = None,
    trace: PathLike | None = None,
    model: PathLike | None = None,
    kernels: bool = False,
    throughput: int | None = None,
    batch: int | None = None,
    repeat: int | None = None,
    inputs: Paths = (),
    threads: int | None = None,
    emulate: bool = False,
    arm64_root: PathLike | None = None,
) -> Latency | ServiceReport | KernelLatency | Emulation | Simulation:
    """Measure a compiled bundle: its time, with ``against="ort"`` beside ONNX Runtime's.

    Free dimensions have the typical sizes of the bundle, and the `batch` that is given. The result is a `Latency`;
    with `throughput`, a number of clients that call at once, a `ServiceReport`; with `kernels` a `KernelLatency`; with
    `emulate` an `Emulation` of a bundle for Arm; and for an accelerator the `Simulation` of its program.
    """
    from .driver.bench import bench_model

    return bench_model(Path(bundle), pick_options(BenchOptions, locals()))
