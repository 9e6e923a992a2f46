"""`Model -> EGraph`: read a model, and apply the rules to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ..costmodels.model import FlopsCost
from ..engine.constant_conflicts import check_constants, name_culprits
from ..engine.egraph.encode import Encoding, encode
from ..engine.egraph.graph import EGraph, Selection
from ..engine.egraph.other_domains import named_operators
from ..engine.egraph.plan import Origins, locate_origins
from ..engine.egraph.saturate import Budget, UnsoundRuleError, saturate
from ..engine.egraph.worker import Worker
from ..engine.onnx.model import Model, external_name, read, reads
from ..engine.onnx.nodes import is_flattened
from ..engine.preparation.arguments import simplify_arguments
from ..engine.preparation.overrides import keep_outputs, override_shapes, raise_opset, state_dimensions
from ..engine.shapes.inference import Knowledge, find_refused_type, infer
from ..engine.summary import summarize
from ..extract.extraction.select import Criteria, is_dearer_than_original, select
from ..extract.extraction.sizes import Types, assume_types
from ..support.deadlines import is_over, seconds_left
from ..support.errors import EqfuseError, ModelError, UsageError
from ..support.files import check_destination
from .clock import Clock
from .intermediate import check_folder, save_stage
from .options import Options
from .sizes import check_sizes

if TYPE_CHECKING:
    from ..engine.bodies.flatten import FlatModel
    from ..engine.verification.inputs.given import Sample


_SATURATION_SHARE = 0.6
"""The most of the search's seconds for saturation: a phase is worth nothing unless those after it still have time."""
_CHECK_SHARE = 0.1
"""The most of the search's seconds for the check of constants."""
_EXTRACTION_SHARE = 0.3
"""The most of the search's seconds for each extraction; the partition gets the rest."""
_AFTER_SEARCH_SECONDS = 2.0
"""Seconds of a user's time limit that are kept for the steps after the search, for a model without FLOPs: it is written
as a graph again, processes start and models load."""
_VERIFIED_FLOPS = 1e9
"""FLOPs of a model for which one more second of a user's time limit is kept for verification: both models run several
times, and once in float64."""
_LARGEST_VERIFICATION_SHARE = 0.4
"""The most of a user's time limit that is kept for verifying a model of many FLOPs; the search has the rest."""
_SHARE_OF_A_CHOICE = 0.5
"""The share of the remaining seconds that one choice of a graph may take. A graph that makes the file grow is chosen
again at a higher cost per byte; without time for that the original is kept."""


@dataclass(frozen=True)
class Encoded:
    """A model, the types and constants of its values, and its terms. `samples` are the inputs that the user gives.

    For a model with bodies, `model` and all that follows describe `flat`, which has none. The terms are those of
    `simplified`: the model with constants for arguments that are the same for all sizes.
    """

    model: Model
    simplified: Model
    knowledge: Knowledge
    encoding: Encoding
    samples: tuple[Sample, ...]
    flat: FlatModel | None

    @property
    def original(self) -> Model:
        """The model with its bodies, before it was made flat."""
        return self.model if self.flat is None else self.flat.source


@dataclass(frozen=True)
class Saturated(Encoded):
    """An encoded model, and the e-graph of the terms that the rules prove equal to it.

    `deadline` (time.monotonic) is the end of the time limit; `checked`: whether all constants were checked before it.
    `sizes` are those of symbolic dimensions that differ from the ones that costs assume otherwise.
    """

    egraph: EGraph
    origin: Origins
    deadline: float
    checked: bool
    sizes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def assumptions(self) -> Types:
        """The types of the classes at the sizes that costs assume."""
        return assume_types(self.egraph, self.encoding, self.model.opset, self.knowledge, self.sizes)

    def select(self, criteria: Criteria, options: Options, barred: frozenset[int] = frozenset()) -> Selection:
        """The cheapest choice from the e-graph without the `barred` classes, with time left for another one."""
        assumptions = self.assumptions
        limit = min(_EXTRACTION_SHARE * options.search_seconds, _SHARE_OF_A_CHOICE * seconds_left(self.deadline))
        return select(
            self.egraph, self.encoding, self.origin, self.model.opset, criteria,
            time_limit=limit, method=options.extraction, assumptions=assumptions, barred=barred,
        )  # fmt: skip

    def is_dearer_than_original(self, selection: Selection, criteria: Criteria) -> bool:
        """Whether a choice made by other criteria costs more than the original by these."""
        return is_dearer_than_original(
            self.egraph, self.encoding, self.origin, self.model.opset, criteria, selection.choice, self.assumptions
        )


