"""Runs of the original: on inputs that it accepts under two seeds, with other symbolic sizes, and on stress inputs.

Ordinary inputs suit the operators that read them. Stress inputs reveal results that are wrong elsewhere: below zero
under Sqrt, at zero, beyond the limits of a Clip. More are drawn while a branch of some operator is not covered.

Probes, which are additional outputs, give the least and the largest of the numbers by which each operator that chooses
between values (Where, Clip, ...) decides. A side that no run reaches was not compared: a Where whose condition always
holds, or a Clip that never clips.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from .inputs.draws import generate, vary
from .inputs.given import Sample
from .inputs.plans import InputSpec, Plan, Temper, enlarge, input_specs, plans
from .runs.compare import Tolerance, differs, size_of, spread_of, to_double
from .runs.run import Backend, OnnxRuntime, Reference
from .runs.source import Source, read_source
from .runs.structure import Structure
from .runs.values import EndlessRunError, Feeds, RunError, Value, layout, leaves

_PREFIX = "eqfuse.probe."
_MOST_GUARDS = 256
"""The most operators that are probed in a model."""
_LARGEST_FILE = 512 << 20
"""Larger models, in bytes, get no probes, since adding them reads the whole model into memory."""
_BY_SIGN = frozenset({"Relu", "LeakyRelu", "PRelu"})


@dataclass(frozen=True)
class Side:
    """A choice of an operator. It is reached if a probed number is below (or above) the `limit`.

    `unseen` is the message for a side that was never reached.
    """

    unseen: str
    is_below: bool
    limit: float


@dataclass(frozen=True)
class Guard:
    """An operator that chooses by the value `probed`, or by the difference of two values."""

    label: str
    probed: tuple[str, ...]
    sides: tuple[Side, ...]


def guards_of(source: Source, structure: Structure) -> list[Guard]:
    """The operators of the main graph that choose by values which depend on the inputs."""
    guards = []
    for node in source.graph.node:
        guard = _guard(node, structure) if node.domain in ("", "ai.onnx") else None
        if guard is not None and not structure.input_dependent.isdisjoint(guard.probed):
            guards.append(guard)
    return guards[:_MOST_GUARDS]


def _guard(node: onnx.NodeProto, structure: Structure) -> Guard | None:
    label = f"{node.op_type} {next((name for name in node.output if name), node.name)!r}"
    if node.op_type in ("Where", "If"):
        sides = Side("its condition never held", False, 0.5), Side("its condition always held", True, 0.5)
        return Guard(label, (node.input[0],), sides)
    if node.op_type in _BY_SIGN:
        sides = Side("nothing below zero", True, 0.0), Side("nothing above zero", False, 0.0)
        return Guard(label, (node.input[0],), sides)
    if node.op_type in ("Max", "Min") and len(set(node.input)) == len(node.input) == 2:
        sides = Side("its first operand was never the smaller", True, 0.0), Side("never the larger", False, 0.0)
        return Guard(label, tuple(node.input), sides)
    if node.op_type == "Clip":
        limits = tuple(_clip_sides(node, structure))
        return Guard(label, (node.input[0],), limits) if limits else None
    return None


def _clip_sides(node: onnx.NodeProto, structure: Structure) -> Iterator[Side]:
    """The known bounds: attributes before opset 11, operands since then."""
    attributes = {item.name: item.f for item in node.attribute}
    for index, name, words in ((1, "min", "nothing below its minimum"), (2, "max", "nothing above its maximum")):
        operand = node.input[index] if len(node.input) > index else ""
        constant = structure.constant(operand) if operand else None
        limit = attributes.get(name) if constant is None else float(constant.reshape(-1)[0])
        if limit is not None:
            yield Side(words, name == "min", limit)


def _probes(index: int, guard: Guard) -> tuple[list[onnx.NodeProto], tuple[str, str]]:
    """Nodes that compute the least and the largest probed value of any type, and the names of both."""
    names = [f"{_PREFIX}{index}.{number}" for number in range(len(guard.probed))]
    nodes = [
        helper.make_node("Cast", [probed], [name], to=TensorProto.FLOAT)
        for probed, name in zip(guard.probed, names, strict=True)
    ]
    value = names[0]
    if len(names) == 2:
        value = f"{_PREFIX}{index}.difference"
        nodes.append(helper.make_node("Sub", names, [value]))
    ends = f"{_PREFIX}{index}.least", f"{_PREFIX}{index}.largest"
    for operator, end in zip(("ReduceMin", "ReduceMax"), ends, strict=True):
        nodes.append(helper.make_node(operator, [value], [end], keepdims=0))
    return nodes, ends


class ProbedRuntime:
    """The original in ONNX Runtime, with a record of the sides that its guards have not reached."""

    def __init__(self, source: Source, structure: Structure) -> None:
        """Load the model, with probes if it accepts them. Raises RunError."""
        self._source = source
        self._seconds = _LONGEST_RUN if structure.has_loop else None
        self._plain: OnnxRuntime | None = None
        guards = guards_of(source, structure) if source.path.stat().st_size <= _LARGEST_FILE else []
        probes = [_probes(index, guard) for index, guard in enumerate(guards)]
        self._guards = dict(zip((ends for _, ends in probes), guards, strict=True))
        self._unseen = {guard.label: guard.sides for guard in guards}
        outputs = [end for ends in self._guards for end in ends]
        try:
            more = [node for nodes, _ in probes for node in nodes]
            self._runtime = OnnxRuntime(source, outputs, more, self._seconds)
        except RunError:
            if not probes:
                raise
            self._drop_probes()

    def run(self, feeds: Feeds) -> dict[str, Value]:
        """The model's own outputs. Raises RunError."""
        try:
            outputs = self._runtime.run(feeds)
        except EndlessRunError:
            raise
        except RunError:
            if not self._guards:
                raise
            self._plain = self._plain or OnnxRuntime(self._source, seconds=self._seconds)
            outputs = self._plain.run(feeds)  # raises unless the error is due to a probe, such as one of no elements
            self._drop_probes()
            return outputs
        for (least, largest), guard in self._guards.items():
            low, high = float(np.asarray(outputs.pop(least))), float(np.asarray(outputs.pop(largest)))
            self._unseen[guard.label] = tuple(
                side
                for side in self._unseen[guard.label]
                if not (low < side.limit if side.is_below else high > side.limit)
            )
        return outputs

    def _drop_probes(self) -> None:
        self._runtime = self._plain = self._plain or OnnxRuntime(self._source, seconds=self._seconds)
        self._guards, self._unseen = {}, {}

    @property
    def missing(self) -> int:
        """The number of sides that no run has reached yet."""
        return sum(map(len, self._unseen.values()))

    def describe_unreached(self) -> tuple[str, ...]:
        """A line for each operator with sides that no run reached."""
        return tuple(f"{label}: {', '.join(s.unseen for s in sides)}" for label, sides in self._unseen.items() if sides)


