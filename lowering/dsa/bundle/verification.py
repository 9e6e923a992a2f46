"""Whether a program computes what ONNX Runtime computes of the original model, which has a batch of its own.

The original runs on as many samples as it takes, on other inputs each time; the program on all of them joined. Compared
are as many samples as are whole runs of both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np

from ....engine.verification import ModelLike, Verification
from ....engine.verification.baseline import Baseline, Request, run_original
from ....engine.verification.compare import Tolerance
from ....engine.verification.inputs import input_specs
from ....engine.verification.outputs import ComparedOutput, Comparison, Demands, status_of
from ....engine.verification.source import Source, open_source
from ....engine.verification.structure import Structure
from ....engine.verification.values import RunError, one_line
from ...bundle.check import verdict
from ...interface import Port
from .rounding import magnitudes, rounding_effect
from .section import Wire
from .simulated_model import SimulatedModel

Array = np.ndarray[Any, Any]
_SMALL = 8
"""A batch up to which all of it is compared."""
_ROUNDINGS, _UNITS = 4.0, 4.0


@dataclass(frozen=True)
class Original:
    """The model that was compiled: `inputs` are of its own `batch` samples, None where it has none."""

    model: ModelLike
    inputs: tuple[Port, ...]
    batch: int | None


@dataclass(frozen=True)
class Demand:
    """Tolerances and seed as the user gave them; `coarser`: floats are stored in a narrower type than the model's."""

    atol: float | None = None
    rtol: float | None = None
    seed: int = 0
    coarser: str | None = None


def samples_to_verify(model: SimulatedModel, original: Original) -> int:
    """All of a small batch; of others the fewest that are whole runs of both."""
    allocation = model.section.allocation
    if original.batch is None:
        return 1
    fewest = lcm(original.batch, allocation.per_cluster)
    whole = allocation.batch
    return whole if whole <= _SMALL and whole % fewest == 0 else fewest


def verify_program(original: Original, model: SimulatedModel, demand: Demand = Demand()) -> Verification:
    """Run both on the same inputs, random from two seeds, and compare every output.

    Where floats are stored in a narrower type, an output may be as far off as `_ROUNDINGS` times what rounding the
    weights and inputs of the original to that type does to it, and `_UNITS` units in the last place of its largest
    element; no float64 run judges in doubt.
    """
    started = time.perf_counter()
    samples = samples_to_verify(model, original)
    chunks = samples // (original.batch or 1)
    with open_source(original.model, "original") as source:
        structure = Structure(source.structure)
        tolerance = Tolerance(demand.atol, demand.rtol, demand.coarser or structure.coarsest_type)
        shapes, specs = {port.name: port.shape for port in original.inputs}, input_specs(structure)
        requests = [Request(demand.seed + 2 * chunk, shapes, (), tolerance, ()) for chunk in range(chunks)]
        try:
            baselines = [run_original(source, structure, specs, request) for request in requests]
        except RunError as error:
            return verdict(started, "unverified", str(error))
        try:
            results = _results(model, baselines, samples)
        except Exception as error:  # whatever the simulator, TVM or ONNX Runtime raise
            return verdict(started, "failed", f"the program does not run: {one_line(error)}")
        demands = Demands(demand.atol is None and demand.rtol is None and demand.coarser is None)

        def compared(allowed: Tolerance) -> list[ComparedOutput]:
            pairs = zip(baselines, results, strict=True)
            each = [Comparison(source, structure, allowed, given, found, demands).outputs() for given, found in pairs]
            return [_worst(same) for same in zip(*each, strict=True)]

        if demand.coarser is None or not (demand.atol is None and demand.rtol is None):
            worst = compared(tolerance)
        else:
            limits = _limits(source, baselines, demand.coarser)
            worst = [
                next(
                    each
                    for each in compared(Tolerance(limits.get(value.name, 0.0), 0.0))
                    if each.report.name == value.name
                )
                for value in structure.graph.output
            ]
    return verdict(started, *status_of(worst, structure), worst)


def _limits(source: Source, baselines: Sequence[Baseline], dtype: str) -> dict[str, float]:
    """Per output, the largest difference that rounding to a type explains."""
    unit = _UNITS * float(np.finfo(np.dtype(dtype)).eps)
    largest = magnitudes(baselines)
    return {
        name: _ROUNDINGS * effect + unit * largest[name]
        for name, effect in rounding_effect(source, baselines, dtype).items()
    }


def _results(model: SimulatedModel, baselines: Sequence[Baseline], samples: int) -> list[list[dict[str, Any]]]:
    """Per chunk, what the program gives for each of its runs."""
    found: list[list[dict[str, Any]]] = [[] for _ in baselines]
    count = max(1, samples // model.section.allocation.per_cluster)
    for number in range(len(baselines[0].runs)):
        feeds = [baseline.runs[number].feeds for baseline in baselines]
        outputs = model.run_programs(_joined(feeds, model), count)
        for chunk, share in enumerate(_shares(outputs, model.section.outputs, len(baselines))):
            found[chunk].append(share)
    return found


def _joined(feeds: Sequence[Mapping[str, Any]], model: SimulatedModel) -> dict[str, Array]:
    axes = {wire.port: wire.axis for wire in model.section.inputs}
    names = [port.name for port in model.inputs]
    return {
        name: feeds[0][name] if axes.get(name, 0) is None or len(feeds) == 1
        else np.concatenate([feed[name] for feed in feeds], axes.get(name, 0) or 0)
        for name in names
    }  # fmt: skip


def _shares(outputs: Mapping[str, Array], wires: Sequence[Wire], chunks: int) -> list[dict[str, Any]]:
    axes = {wire.port: wire.axis for wire in wires}
    found: list[dict[str, Any]] = [{} for _ in range(chunks)]
    for name, array in outputs.items():
        axis = axes.get(name, 0)
        parts = [array] * chunks if axis is None or chunks == 1 else np.split(array, chunks, axis)
        for share, part in zip(found, parts, strict=True):
            share[name] = part
    return found


def _worst(same: Sequence[ComparedOutput]) -> ComparedOutput:
    """One output over all chunks: where it differs, else where it is farthest off among those that say something."""
    broken = next((each for each in same if each.broken_run is not None), None)
    told = [each for each in same if each.is_informative] or list(same)
    return broken or max(told, key=lambda each: each.report.max_abs)
