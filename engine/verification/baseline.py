"""Running the original: inputs that it accepts, under two seeds, and once more with other symbolic sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compare import Tolerance, differs, spread_of, widened
from .inputs import InputSpec, Plan, enlarged, generate, plans, vary
from .run import Backend, OnnxRuntime, Reference
from .source import Source
from .structure import Structure
from .values import Feeds, RunError, Value, leaves

_RETRY_SCALES = (0.1, 0.01, 10.0)
"""Input scales tried when no output reacts to its inputs: a saturated softmax often wakes up at another scale."""

_REFERENCE_PLANS = 4
"""The reference evaluator is slow: it is not asked about every plan."""

_ELEMENT_BYTES = 4
_LARGEST_BYTES = 2 << 30
"""What any one value may take, near enough: tensors of real models are smaller, those of damaged ones often not."""

_UNIT_RANGE = frozenset({"Softmax", "Sigmoid", "HardSigmoid"})
_SIGNED_RANGE = frozenset({"Tanh", "Softsign"})
_SATURATED = 1e-3


@dataclass(frozen=True)
class Request:
    """What the caller fixed."""

    seed: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    user_inputs: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)


@dataclass(frozen=True)
class Run:
    """One run of the original. ``title`` is empty for the ordinary runs and says what is special about others."""

    feeds: Feeds
    outputs: Mapping[str, Value]
    title: str = ""


@dataclass(frozen=True)
class Baseline:
    """Runs of the original; where there are inputs, the first two differ in every value but in no shape."""

    runs: tuple[Run, ...]
    on_reference: bool

    def spread(self, name: str) -> float | None:
        """Root mean square move of a float output between the first two runs; None where that has no meaning."""
        first, second = self._pair(name)
        return spread_of(first, second)

    def reacts(self, name: str, tolerance: Tolerance) -> bool:
        """Whether an output changed by more than rounding when every input changed."""
        first, second = self._pair(name)
        return differs(first, second, tolerance)

    def _pair(self, name: str) -> tuple[Value, Value]:
        return self.runs[0].outputs[name], self.runs[min(1, len(self.runs) - 1)].outputs[name]


def establish(source: Source, structure: Structure, specs: Sequence[InputSpec], request: Request) -> Baseline:
    """Run the original in ONNX Runtime or else in the reference evaluator.

    Raises RunError when neither runs it on any inputs that were tried.
    """
    _check_sizes(structure)
    candidates = plans(specs, request.shapes, request.user_inputs)
    try:
        return _baseline(OnnxRuntime(source), candidates, structure, specs, request)
    except RunError as error:
        refusal = str(error)
    few = itertools.islice(plans(specs, request.shapes, request.user_inputs), _REFERENCE_PLANS)
    try:
        return replace(_baseline(Reference(source), few, structure, specs, request), on_reference=True)
    except RunError as error:
        raise RunError(f"ONNX Runtime: {refusal}; reference evaluator: {error}") from error


def _check_sizes(structure: Structure) -> None:
    """Raise RunError for a value that would take more memory than a comparison is worth."""
    for name, shape in structure.shapes.items():
        sizes = [dim for dim in shape.dims or () if dim is not None]
        is_known = shape.dims is not None and len(sizes) == len(shape.dims) and name not in structure.initializers
        if is_known and math.prod(sizes) * _ELEMENT_BYTES > _LARGEST_BYTES:
            raise RunError(f"value {name!r} of shape {shape.dims} is too large to be computed")


def _baseline(
    backend: Backend, candidates: Iterator[Plan], structure: Structure, specs: Sequence[InputSpec], request: Request
) -> Baseline:
    plan, first = _first_accepted(backend, candidates, specs, request)
    if not specs:
        return Baseline((first,), False)
    pair = Baseline((first, _second(backend, plan, first, specs, request)), False)
    pair = _livelier(backend, plan, pair, structure, specs, request)
    larger = enlarged(plan, specs)
    if larger is None:
        return pair
    try:
        feeds = generate(specs, larger, request.seed, request.user_inputs)
        extra = Run(feeds, backend.run(feeds), f"with {_sizes_text(larger)}")
    except RunError:  # the model has its reasons to want other sizes: two runs remain
        return pair
    return replace(pair, runs=(*pair.runs, extra))


def _sizes_text(plan: Plan) -> str:
    named = [f"{symbol}={size}" for symbol, size in plan.sizes.items() if not symbol.startswith("?")]
    return ", ".join(named) or "other sizes of the unnamed dimensions"


def _first_accepted(
    backend: Backend, candidates: Iterator[Plan], specs: Sequence[InputSpec], request: Request
) -> tuple[Plan, Run]:
    """The first plan that gives at least one output with elements, else the first that runs at all."""
    empty: tuple[Plan, Run] | None = None
    refusal = "no inputs to try"
    for plan in candidates:
        feeds = generate(specs, plan, request.seed, request.user_inputs)
        try:
            outputs = backend.run(feeds)
        except RunError as error:
            refusal = str(error)
            continue
        if any(leaf.size for value in outputs.values() for leaf in leaves(value)):
            return plan, Run(feeds, outputs)
        empty = empty or (plan, Run(feeds, outputs))
    if empty is None:
        raise RunError(refusal)
    return empty


def _second(backend: Backend, plan: Plan, first: Run, specs: Sequence[InputSpec], request: Request) -> Run:
    """Other values for every input, as far as the model accepts them."""
    seed = request.seed + 1
    for order in (True, False):
        known = vary(request.user_inputs, specs, seed, order)
        feeds = generate(specs, plan, seed, known)
        try:
            return Run(feeds, backend.run(feeds))
        except RunError:  # other indices may be out of range: try with less change
            continue
    return first


def _livelier(
    backend: Backend, plan: Plan, pair: Baseline, structure: Structure, specs: Sequence[InputSpec], request: Request
) -> Baseline:
    """The pair, or one with inputs of another scale when only that makes some output react."""
    names = [value.name for value in structure.graph.output if value.name in structure.input_dependent]
    if not names or any(informative(pair, structure, name, request.tolerance) for name in names):
        return pair
    for scale in _RETRY_SCALES:
        scaled = replace(plan, scale=scale)
        feeds = generate(specs, scaled, request.seed, request.user_inputs)
        try:
            first = Run(feeds, backend.run(feeds))
        except RunError:
            continue
        other = Baseline((first, _second(backend, scaled, first, specs, request)), False)
        if any(informative(other, structure, name, request.tolerance) for name in names):
            return other
    return pair


def informative(baseline: Baseline, structure: Structure, name: str, tolerance: Tolerance) -> bool:
    """Whether equality of this output says something: it reacts to the inputs and is not saturated."""
    return baseline.reacts(name, tolerance) and not saturated(baseline, structure, name)


def saturated(baseline: Baseline, structure: Structure, name: str) -> bool:
    """Whether a squashing function (softmax, sigmoid, tanh) gave nothing but its extreme values in every run."""
    node = structure.origin(name)
    operator = node.op_type if node is not None else ""
    if operator not in _UNIT_RANGE | _SIGNED_RANGE:
        return False
    arrays = [widened(leaf) for run in baseline.runs for leaf in leaves(run.outputs[name])]
    low = _SATURATED if operator in _UNIT_RANGE else _SATURATED - 1
    return not any(np.any((array > low) & (array < 1 - _SATURATED)) for array in arrays)