_LONGEST_RUN = 20.0
"""Seconds after which a run of a model with a Loop counts as one that does not end; other inputs are tried then."""

_ENDING_DRAWS = 8
"""The most draws of inputs until a run ends: a loop that only one sign ends fails on all of them once in 256 times."""

_RETRY_SCALES = (0.1, 0.01, 10.0)
"""Input scales to try if no output reacts to its inputs: a saturated softmax often reacts at another scale."""

_MORE_DRAWS = (2, 3)
"""Seeds of more ordinary inputs for models that choose by values: with nearly equal ones some inputs do not judge."""

_REFERENCE_PLANS = 4
"""Plans that the slow reference evaluator tries."""

_UNVERIFIED = "nothing was verified, the original"
_ELEMENT_BYTES = 4
_LARGEST_BYTES = 2 << 30
"""The most bytes of one value: tensors of real models are smaller, those of damaged models often not."""

_ENOUGH_ELEMENTS = 256
"""With fewer elements in all inputs together some values that matter are missing, so inputs are drawn more often."""
_MOST_DRAWS = 16
"""The most draws for small inputs."""
_WRAPPING_DRAWS = 64
"""The same where an input may wrap around: a comparison behind x + 1 changes at a single number."""
_FEW_WEIGHTS = 1_000_000
"""Models with at most this many weights run fast enough for repeated draws."""

_UNIT_RANGE = frozenset({"Softmax", "Sigmoid", "HardSigmoid"})
_SIGNED_RANGE = frozenset({"Tanh", "Softsign"})
_SATURATED = 1e-3
"""An output this close to either end of its range counts as saturated."""


STRESS = (Temper.EDGES, Temper.LARGE)
_ON_DEMAND = (Temper.NEGATIVE, Temper.POSITIVE)
"""Stress inputs that are always drawn, and those that are drawn only while operators have unreached sides."""
_TITLES = {
    Temper.EDGES: "on zeros, whole and equal numbers",
    Temper.LARGE: "on large numbers",
    Temper.SPECIAL: "on NaN, infinities and extremes",
    Temper.NEGATIVE: "on negative numbers",
    Temper.POSITIVE: "on positive numbers",
}