def saturate_model(source: Any, output: Path | None, options: Options, worker: Worker, clock: Clock) -> Saturated:
    """Read a model and apply the rules until nothing changes, or a budget is hit.

    `output` is the file of the result; whether it can be written is found out first. The seconds of the search begin
    once the model is read and the rules are checked and loaded; of a time limit that the user gives, which begins with
    the clock, the search gets the part that verification leaves. Raises RuleError for rules beside the shipped ones
    that may not be used, EqfuseError if the time limit ends before the search can begin.
    """
    with clock.phase("read"):
        model = _read(source, output, options)
        samples = samples_of(model, options.inputs)
        save_stage(options, "read", model)
    with clock.phase("infer"):
        flat, knowledge = _infer(model, options)
        model = model if flat is None else flat.model
        simplified, knowledge = simplify_arguments(model, knowledge)
        if flat is None:  # a flat model is none of ONNX
            save_stage(options, "infer", simplified)
    if options.rules and not options.trust_rules:
        with clock.phase("rules"):
            _check_rules(options, clock)
    if isfinite(clock.deadline):
        options = replace(options, time_limit=_seconds_for_search(model, knowledge, options, clock))
    named = named_operators(options.selection.rules)

    def encode_with(knowledge: Knowledge) -> Encoded:
        with clock.phase("encode"):
            return Encoded(model, simplified, knowledge, encode(simplified, knowledge, named), samples, flat)

    try:
        return apply_rules(encode_with(knowledge), options, worker, clock)
    except UnsoundRuleError:  # two forms of one size that no normal form unites look like two shapes of one term
        fewer = knowledge.without_computed_sizes()
        if fewer.symbols == knowledge.symbols:
            raise
        with Worker(options.selection) as another:
            return apply_rules(encode_with(fewer), options, another, clock)


def apply_rules(encoded: Encoded, options: Options, worker: Worker, clock: Clock) -> Saturated:
    """Apply the worker's rules, which are those of the options, until nothing changes, or a budget is hit."""
    model, simplified, knowledge, encoding = encoded.model, encoded.simplified, encoded.knowledge, encoded.encoding
    latest = inf if options.time_limit is None else time.monotonic() + options.time_limit
    blamed = name_culprits(encoding, options.selection, _budget(options))
    with clock.phase("saturate"), _blame_model(encoded.original, options), blamed:
        egraph = saturate(
            encoding,
            worker,
            _budget(options),
            progress=lambda p: clock.tell("saturate", f"iteration {p.iterations}: {p.growth[-1]} e-nodes"),
        )
    deadline = min(time.monotonic() + options.search_seconds - egraph.saturation.seconds, latest)
    if encoded.flat is not None:
        from ..engine.bodies.nest import without_captive_nodes

        egraph = without_captive_nodes(egraph, encoding, encoded.flat, simplified.graph)
    with clock.phase("check"), _blame_model(encoded.original, options):
        limit = min(deadline, time.monotonic() + _CHECK_SHARE * options.search_seconds)
        checked = check_constants(simplified, knowledge, encoding, egraph, options.selection, _budget(options), limit)
    origin = locate_origins(simplified.graph, encoding, egraph)
    return Saturated(
        model, simplified, knowledge, encoding, encoded.samples, encoded.flat, egraph, origin, deadline, checked,
        options.sizes.typical,
    )  # fmt: skip


def _budget(options: Options) -> Budget:
    return Budget(options.node_limit, _SATURATION_SHARE * options.search_seconds, options.iterations)


