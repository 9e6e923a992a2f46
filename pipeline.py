"""The steps from a model to what was chosen for it: ``Model -> EGraph -> Selection -> Model``, each timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
from onnx import defs

from .costmodels.device import Device, default_device, load_device
from .costmodels.model import CostModel, cost_model
from .costmodels.profile import ProfileDatabase
from .engine.canary import check_constants, culprits_named
from .engine.choices import CostName, Extraction, PartitionMethod
from .engine.custom import named_operators
from .engine.decode import decode
from .engine.egraph import EGraph, Selection
from .engine.encode import Encoding, encode
from .engine.inference import Knowledge, infer, refused_type
from .engine.messages import RuleSelection
from .engine.model import Model, check_destination, external_name, read, reads
from .engine.opset import raise_opset
from .engine.plan import Origins, origins
from .engine.saturate import Budget, UnsoundRuleError, saturate
from .engine.shapes import override_shapes
from .engine.worker import Worker
from .errors import ModelError, UsageError
from .extract.partition.of_model import operator_graph
from .extract.partition.profile_cost import ProfileCost
from .extract.select import Pricing, select
from .rules.loader import rule_paths
from .rules.vocabulary import Precision
from .support.deadlines import is_over, seconds_left
from .support.options import (
    NotNegative,
    NotNegativeInteger,
    OptionError,
    Positive,
    PositiveInteger,
    check_options,
)

if TYPE_CHECKING:
    from .engine.verification.inputs import Sample

GROWTH = 1.01
"""How much larger than the original a result may be; where it is, choosing pays more for every byte stored."""
_ATTEMPTS = 5
_SATURATION_SHARE = 0.6
_CHECK_SHARE = 0.1
_EXTRACTION_SHARE = 0.3
"""The parts of the time limit that saturation, the check of constants, and each extraction may take at most: what the
ones before have made is worth nothing without those after. Sub-graphs get what is left."""


def cost_model_of(name: CostName, device: Device) -> CostModel:
    """The cost model of that name; "profile" has the user's measurements, and the roofline where there are none."""
    if name == "profile":
        return ProfileCost(device, ProfileDatabase.open())
    return cost_model(name, device)


@dataclass(frozen=True)
class Options:
    """How to optimise. The command line's options are these fields. Raises OptionError for what cannot be used.

    Without a `device` prices are for a named class of processors, or of this machine where they were measured on it.
    """

    cost: CostName = "roofline"
    device: str = ""
    precision: Precision = "real"
    rules: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    trust_rules: bool = False
    time_limit: Positive = 30.0
    node_limit: PositiveInteger = 50_000
    iterations: PositiveInteger = 200
    extraction: Extraction = "exact"
    opset: PositiveInteger | None = None
    input_shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    verify: bool = True
    inputs: tuple[Path, ...] = ()
    atol: NotNegative | None = None
    rtol: NotNegative | None = None
    verify_limit: Positive = 300.0
    seed: NotNegativeInteger = 0
    partition: PartitionMethod = "none"
    as_functions: bool = False
    certify: bool = False
    certificate: Path | None = None
    intensive: bool = True

    def __post_init__(self) -> None:
        check_options(self)
        if not self.device:
            object.__setattr__(self, "device", default_device(self.cost))
        for name in ("as_functions", "certify", "certificate"):
            if self.partition == "none" and getattr(self, name):
                raise OptionError(name, "is about sub-graphs, and partition is none")
        if self.partition == "joint" and self.cost == "flops":
            raise OptionError("partition", "joint minimises time; it cannot be had with cost flops")
        if self.opset is not None and self.opset > (newest := defs.onnx_opset_version()):
            raise OptionError("opset", f"{self.opset} is not known here; the newest is {newest}")

    @property
    def selection(self) -> RuleSelection:
        """Which rules to use."""
        return RuleSelection(self.rules, self.precision, self.only, self.skip)

    @property
    def trusted(self) -> tuple[str, ...]:
        """The rule files that are used without a check, by name."""
        return tuple(path.name for path in rule_paths(self.rules)) if self.trust_rules else ()

    @property
    def cost_model(self) -> CostModel:
        """What extraction minimises."""
        return cost_model_of(self.cost, load_device(self.device))

    @property
    def budget(self) -> Budget:
        """How far to saturate."""
        return Budget(self.node_limit, _SATURATION_SHARE * self.time_limit, self.iterations)


Observer = Callable[[str, str], None]
"""Called with the phase and a line of detail."""