@dataclass(frozen=True)
class Request:
    """Choices of the caller. The model runs on ``samples`` if there are any, else on drawn inputs.

    ``tempers`` are the kinds of stress inputs to draw besides the ordinary ones.
    """

    seed: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    samples: Sequence[Sample] = ()
    tolerance: Tolerance = field(default_factory=Tolerance)
    tempers: tuple[Temper, ...] = STRESS


@dataclass(frozen=True)
class Run:
    """One run of the original. ``title`` describes the inputs and is empty for the first ordinary runs.

    ``is_stress``: the inputs may lie outside the domain of the operators that read them.
    """

    feeds: Feeds
    outputs: Mapping[str, Value]
    title: str = ""
    is_stress: bool = False


@dataclass(frozen=True)
class Baseline:
    """Runs of the original. Of drawn inputs, the first two differ in every value but in no shape.

    ``one_sided`` has a line for each operator with sides that no run reached. ``refusal`` says why ONNX Runtime does
    not run the original, and the runs are those of onnx's reference evaluator; "" if it does.
    """

    runs: tuple[Run, ...]
    refusal: str = ""
    one_sided: tuple[str, ...] = ()

    @property
    def on_reference(self) -> bool:
        """Whether the runs are those of onnx's reference evaluator."""
        return bool(self.refusal)

    def spread(self, name: str, index: int) -> float | None:
        """Root mean square move of a float output between the first two runs; None if that has no meaning.

        Where the output of a run is larger, as at other sizes, it counts as moving more in proportion.
        """
        first, second = self._pair(name)
        spread = spread_of(first, second)
        if spread is None or not (size := max(size_of(first), size_of(second))):
            return spread
        return spread * max(1.0, size_of(self.runs[index].outputs[name]) / size)

    def reacts(self, name: str, tolerance: Tolerance) -> bool:
        """Whether an output changed by more than rounding when every input changed.

        What a comparison of integers decides may change only where these wrap around: stress inputs count, too, for
        outputs that have to be equal, and if all inputs are integers.
        """
        first, second = self._pair(name)
        counted = (run for run in self.runs if run.is_stress and (_is_exact(first) or _is_exact([*run.feeds.values()])))
        others = (run.outputs[name] for run in counted)
        alike = (other for other in others if layout(other) == layout(first))
        return any(differs(first, other, tolerance) for other in (second, *alike))

    def _pair(self, name: str) -> tuple[Value, Value]:
        return self.runs[0].outputs[name], self.runs[min(1, len(self.runs) - 1)].outputs[name]


def _is_exact(value: Value) -> bool:
    """Whether a value holds nothing but integers and truth values."""
    return all(leaf.dtype.kind in "iub" for leaf in leaves(value))


def run_original(source: Source, structure: Structure, specs: Sequence[InputSpec], request: Request) -> Baseline:
    """Run the original in ONNX Runtime or else in the reference evaluator.

    Raises RunError, whose message says what to do, if neither runs it on any of the tried inputs.
    """
    _check_sizes(structure)
    runtime = None
    try:
        runtime = ProbedRuntime(source, structure)
        baseline = _OrdinaryRuns(runtime, structure, specs, request).run(plans(specs, request.shapes))
        stress = _stress_runs(runtime, baseline, structure, specs, request)
        return replace(baseline, runs=(*baseline.runs, *stress), one_sided=runtime.describe_unreached())
    except RunError as error:
        refusal = str(error)
    few = itertools.islice(plans(specs, request.shapes), _REFERENCE_PLANS)
    try:
        reference = _OrdinaryRuns(Reference(source), structure, specs, request)
        return replace(reference.run(few), refusal=refusal)
    except RunError as error:
        if runtime is None:
            raise RunError(f"{_UNVERIFIED} cannot be loaded: {refusal}") from error
        if request.samples or not specs:
            where = " on the given inputs" if request.samples else ""
            raise RunError(f"{_UNVERIFIED} does not run{where}: {refusal}") from error
        hint = "give real ones: --inputs FILE.npz"
        raise RunError(f"{_UNVERIFIED} does not run on drawn inputs: {refusal}; {hint}") from error


def run_ordinary(backend: Backend, structure: Structure, specs: Sequence[InputSpec], request: Request) -> Baseline:
    """The ordinary runs alone, by one backend. Raises RunError if it runs the model on none of the inputs tried."""
    return _OrdinaryRuns(backend, structure, specs, request).run(plans(specs, request.shapes))