def _seconds_for_search(model: Model, knowledge: Knowledge, options: Options, clock: Clock) -> float:
    """The part of the user's time limit that is left for the search, beside verification."""
    left, kept = seconds_left(clock.deadline), 0.0
    if options.verify and options.verify_limit is None:
        work = summarize(model, knowledge, FlopsCost()).flops
        kept = min(_LARGEST_VERIFICATION_SHARE * left, _AFTER_SEARCH_SECONDS + work / _VERIFIED_FLOPS)
    if left <= kept:
        raise EqfuseError(
            f"{model.label}: --time-limit {options.time_limit:g} ended while the model was read; give it more seconds"
        )
    return left - kept


def _infer(model: Model, options: Options) -> tuple[FlatModel | None, Knowledge]:
    """Infer types and constants, for a model with bodies those of the flat one; sub-graphs leave bodies unchanged."""
    if options.partition == "none" and any(map(is_flattened, model.graph)):
        from ..engine.bodies.flatten import flatten  # most models have none
        from ..engine.bodies.inference import infer_flat
        from ..engine.bodies.recurrences import recognize_recurrences
        from ..engine.bodies.sequences import replace_sequences

        with suppress(ModelError):  # a branch that never runs may be invalid
            flat = flatten(model)
            knowledge = infer_flat(flat)
            if replace_sequences(flat, knowledge):
                knowledge = infer_flat(flat)
            if options.precision != "exact" and recognize_recurrences(flat, knowledge):
                knowledge = infer_flat(flat)
            return flat, knowledge
    return None, infer(model)


def _check_rules(options: Options, clock: Clock) -> None:
    from ..tools.checking.acceptance import require_accepted
    from ..tools.checking.worth import remark_on_worth  # the checker takes imports of its own

    def report(progress: str) -> None:
        clock.tell("rules", progress)
        if is_over(clock.deadline):
            raise EqfuseError(
                f"--time-limit {options.time_limit:g} ended while the rules were checked ({progress}); verdicts "
                "so far are kept; give it more seconds, or --trust-rules"
            )

    require_accepted(options.selection, judge=remark_on_worth, report=report)


@contextmanager
def _blame_model(model: Model, options: Options) -> Iterator[None]:
    """Raise ModelError instead of an error about rules if the model itself does not run: then it is at fault."""
    try:
        yield
    except UnsoundRuleError:
        reason = find_refused_type(model)
        if not reason:
            from ..engine.verification import verify  # it takes imports of its own

            source = model.source
            verification = verify(source, source, seed=options.seed, precise=False, limit=options.verification_seconds)
            if verification.status != "unverified":
                raise
            reason = verification.reason
        text = f"{model.label}: its shapes or element types contradict each other: {reason}"
        raise ModelError(text) from None


def _without_functions(model: Model) -> Model:
    """The model with its functions inlined."""
    if not model.ir.functions:
        return model
    from ..extract.partition.annotations.local_functions import inline_functions  # most models have none

    return inline_functions(model)


def _read(source: Any, output: Path | None, options: Options) -> Model:
    model = _without_functions(read(source))
    for path in filter(None, (output, options.certificate, *check_folder(options))):
        if reads(model, path):
            raise UsageError(f"{path}: is the input itself, or holds its weights; name another file to write")
    if output is not None:
        check_destination(output)
        name = external_name(output)
        if reads(model, output.with_name(name)):
            raise UsageError(f"{output}: would replace {name}, which the input reads; name another file")
    model = keep_outputs(override_shapes(state_dimensions(model, options.dim), options.input_shapes), options.outputs)
    check_sizes(model, options.sizes, options.dim)
    return raise_opset(model, options.opset)


def samples_of(model: Model, paths: Sequence[Path]) -> tuple[Sample, ...]:
    """The inputs that a user gives. Raises UsageError if they do not fit the model."""
    if not paths:
        return ()
    from ..engine.verification.inputs.given import read_samples

    wanted = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    return read_samples(paths, [ir.serde.serialize_value(value) for value in wanted])
