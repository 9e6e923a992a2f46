"""Whether a program computes what ONNX Runtime computes of the original model, which has a batch of its own.

The original runs on as many samples as it takes, on other inputs each time; the program on all of them joined. The
compared samples are whole runs of both.

Storing floats in a narrower type changes the outputs, whatever program computes them, and no fixed tolerance fits: a
deep network may magnify the rounding of one weight a hundredfold, another not at all. So the original runs once more
with its weights and inputs rounded. Results of a right program, which also rounds what layers hand on, are about as far
off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ....engine.verification import ModelLike, Verification
from ....engine.verification.baseline import Baseline, Request, Run, run_original
from ....engine.verification.inputs.plans import input_specs
from ....engine.verification.outputs import ComparedOutput, Comparison, Demands, status_of
from ....engine.verification.runs.compare import Tolerance
from ....engine.verification.runs.run import OnnxRuntime
from ....engine.verification.runs.source import Source, open_source
from ....engine.verification.runs.structure import Structure
from ....engine.verification.runs.values import RunError, one_line
from ...base.ports import Port
from ...bundle.check import verdict
from ..network.storage import cast_array
from .simulated_model import SimulatedModel

Array = np.ndarray[Any, Any]
_SMALL_BATCH = 8
"""A batch of up to this many samples is compared whole."""
_ROUNDINGS = 4.0
"""An output may be off by this many times the effect of rounding weights and inputs."""
_UNITS = 4.0
"""An output may be off by this many units in the last place of its largest element."""


@dataclass(frozen=True)
class Original:
    """The model that was compiled: `inputs` are of its own `batch` samples, None if it has none."""

    model: ModelLike
    inputs: tuple[Port, ...]
    batch: int | None


@dataclass(frozen=True)
class Demand:
    """Tolerances and seed as the user gave them. `coarser` is the type of the stored floats if it is narrower than
    the model's."""

    atol: float | None = None
    rtol: float | None = None
    seed: int = 0
    coarser: str | None = None

    @property
    def has_tolerance(self) -> bool:
        """Whether the user gave a tolerance."""
        return self.atol is not None or self.rtol is not None


def samples_to_verify(model: SimulatedModel, original: Original) -> int:
    """All samples of a small batch; of others the fewest that the original and all programs run without a rest."""
    if original.batch is None:
        return 1
    fewest, batch = lcm(original.batch, _samples_once(model)), model.section.allocation.batch
    return batch if batch <= _SMALL_BATCH and batch % original.batch == 0 else fewest


def _samples_once(model: SimulatedModel) -> int:
    """The samples of one run of each program."""
    return sum(each.samples for each in model.section.programs)