def draw_typical(path: Path, samples: Sequence[Sample], seed: int) -> Feeds:
    """Inputs on which a model is timed: the first sample if there are any, else drawn ones that the model accepts, with
    the usual size of symbolic dimensions (128, a leading one 1) if it accepts that.

    Raises RunError if ONNX Runtime does not run the model on any of the tried inputs.
    """
    source = read_source(path, "original")
    structure = Structure(source.structure)
    _check_sizes(structure)
    if samples:
        return dict(samples[0].values)
    return draw_accepted(source, structure, seed, {})


def draw_accepted(source: Source, structure: Structure, seed: int, shapes: Mapping[str, tuple[int, ...]]) -> Feeds:
    """Inputs of these shapes, with the usual size of symbolic dimensions that they leave open if the model accepts
    that.

    Raises RunError if ONNX Runtime runs the model on none of the inputs tried.
    """
    specs = input_specs(structure)
    runtime = OnnxRuntime(source, seconds=_LONGEST_RUN if structure.has_loop else None)
    runs = _OrdinaryRuns(runtime, structure, specs, Request(seed))
    return runs.run_first_accepted(plans(specs, shapes, typical=True))[1].feeds


def _check_sizes(structure: Structure) -> None:
    """Raise RunError for a value that would take too much memory."""
    for name, shape in structure.shapes.items():
        sizes = [dim for dim in shape.dims or () if dim is not None]
        is_known = shape.dims is not None and len(sizes) == len(shape.dims) and name not in structure.initializers
        if is_known and math.prod(sizes) * _ELEMENT_BYTES > _LARGEST_BYTES:
            raise RunError(f"nothing was verified, value {name!r} of shape {shape.dims} is too large to be computed")


@dataclass(frozen=True)
class _OrdinaryRuns:
    """Runs of the original in a backend on inputs that suit its operators."""

    backend: Backend
    structure: Structure
    specs: Sequence[InputSpec]
    request: Request

    def run(self, candidates: Iterator[Plan]) -> Baseline:
        """The ordinary runs, by the first plan that the model accepts. Raises RunError if it accepts none."""
        if self.request.samples:
            return Baseline(tuple(self._run_samples()))
        plan, first = self.run_first_accepted(candidates)
        if not self.specs:
            return Baseline((first,))
        plan, pair = self._rescale(plan, Baseline((first, self._run_again(plan, first))))
        return replace(pair, runs=(*pair.runs, *self._run_more(plan)))

    def _run_more(self, plan: Plan) -> Iterator[Run]:
        """Runs that the model accepts with more values, if it chooses by values, and with other sizes."""
        if self.structure.chooses:
            for draw in _MORE_DRAWS:
                with suppress(RunError):
                    yield self._run(plan, "on other values", draw)
        for larger in enlarge(plan, self.specs, self.structure.has_windows):
            named = [f"{symbol}={size}" for symbol, size in larger.sizes.items() if not symbol.startswith("?")]
            with suppress(RunError):
                yield self._run(larger, f"with {', '.join(named) or 'other sizes of the unnamed dimensions'}")
                return

    def _run(self, plan: Plan, title: str = "", draw: int = 0) -> Run:
        feeds = generate(self.specs, plan, self.request.seed + draw)
        return Run(feeds, self.backend.run(feeds), title)

    def _run_samples(self) -> Iterator[Run]:
        """Runs on the samples; a single sample is followed by a similar one that the model accepts."""
        samples = self.request.samples
        for sample in samples:
            title = f"on {sample.origin}" if len(samples) > 1 else ""
            try:
                yield Run(dict(sample.values), self.backend.run(dict(sample.values)), title)
            except RunError as error:
                raise RunError(f"{sample.origin}: {error}") from error
        if len(samples) == 1:
            for order in (True, False):
                feeds = vary(samples[0].values, self.specs, self.request.seed + 1, order)
                try:
                    yield Run(feeds, self.backend.run(feeds))
                    return
                except RunError:  # other indices may be out of range: try with less change
                    continue

    def run_first_accepted(self, candidates: Iterator[Plan]) -> tuple[Plan, Run]:
        """The first plan that gives at least one output with elements, else the first that runs at all."""
        empty: tuple[Plan, Run] | None = None
        refusal = "no inputs to try"
        for plan in candidates:
            for draw in range(_ENDING_DRAWS):
                try:
                    run = self._run(plan, draw=draw)
                except EndlessRunError as error:  # other values may end it
                    refusal = str(error)
                    continue
                except RunError as error:
                    refusal = str(error)
                    break
                if any(leaf.size for value in run.outputs.values() for leaf in leaves(value)):
                    return plan, run
                empty = empty or (plan, run)
                break
        if empty is None:
            raise RunError(refusal)
        return empty

    def _run_again(self, plan: Plan, first: Run) -> Run:
        """A run on other values for every input if the model accepts them, else the first run."""
        for draw in range(1, 1 + _ENDING_DRAWS):
            feeds = generate(self.specs, plan, self.request.seed + draw)
            if not any(differs(first.feeds[name], value, self.request.tolerance) for name, value in feeds.items()):
                continue  # the first run was not that of the first draw
            try:
                return Run(feeds, self.backend.run(feeds))
            except EndlessRunError:
                continue
            except RunError:
                break
        return first

    def _rescale(self, plan: Plan, pair: Baseline) -> tuple[Plan, Baseline]:
        """The plan and its pair, or those of another scale of inputs if only that makes some output react."""
        names = [value.name for value in self.structure.graph.output if value.name in self.structure.input_dependent]

        def reacts(runs: Baseline) -> bool:
            return any(is_informative(runs, self.structure, name, self.request.tolerance) for name in names)

        if not names or reacts(pair):
            return plan, pair
        for scale in _RETRY_SCALES:
            scaled = replace(plan, scale=scale)
            try:
                first = self._run(scaled)
            except RunError:
                continue
            other = Baseline((first, self._run_again(scaled, first)))
            if reacts(other):
                return scaled, other
        return plan, pair


