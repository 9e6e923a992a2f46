"""Running the original: on inputs that it accepts under two seeds, with other symbolic sizes, and on bolder values.

Ordinary inputs suit the operators that read them; a result that is wrong only beside these (below zero under Sqrt, at
zero, where a Clip clips) takes the bold ones. Where some operator has still seen one of its sides only, more are tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .compare import Tolerance, differs, spread_of, to_double
from .guards import ProbedRuntime
from .inputs import InputSpec, Plan, Sample, Temper, enlarge, generate, plans, vary
from .run import Backend, Reference
from .source import Source
from .structure import Structure
from .values import Feeds, RunError, Value, leaves

_RETRY_SCALES = (0.1, 0.01, 10.0)
"""Input scales tried when no output reacts to its inputs: a saturated softmax often wakes up at another scale."""

_REFERENCE_PLANS = 4
"""The reference evaluator is slow: it is not asked about every plan."""

_UNVERIFIED = "nothing was verified, the original"
_ELEMENT_BYTES = 4
_LARGEST_BYTES = 2 << 30
"""What any one value may take, near enough: tensors of real models are smaller, those of damaged ones often not."""

_ENOUGH_ELEMENTS = 256
_MOST_DRAWS = 16
"""Small inputs do not hold all of the values that matter: they are drawn again until there are enough elements."""
_FEW_WEIGHTS = 1_000_000
"""The weights up to which a model runs in so little time that it may run that often."""

_UNIT_RANGE = frozenset({"Softmax", "Sigmoid", "HardSigmoid"})
_SIGNED_RANGE = frozenset({"Tanh", "Softsign"})
_SATURATED = 1e-3


BOLD = (Temper.EDGES, Temper.LARGE)
_ON_DEMAND = (Temper.NEGATIVE, Temper.POSITIVE)
"""What is drawn besides, and what where an operator has seen one of its sides only."""
_TITLES = {
    Temper.EDGES: "on zeros, whole and equal numbers",
    Temper.LARGE: "on large numbers",
    Temper.SPECIAL: "on NaN, infinities and extremes",
    Temper.NEGATIVE: "on negative numbers",
    Temper.POSITIVE: "on positive numbers",
}


@dataclass(frozen=True)
class Request:
    """What the caller fixed. With ``samples`` the model runs on these, else on inputs that are drawn.

    ``tempers`` are the bold inputs to draw besides the ordinary ones.
    """

    seed: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    samples: Sequence[Sample] = ()
    tolerance: Tolerance = field(default_factory=Tolerance)
    tempers: tuple[Temper, ...] = BOLD


@dataclass(frozen=True)
class Run:
    """One run of the original. ``title`` is empty for the ordinary runs and says what is special about others.

    ``is_bold``: on inputs for which the operators behind them may not be meant.
    """

    feeds: Feeds
    outputs: Mapping[str, Value]
    title: str = ""
    is_bold: bool = False


@dataclass(frozen=True)
class Baseline:
    """Runs of the original; where its inputs are drawn, the first two differ in every value but in no shape.

    ``one_sided`` has a line for each operator that chooses and of which no run reached every side.
    """

    runs: tuple[Run, ...]
    on_reference: bool
    one_sided: tuple[str, ...] = ()

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


def run_original(source: Source, structure: Structure, specs: Sequence[InputSpec], request: Request) -> Baseline:
    """Run the original in ONNX Runtime or else in the reference evaluator.

    Raises RunError, whose message says what to do, when neither runs it on any inputs that were tried.
    """
    _check_sizes(structure)
    runtime = None
    try:
        runtime = ProbedRuntime(source, structure)
        baseline = _baseline(runtime, plans(specs, request.shapes), structure, specs, request)
        bold = _bold_runs(runtime, baseline, structure, specs, request)
        return replace(baseline, runs=(*baseline.runs, *bold), one_sided=runtime.one_sided())
    except RunError as error:
        refusal = str(error)
    few = itertools.islice(plans(specs, request.shapes), _REFERENCE_PLANS)
    try:
        return replace(_baseline(Reference(source), few, structure, specs, request), on_reference=True)
    except RunError as error:
        if runtime is None:
            raise RunError(f"{_UNVERIFIED} cannot be loaded: {refusal}") from error
        if request.samples or not specs:
            where = " on the given inputs" if request.samples else ""
            raise RunError(f"{_UNVERIFIED} does not run{where}: {refusal}") from error
        hint = "give real ones: --inputs FILE.npz"
        raise RunError(f"{_UNVERIFIED} does not run on drawn inputs: {refusal}; {hint}") from error


def _check_sizes(structure: Structure) -> None:
    """Raise RunError for a value that would take more memory than a comparison is worth."""
    for name, shape in structure.shapes.items():
        sizes = [dim for dim in shape.dims or () if dim is not None]
        is_known = shape.dims is not None and len(sizes) == len(shape.dims) and name not in structure.initializers
        if is_known and math.prod(sizes) * _ELEMENT_BYTES > _LARGEST_BYTES:
            raise RunError(f"nothing was verified, value {name!r} of shape {shape.dims} is too large to be computed")


def _baseline(
    backend: Backend, candidates: Iterator[Plan], structure: Structure, specs: Sequence[InputSpec], request: Request
) -> Baseline:
    """The ordinary runs."""
    if request.samples:
        return Baseline(tuple(_given_runs(backend, specs, request)), False)
    plan, first = _run_first_accepted(backend, candidates, specs, request)
    if not specs:
        return Baseline((first,), False)
    pair = Baseline((first, _run_again(backend, plan, first, specs, request)), False)
    pair = _rescale(backend, plan, pair, structure, specs, request)
    larger = enlarge(plan, specs)
    if larger is None:
        return pair
    try:
        feeds = generate(specs, larger, request.seed)
        extra = Run(feeds, backend.run(feeds), f"with {_sizes_text(larger)}")
    except RunError:  # the model has its reasons to want other sizes: two runs remain
        return pair
    return replace(pair, runs=(*pair.runs, extra))


def _given_runs(backend: Backend, specs: Sequence[InputSpec], request: Request) -> Iterator[Run]:
    """The samples; beside a single one others like it, as far as the model accepts them."""
    for sample in request.samples:
        title = f"on {sample.origin}" if len(request.samples) > 1 else ""
        try:
            yield Run(dict(sample.values), backend.run(dict(sample.values)), title)
        except RunError as error:
            raise RunError(f"{sample.origin}: {error}") from error
    if len(request.samples) == 1:
        for order in (True, False):
            feeds = vary(request.samples[0].values, specs, request.seed + 1, order)
            try:
                yield Run(feeds, backend.run(feeds))
                return
            except RunError:  # other indices may be out of range: try with less change
                continue


def _bold_runs(
    backend: ProbedRuntime, ordinary: Baseline, structure: Structure, specs: Sequence[InputSpec], request: Request
) -> list[Run]:
    """Runs on bold inputs in the shapes of the ordinary ones, as far as the model accepts them."""
    if request.samples or not request.tempers or all(spec.steers for spec in specs):
        return []
    feeds = ordinary.runs[0].feeds
    if not all(isinstance(value, np.ndarray) for value in feeds.values()):
        return []
    plan = Plan(shapes={name: value.shape for name, value in feeds.items()})
    found = []
    integers = [spec.name for spec in specs if spec.is_integer]
    elements = sum(value.size for value in feeds.values())
    weights = sum(math.prod(tensor.dims) for tensor in structure.graph.initializer)
    most = _MOST_DRAWS if weights <= _FEW_WEIGHTS else 1
    draws = range(max(1, min(most, _ENOUGH_ELEMENTS // max(1, elements))))
    for temper, draw in itertools.product((*request.tempers, *_ON_DEMAND), draws):
        before = backend.missing
        if temper not in _ON_DEMAND or before:
            drawn = generate(specs, replace(plan, temper=temper), request.seed + draw)
            run = _bold_run(backend, drawn, {name: feeds[name] for name in integers}, _TITLES[temper])
            if run is not None and (temper not in _ON_DEMAND or backend.missing < before):
                found.append(run)
    return found


def _bold_run(backend: Backend, drawn: Feeds, integers: Feeds, title: str) -> Run | None:
    """A run that the model accepts: with the ordinary `integers`, where it takes no others."""
    for feeds in (drawn, {**drawn, **integers}):
        try:
            return Run(feeds, backend.run(feeds), title, is_bold=True)
        except RunError:
            continue
    return None


def _sizes_text(plan: Plan) -> str:
    named = [f"{symbol}={size}" for symbol, size in plan.sizes.items() if not symbol.startswith("?")]
    return ", ".join(named) or "other sizes of the unnamed dimensions"


def _run_first_accepted(
    backend: Backend, candidates: Iterator[Plan], specs: Sequence[InputSpec], request: Request
) -> tuple[Plan, Run]:
    """The first plan that gives at least one output with elements, else the first that runs at all."""
    empty: tuple[Plan, Run] | None = None
    refusal = "no inputs to try"
    for plan in candidates:
        feeds = generate(specs, plan, request.seed)
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


def _run_again(backend: Backend, plan: Plan, first: Run, specs: Sequence[InputSpec], request: Request) -> Run:
    """Other values for every input, if the model accepts them."""
    feeds = generate(specs, plan, request.seed + 1)
    try:
        return Run(feeds, backend.run(feeds))
    except RunError:
        return first


def _rescale(
    backend: Backend, plan: Plan, pair: Baseline, structure: Structure, specs: Sequence[InputSpec], request: Request
) -> Baseline:
    """The pair, or one with inputs of another scale when only that makes some output react."""
    names = [value.name for value in structure.graph.output if value.name in structure.input_dependent]
    if not names or any(is_informative(pair, structure, name, request.tolerance) for name in names):
        return pair
    for scale in _RETRY_SCALES:
        scaled = replace(plan, scale=scale)
        feeds = generate(specs, scaled, request.seed)
        try:
            first = Run(feeds, backend.run(feeds))
        except RunError:
            continue
        other = Baseline((first, _run_again(backend, scaled, first, specs, request)), False)
        if any(is_informative(other, structure, name, request.tolerance) for name in names):
            return other
    return pair


def is_informative(baseline: Baseline, structure: Structure, name: str, tolerance: Tolerance) -> bool:
    """Whether equality of this output says something: it reacts to the inputs and is not saturated."""
    return baseline.reacts(name, tolerance) and not is_saturated(baseline, structure, name)


def is_saturated(baseline: Baseline, structure: Structure, name: str) -> bool:
    """Whether a squashing function (softmax, sigmoid, tanh) gave only its extreme values in every ordinary run."""
    node = structure.origin(name)
    operator = node.op_type if node is not None else ""
    if operator not in _UNIT_RANGE | _SIGNED_RANGE:
        return False
    runs = [run for run in baseline.runs if not run.is_bold]
    arrays = [to_double(leaf) for run in runs for leaf in leaves(run.outputs[name])]
    low = _SATURATED if operator in _UNIT_RANGE else _SATURATED - 1
    return not any(np.any((array > low) & (array < 1 - _SATURATED)) for array in arrays)