class Clock:
    """Wall-clock seconds of each phase, and whoever wants to hear of them."""

    def __init__(self, observer: Observer | None) -> None:
        self.phases: dict[str, float] = {}
        self.observer = observer
        self._inner = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside, without the phases inside of it; of a phase that comes again, in all."""
        self.tell(name, "")
        started, outer, self._inner = time.perf_counter(), self._inner, 0.0
        yield
        taken = time.perf_counter() - started
        self.phases[name] = self.phases.get(name, 0.0) + taken - self._inner
        self._inner = outer + taken

    def tell(self, phase: str, detail: str) -> None:
        """Say how a phase is going."""
        if self.observer:
            self.observer(phase, detail)


@dataclass(frozen=True)
class Saturated:
    """A model, what is known of it, and the e-graph of all that the rules prove equal to it.

    `deadline` (time.monotonic) is where the time limit ends; `checked`: whether all constants were looked at before.
    `samples` are the inputs that the user gives to verify on.
    """

    model: Model
    knowledge: Knowledge
    encoding: Encoding
    egraph: EGraph
    origin: Origins
    deadline: float
    checked: bool
    samples: tuple[Sample, ...] = ()

    def select(self, pricing: Pricing, options: Options) -> Selection:
        """The cheapest choice from the e-graph."""
        limit = min(_EXTRACTION_SHARE * options.time_limit, seconds_left(self.deadline))
        return select(
            self.egraph, self.encoding, self.origin, self.model.opset, pricing,
            time_limit=limit, method=options.extraction,
        )  # fmt: skip


def saturated(source: Any, output: Path | None, options: Options, worker: Worker, clock: Clock) -> Saturated:
    """Read a model and apply the rules until nothing changes, or a budget is hit.

    `output` is where the result will go: that it can go there is found out first. The time limit begins once the model
    is read and the rules are checked and loaded. Raises RuleError for rules beside the shipped ones that may not be
    used.
    """
    with clock.phase("read"):
        model = _read(source, output, options)
        samples = samples_of(model, options.inputs)
    with clock.phase("infer"):
        knowledge = infer(model)
    with clock.phase("encode"):
        encoding = encode(model, knowledge, named_operators(options.selection.paths))
    if options.rules and not options.trust_rules:
        with clock.phase("rules"):
            _check_rules(options, clock)
    blamed = culprits_named(encoding, options.selection, options.budget)
    with clock.phase("saturate"), _sense_required(model, options), blamed:
        egraph = saturate(
            encoding,
            worker,
            options.budget,
            progress=lambda p: clock.tell("saturate", f"iteration {p.iterations}: {p.growth[-1]} e-nodes"),
        )
    deadline = time.monotonic() + options.time_limit - egraph.saturation.seconds
    with clock.phase("check"), _sense_required(model, options):
        limit = min(deadline, time.monotonic() + _CHECK_SHARE * options.time_limit)
        checked = check_constants(model, knowledge, encoding, egraph, options.selection, options.budget, limit)
    origin = origins(model.graph, encoding, egraph)
    return Saturated(model, knowledge, encoding, egraph, origin, deadline, checked, samples)


def _check_rules(options: Options, clock: Clock) -> None:
    from .extract.worth import remark  # the checker takes imports of its own
    from .rules.checking.acceptance import Chosen, require_accepted

    chosen = Chosen(options.rules, options.precision, options.only, options.skip)
    require_accepted(chosen, judge=remark, told=lambda text: clock.tell("rules", text))


@contextmanager
def _sense_required(model: Model, options: Options) -> Iterator[None]:
    """Raise ModelError in place of an error about rules where the model itself does not run: then it is at fault."""
    try:
        yield
    except UnsoundRuleError:
        reason = refused_type(model)
        if not reason:
            from .engine.verification import verify  # it takes imports of its own

            source = model.path if model.path is not None and not options.input_shapes else model.ir
            verification = verify(source, source, seed=options.seed, precise=False, limit=options.verify_limit)
            if verification.status != "unverified":
                raise
            reason = verification.reason
        text = f"{model.label}: its shapes or element types contradict each other: {reason}"
        raise ModelError(text) from None


def _without_own_functions(model: Model) -> Model:
    """The model with sub-graphs that were written as functions put back in their places."""
    if not model.ir.functions:
        return model
    from .extract.partition.local_functions import inlined  # most models have none

    return inlined(model)


def _read(source: Any, output: Path | None, options: Options) -> Model:
    model = _without_own_functions(read(source))
    if output is not None:
        check_destination(output)
        if model.path is not None and output.exists() and output.samefile(model.path):
            raise UsageError(f"{output}: is the input itself; name another file to write")
        if reads(model, output.with_name(external_name(output))):
            name = external_name(output)
            raise UsageError(f"{output}: would replace {name}, which the input reads; name another file")
    return raise_opset(override_shapes(model, options.input_shapes), options.opset)


def samples_of(model: Model, paths: Sequence[Path]) -> tuple[Sample, ...]:
    """The inputs that a user gives. Raises UsageError where they do not fit the model."""
    if not paths:
        return ()
    from .engine.verification.inputs import read_samples

    wanted = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    return read_samples(paths, [ir.serde.serialize_value(value) for value in wanted])


@dataclass(frozen=True)
class Choice:
    """A graph chosen and written. `pricing` is what it was chosen by in the end: stricter where files would grow."""

    model: Model
    selection: Selection
    pricing: Pricing


def unchanged(model: Model) -> Model:
    """A copy of a model, as a result that was not written yet."""
    return replace(model, ir=model.ir.clone(), path=None)


def cost_model_for(options: Options, known: Saturated) -> CostModel:
    """What extraction minimises over the graphs that are equal to a model."""
    model = options.cost_model
    return model.calibrated(operator_graph(known.model, known.knowledge)) if isinstance(model, ProfileCost) else model


def extracted(known: Saturated, pricing: Pricing, options: Options, clock: Clock) -> Choice:
    """Choose and write the graph; where it would grow the file, choose again at a higher price per stored byte.

    It is the original where nothing was rewritten, or where the time ends before a graph is found that does not grow.
    """
    allowed = GROWTH * known.model.file_bytes
    for attempt in range(_ATTEMPTS):
        with clock.phase("extract"):
            selection = known.select(pricing, options)
        if known.egraph.saturation.is_void:
            return Choice(unchanged(known.model), selection, pricing)
        with clock.phase("decode"):
            result = decode(known.model, known.knowledge, known.encoding, known.egraph, selection)
        if attempt == _ATTEMPTS - 1 or result.file_bytes <= allowed:
            break
        if is_over(known.deadline):
            return Choice(unchanged(known.model), selection, pricing)
        pricing = pricing.stricter()
    return Choice(replace(result, path=None), selection, pricing)