def _programs_for(model: SimulatedModel, samples: int) -> tuple[int, ...]:
    """The numbers of the programs that run some samples: those of the whole batch, or each as often as the others."""
    if samples == model.section.allocation.batch:
        return model.section.whole_batch
    return tuple(range(len(model.section.programs))) * max(1, samples // _samples_once(model))


def verify_program(original: Original, model: SimulatedModel, demand: Demand = Demand()) -> Verification:
    """Run both on the same inputs, random from two seeds, and compare every output.

    If floats are stored in a narrower type and the user gave no tolerance, an output may be as far off as
    `_ROUNDINGS` and `_UNITS` say; no float64 run judges in doubt.
    """
    started = time.perf_counter()
    samples = samples_to_verify(model, original)
    chunks = samples // (original.batch or 1)
    with open_source(original.model, "original") as source:
        structure = Structure(source.structure)
        tolerance = Tolerance(demand.atol, demand.rtol, demand.coarser or structure.coarsest_type)
        shapes, specs = {port.name: port.static_shape for port in original.inputs}, input_specs(structure)
        requests = [Request(demand.seed + 2 * chunk, shapes, (), tolerance, ()) for chunk in range(chunks)]
        try:
            baselines = [run_original(source, structure, specs, request) for request in requests]
        except RunError as error:
            return verdict(started, "unverified", str(error))
        try:
            results = _run_program(model, baselines, samples)
        except Exception as error:  # whatever the simulator, TVM or ONNX Runtime raise
            return verdict(started, "failed", f"the program does not run: {one_line(error)}")
        demands = Demands(not demand.has_tolerance and demand.coarser is None)

        def compare(allowed: Tolerance) -> list[ComparedOutput]:
            pairs = zip(baselines, results, strict=True)
            chunks = [Comparison(source, structure, allowed, *pair, demands).outputs() for pair in pairs]
            return [_worst_chunk(outputs) for outputs in zip(*chunks, strict=True)]

        if demand.coarser is None or demand.has_tolerance:
            outputs = compare(tolerance)
        else:
            limits = _rounding_limits(source, baselines, demand.coarser)
            outputs = []
            for name in (value.name for value in structure.graph.output):
                limit = limits.get(name, 0.0)
                compared = next(o for o in compare(Tolerance(limit, 0.0)) if o.report.name == name)
                outputs.append(_doubted(compared, baselines, limit))
    return verdict(started, *status_of(outputs, structure), outputs)


def _run_program(model: SimulatedModel, baselines: Sequence[Baseline], samples: int) -> list[list[dict[str, Any]]]:
    """The program's outputs for the inputs of each run of the original: a list for each chunk of the samples."""
    section, chunks = model.section, len(baselines)
    numbers = _programs_for(model, samples)
    input_axes, output_axes = ({wire.port: wire.axis for wire in wires} for wires in (section.inputs, section.outputs))
    results: list[list[dict[str, Any]]] = [[] for _ in baselines]
    for runs in zip(*(baseline.runs for baseline in baselines), strict=True):
        joined: dict[str, Array] = {}
        for name in (port.name for port in model.inputs):
            axis, feeds = input_axes.get(name, 0), [run.feeds[name] for run in runs]
            joined[name] = feeds[0] if axis is None or chunks == 1 else np.concatenate(feeds, axis)
        shares: list[dict[str, Any]] = [{} for _ in baselines]
        for name, array in model.run_programs(joined, numbers).items():
            axis = output_axes.get(name, 0)
            parts = [array] * chunks if axis is None or chunks == 1 else np.split(array, chunks, axis)
            for share, part in zip(shares, parts, strict=True):
                share[name] = part
        for result, share in zip(results, shares, strict=True):
            result.append(share)
    return results


def _worst_chunk(chunks: Sequence[ComparedOutput]) -> ComparedOutput:
    """One output over all chunks: a chunk in which it differs, else the one in which it is farthest off among those
    that say something."""
    broken = next((each for each in chunks if each.broken_run is not None), None)
    informative = [each for each in chunks if each.is_informative] or list(chunks)
    return broken or max(informative, key=lambda each: each.report.max_abs)


# --- rounding


def _doubted(output: ComparedOutput, baselines: Sequence[Baseline], limit: float) -> ComparedOutput:
    """The same output, which says nothing if inputs move it so little that one that ignores them is within the limit.

    That is so unless an element moves by more than twice the limit between the first two runs.
    """
    name, report = output.report.name, output.report
    if output.broken_run is not None or not output.is_informative or report.note:
        return output
    for baseline in baselines:
        first, second = (np.asarray(run.outputs[name]) for run in baseline.runs[:2])
        if first.dtype.kind != "f" or first.shape != second.shape:
            return output
        with np.errstate(all="ignore"):
            if not first.size or _largest(first.astype(np.float64) - second) > 2 * limit:
                return output
    note = f"changes with the inputs by less than twice the {limit:.3g} that rounding may change it by"
    return replace(output, is_informative=False, report=replace(report, note=note))


def _rounding_limits(source: Source, baselines: Sequence[Baseline], dtype: str) -> dict[str, float]:
    """Per output, the largest difference that rounding to a type explains."""
    unit = _UNITS * float(np.finfo(np.dtype(dtype)).eps)
    largest = magnitudes(baselines)
    effects = rounding_effect(source, baselines, dtype)
    return {name: _ROUNDINGS * effect + unit * largest[name] for name, effect in effects.items()}


def rounding_effect(source: Source, baselines: Sequence[Baseline], dtype: str) -> dict[str, float]:
    """Per output of floats, the largest change over all runs. Raises RunError if the rounded model does not run."""
    model = onnx.load(source.path)
    constants = [
        a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t")
    ]
    for tensor in (*model.graph.initializer, *constants):
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
            tensor.CopyFrom(numpy_helper.from_array(_round(numpy_helper.to_array(tensor), dtype), tensor.name))
    effects: dict[str, float] = {}
    with open_source(model, "rounded") as rounded:
        backend = OnnxRuntime(rounded)
        for run in _runs(baselines):
            outputs = backend.run({name: _round(value, dtype) for name, value in run.feeds.items()})
            for name, value in run.outputs.items():
                change = 0.0
                if _is_float(value):
                    with np.errstate(all="ignore"):
                        change = _largest(value.astype(np.float64) - outputs[name])
                effects[name] = max(effects.get(name, 0.0), change)
    return effects


def magnitudes(baselines: Sequence[Baseline]) -> Mapping[str, float]:
    """Per output, its largest finite element over all runs."""
    largest: dict[str, float] = {}
    for run in _runs(baselines):
        for name, value in run.outputs.items():
            largest[name] = max(largest.get(name, 0.0), _largest(np.asarray(value)))
    return largest


def _runs(baselines: Sequence[Baseline]) -> Iterator[Run]:
    return (run for baseline in baselines for run in baseline.runs)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _round(array: Any, dtype: str) -> Any:
    return cast_array(array, dtype).astype(array.dtype) if _is_float(array) else array


def _largest(array: Array) -> float:
    if array.dtype.kind not in "fiu":
        return 0.0
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0