def _stress_runs(
    backend: ProbedRuntime, ordinary: Baseline, structure: Structure, specs: Sequence[InputSpec], request: Request
) -> list[Run]:
    """Runs on those stress inputs, in the shapes of the ordinary ones, that the model accepts."""
    if request.samples or not request.tempers or all(spec.steers for spec in specs):
        return []
    feeds = ordinary.runs[0].feeds
    if not all(isinstance(value, np.ndarray) for value in feeds.values()):
        return []
    plan = Plan(shapes={name: value.shape for name, value in feeds.items()})
    runs = []
    integers = [spec.name for spec in specs if spec.is_integer]
    elements = sum(value.size for value in feeds.values())
    weights = sum(math.prod(tensor.dims) for tensor in structure.graph.initializer)
    most = _WRAPPING_DRAWS if any(spec.purpose.wraps for spec in specs) else _MOST_DRAWS
    most = most if weights <= _FEW_WEIGHTS else 1
    draws = range(max(1, min(most, _ENOUGH_ELEMENTS // max(1, elements))))
    for temper, draw in itertools.product((*request.tempers, *_ON_DEMAND), draws):
        before = backend.missing
        if temper not in _ON_DEMAND or before:
            drawn = generate(specs, replace(plan, temper=temper), request.seed + draw)
            run = _stress_run(backend, drawn, {name: feeds[name] for name in integers}, _TITLES[temper])
            if run is not None and (temper not in _ON_DEMAND or backend.missing < before):
                runs.append(run)
    return runs


def _stress_run(backend: Backend, drawn: Feeds, integers: Feeds, title: str) -> Run | None:
    """A run that the model accepts, with the ordinary `integers` if it accepts no others; None if there is none."""
    for feeds in (drawn, {**drawn, **integers}):
        try:
            return Run(feeds, backend.run(feeds), title, is_stress=True)
        except RunError:
            continue
    return None


def is_informative(baseline: Baseline, structure: Structure, name: str, tolerance: Tolerance) -> bool:
    """Whether an output reacts to the inputs and is not saturated, so that its equality is evidence."""
    return baseline.reacts(name, tolerance) and not is_saturated(baseline, structure, name)


def is_saturated(baseline: Baseline, structure: Structure, name: str) -> bool:
    """Whether a squashing function (softmax, sigmoid, tanh) gave only its extreme values in every ordinary run."""
    node = structure.origin(name)
    operator = node.op_type if node is not None else ""
    if operator not in _UNIT_RANGE | _SIGNED_RANGE:
        return False
    runs = [run for run in baseline.runs if not run.is_stress]
    arrays = [to_double(leaf) for run in runs for leaf in leaves(run.outputs[name])]
    low = _SATURATED if operator in _UNIT_RANGE else _SATURATED - 1
    return not any(np.any((array > low) & (array < 1 - _SATURATED)) for array in arrays)
