"""Whether a compiled bundle computes what ONNX Runtime computes of the original model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from ...engine.verification import ModelLike, Verification
from ...engine.verification.baseline import STRESS, Request, draw_accepted, run_ordinary, run_original
from ...engine.verification.inputs.given import Sample
from ...engine.verification.inputs.plans import input_specs
from ...engine.verification.outputs import ComparedOutput, Comparison, Demands, status_of
from ...engine.verification.report import Status
from ...engine.verification.runs.compare import Tolerance
from ...engine.verification.runs.run import OnnxRuntime
from ...engine.verification.runs.source import model_file, read_source
from ...engine.verification.runs.structure import Structure
from ...engine.verification.runs.values import RunError, Value, one_line
from ...support.deadlines import is_over, seconds_left
from ...support.errors import UsageError, VerificationError
from ..base.errors import CrashError
from ..base.ports import Port
from .isolation import call_isolated, prepare

Parameters = ParamSpec("Parameters")
Outcome = TypeVar("Outcome")


class Runnable(Protocol):
    """A compiled model, on this machine or emulated."""

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs to give."""
        ...

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run once, with names in and out."""
        ...


Model = TypeVar("Model", bound=Runnable)


@dataclass(frozen=True)
class Tolerated:
    """How far outputs may be off, by default as the element type says, and the inputs: given ones, or drawn by a seed.

    `stress`: if the tolerances are the default ones, stress inputs are drawn, too.
    `is_fast`: on these the compiled model may give NaN or an infinity even if the original does not, and numbers that
    the original rounds may stay as they are. `sizes` of dynamic dimensions are tried beside those that are drawn.
    `empty`: the user says that these dimensions may be 0, so that outputs without elements have to have the original's
    shape, too.
    """

    atol: float | None = None
    rtol: float | None = None
    seed: int = 0
    samples: tuple[Sample, ...] = ()
    stress: bool = True
    is_fast: bool = False
    sizes: tuple[Mapping[str, int], ...] = ()
    empty: frozenset[str] = frozenset()


def verify_compiled(
    original: ModelLike, compiled: Model, tolerated: Tolerated, limit: float, rewritten: ModelLike | None = None
) -> tuple[Verification, Model]:
    """Run both on the same inputs and compare every output; within `limit` seconds. The `rewritten` model, which was
    compiled, shows how much of a difference is rounding.

    Tolerances, the float64 oracle and the demand that outputs depend on the inputs are those of `verify`. Also returns
    the compiled model as the runs left it. Raises VerificationError if there is no verdict.
    """
    with model_file(original) as path, model_file(rewritten or path) as other:
        kept = None if rewritten is None else other.absolute()
        return call_for_verdict(limit, _compare, path.absolute(), compiled, tolerated, kept)


def call_for_verdict(
    limit: float,
    function: Callable[Parameters, Outcome],
    *arguments: Parameters.args,
    **named: Parameters.kwargs,
) -> Outcome:
    """The findings of a comparison with an original in a process of its own, which may crash or never end.

    Compiled code runs in yet another one. Raises VerificationError if there is no answer within `limit` seconds.
    """
    try:
        return call_isolated(limit, function, *arguments, **named)
    except CrashError as error:
        hint = "; --verify-limit gives it more" if error.timed_out else " while it ran the original model"
        raise VerificationError(f"verification {error}{hint}") from None


def _compare(
    original: Path, compiled: Model, tolerated: Tolerated, rewritten: Path | None
) -> tuple[Verification, Model]:
    prepare()  # a process for the compiled code, while the original runs
    return _verification(original, compiled, tolerated, rewritten), compiled


def _verification(
    original: Path, compiled: Runnable, tolerated: Tolerated, rewritten: Path | None = None
) -> Verification:
    """The verdict over drawn sizes and those of `tolerated`: wrong if wrong for one. Refused sizes do not count."""
    started = time.perf_counter()
    source = read_source(original, "original")
    made_from = None if rewritten is None else read_source(rewritten, "rewritten")
    structure = Structure(source.structure)
    tolerance = Tolerance(tolerated.atol, tolerated.rtol, structure.coarsest_type)
    by_default = tolerated.atol is None and tolerated.rtol is None
    tempers = STRESS if by_default and tolerated.stress else ()
    fixed = {port.name: port.static_shape for port in compiled.inputs if port.is_static}
    requests = [Request(tolerated.seed, fixed, tolerated.samples, tolerance, tempers)]
    if len(fixed) < len(compiled.inputs):
        shapes = ({port.name: port.shape_for(sizes) for port in compiled.inputs} for sizes in tolerated.sizes)
        requests += [Request(tolerated.seed, each, (), tolerance, ()) for each in shapes]
    demands = Demands(by_default, is_fast=tolerated.is_fast)
    specs, runtime, verdicts = input_specs(structure), None, []
    for request in requests:
        try:
            if runtime is None:
                baseline = run_original(source, structure, specs, request)
                runtime = None if baseline.on_reference else OnnxRuntime(source)
            else:  # the reference evaluator would run the model on sizes that ONNX Runtime refuses
                baseline = run_ordinary(runtime, structure, specs, request)
            results = [_run(compiled, run.feeds) for run in baseline.runs]
            compared = Comparison(
                source, structure, tolerance, baseline, results, demands, rewritten=made_from
            ).outputs()
            ruling = verdict(started, *status_of(compared, structure), compared, baseline.one_sided)
        except RefusedError as error:
            if request.samples or not tolerated.sizes:
                return verdict(started, "failed", f"the compiled model refuses the inputs: {error}")
            continue
        except BundleRunError as error:
            return verdict(started, "failed", f"the compiled model does not run: {error}")
        except RunError as error:
            ruling = verdict(started, "unverified", str(error))
        if ruling.status == "failed":
            return ruling
        verdicts.append(ruling)
    nothing = verdict(started, "unverified", "nothing was verified, the compiled model refuses all sizes tried")
    return next((each for each in verdicts if each.status != "unverified"), (*verdicts, nothing)[0])


def fit_to_original(
    original: ModelLike, ports: Sequence[Port], sizes: Mapping[str, int], seed: int, limit: float
) -> Mapping[str, int]:
    """The sizes of dynamic dimensions; others on which the original runs, if there are any and it refuses these.

    No shape says that a mask covers what is in a cache and what is new: a run does.
    """
    with model_file(original) as path:
        try:
            return call_isolated(limit, _fit_to_original, path.absolute(), ports, sizes, seed)
        except CrashError:
            return sizes


def _fit_to_original(original: Path, ports: Sequence[Port], sizes: Mapping[str, int], seed: int) -> Mapping[str, int]:
    source = read_source(original, "original")
    structure = Structure(source.structure)
    shapes = {port.name: port.shape_for(sizes) for port in ports}
    for given in (shapes, {}):
        try:
            drawn = draw_accepted(source, structure, seed, given)
        except RunError:
            continue
        dims = [(dim, size) for port in ports for dim, size in zip(port.shape, drawn[port.name].shape, strict=True)]
        return {**sizes, **{dim: size for dim, size in dims if isinstance(dim, str) and dim in sizes}}
    return sizes


def verify_rare_sizes(
    original: ModelLike, compiled: Model, tolerated: Tolerated, deadline: float, sizes: Sequence[Mapping[str, int]]
) -> tuple[Verification | None, Model]:
    """The verdict if the compiled model is wrong on one of these sizes of dynamic dimensions; None if on none.

    Sizes that one of the two refuses, on which the original crashes, or that are not reached before the `deadline`
    (time.monotonic) say nothing. Also returns the compiled model as the runs left it.
    """
    with model_file(original) as path:
        file = path.absolute()
        for some in ([sizes], [[each] for each in sizes]):
            crashes = 0
            for each in some:
                try:
                    left = seconds_left(deadline)
                    wrong, compiled = call_isolated(left, _check_rare_sizes, file, compiled, tolerated, each)
                except CrashError:  # ONNX Runtime's: compiled code runs in a process of its own
                    crashes += 1
                    continue
                if wrong is not None:
                    return wrong, compiled
            if not crashes or is_over(deadline):
                break
    return None, compiled


def _check_rare_sizes(
    original: Path, compiled: Model, tolerated: Tolerated, sizes: Sequence[Mapping[str, int]]
) -> tuple[Verification | None, Model]:
    started = time.perf_counter()
    prepare()
    source = read_source(original, "original")
    structure = Structure(source.structure)
    tolerance = Tolerance(tolerated.atol, tolerated.rtol, structure.coarsest_type)
    specs, runtime = input_specs(structure), OnnxRuntime(source)
    for each in sizes:
        if structure.is_recurrent and 0 in each.values():
            continue  # after no steps, ONNX Runtime's states are whatever was in memory
        shapes = {port.name: port.shape_for(each) for port in compiled.inputs}
        status: Status
        try:
            baseline = run_ordinary(runtime, structure, specs, Request(tolerated.seed, shapes, (), tolerance, ()))
            results = [_run(compiled, run.feeds) for run in baseline.runs]
            if any(size == 0 and name not in tolerated.empty for name, size in each.items()):
                results = [_as_empty(result, run.outputs) for result, run in zip(results, baseline.runs, strict=True)]
        except BundleRunError as error:
            compared: Sequence[ComparedOutput] = ()
            status, reason = "failed", f"the compiled model does not run: {error}"
        except RunError:
            continue
        else:
            demands = Demands(tolerated.atol is None and tolerated.rtol is None)
            compared = Comparison(source, structure, tolerance, baseline, results, demands).outputs()
            status, reason = status_of(compared, structure)
        if status == "failed":
            sizes_text = ", ".join(f"{name}={size}" for name, size in each.items())
            return verdict(started, status, f"for {sizes_text}: {reason}", compared), compiled
    return None, compiled


def _as_empty(result: Mapping[str, Any], expected: Mapping[str, Value]) -> dict[str, Any]:
    """The results, and in place of those without elements the expected ones of that type and rank if they have none.

    A Reshape by a computed 0, which copies a dimension, gives other shapes than for all other sizes.
    """

    def is_nothing(value: Value) -> bool:
        return isinstance(value, np.ndarray) and not value.size

    return {
        name: wanted
        if is_nothing(array) and is_nothing(wanted) and (array.dtype, array.ndim) == (wanted.dtype, wanted.ndim)
        else array
        for name, array in result.items() for wanted in [expected[name]]
    }  # fmt: skip


class BundleRunError(RunError):
    """The compiled model does not run."""


class RefusedError(RunError):
    """The compiled model does not take these sizes of the inputs."""


def _run(compiled: Runnable, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """All outputs. Only the inputs without a default are compiled as inputs."""
    names = {port.name for port in compiled.inputs}
    try:
        return dict(compiled.run({name: value for name, value in feeds.items() if name in names}))
    except UsageError as error:
        raise RefusedError(one_line(error)) from error
    except Exception as error:  # whatever kernels or ONNX Runtime raise
        raise BundleRunError(one_line(error)) from error


def verdict(
    started: float,
    status: Status,
    reason: str,
    compared: Sequence[ComparedOutput] = (),
    one_sided: tuple[str, ...] = (),
) -> Verification:
    """What a verification that began at `started` (of time.perf_counter) says."""
    reports = tuple(output.report for output in compared)
    return Verification(status, reports, None, reason, time.perf_counter() - started, one_sided=one_sided)
