"""Optimising a model: every stage from reading it to writing the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ..costmodels.device import load_device
from ..costmodels.fused import FusedCost
from ..engine.constant_conflicts import blame_user_rules
from ..engine.egraph.collector import pause_collection
from ..engine.egraph.graph import Saturation, Selection
from ..engine.egraph.loops import Acyclicity
from ..engine.egraph.worker import Worker
from ..engine.onnx.map_outputs import to_message
from ..engine.onnx.model import Model, is_same_graph, write
from ..engine.onnx.provenance import ACYCLIC_KEY, forget_partition, stamp
from ..engine.onnx.typing import drop_annotations, keep_declared_shapes
from ..engine.preparation.overrides import blame_input_shapes
from ..engine.shapes.inference import Knowledge
from ..engine.summary import GraphSummary, knowledge_of_result, summarize
from ..extract.extraction.problem import ExtractionError
from ..extract.extraction.select import Criteria
from ..support.custom_operators import custom_operators
from ..support.deadlines import is_over, seconds_left
from ..support.errors import UsageError, VerificationError
from ..support.files import check_destination, write_text
from ..support.options import option_class
from ..support.solvers import OrderQuestion, UndecidedOrderError
from .clock import Clock, Observer
from .extract import Chosen, Unrounded, criteria_for, extract_model, predict_unrounded, without_bodies
from .intermediate import save_stage
from .options import MeasureOptions, Options
from .saturate import Saturated, saturate_model
from .usage import cost_model_for, runtime_for, summarized_runtime

if TYPE_CHECKING:
    import onnx

    from ..engine.verification import Verification
    from ..extract.partition.search.confirmation import Lowering
    from ..tools.explain.values import RulesOfValue
    from .measure import Timings
    from .partition import Partitioned


_ORDER_SECONDS = 10.0
"""Seconds that z3 has for the order of a selection: a hundred classes take some milliseconds, six thousand a second."""


@dataclass(frozen=True)
class Typed:
    """A model with the types and constants of its values; its graph of operators can be made from these."""

    model: Model
    knowledge: Knowledge = field(repr=False)


@dataclass(frozen=True, repr=False)
class Result:
    """An optimised model and how it came about. `phases` are wall-clock seconds.

    `original` and `rewritten` are for reports; with `as_functions`, `rewritten` is from before its functions were made.
    `checked` says whether all constants that rules united were compared, `trusted` names the rule files that were used
    without a check. `timings` has the candidates that were timed, if that was asked for. `acyclicity`
    says why the chosen graph has no cycle; None if no graph was chosen. `rules_of_values` has those of values that have
    another form in the result, if they were looked for and found. `unrounded` is a prediction that says what
    ``--precision fast`` may gain for a quantised model.
    """

    model: ir.Model
    path: Path | None
    before: GraphSummary
    after: GraphSummary
    saturation: Saturation
    extraction: Selection
    classes: int
    enodes: int
    verification: Verification | None
    phases: Mapping[str, float]
    original: Typed
    rewritten: Typed
    partition: Partitioned | None = None
    checked: bool = True
    trusted: tuple[str, ...] = ()
    timings: Timings | None = None
    acyclicity: Acyclicity | None = None
    rules_of_values: Mapping[str, RulesOfValue] = field(default_factory=dict)
    unrounded: Unrounded | None = None

    @property
    def proto(self) -> onnx.ModelProto:
        """The model as a message. Weights in external data stay there, at the location that the original names."""
        return to_message(self.model)

    @property
    def proof(self) -> str:
        """What is proven of the chosen graph: ``within 0.4 % of the optimum, acyclic (the e-graph has no loops)``."""
        gap = f"within {100 * self.extraction.gap:.2g} % of the optimum"
        cost = "proven optimal" if self.extraction.status == "optimal" else gap
        return cost if self.acyclicity is None else f"{cost}, {self.acyclicity}"

    @property
    def budget_hit(self) -> bool:
        """Whether a limit ended the search before it was complete; the result is valid all the same."""
        return self.saturation.budget_hit or self.extraction.status != "optimal" or bool(self.cut_short)

    @property
    def cut_short(self) -> tuple[str, ...]:
        """The phases that the time limit ended before they were complete."""
        complete = {
            "saturation": not self.saturation.out_of_time,
            "check of constants": self.checked,
            "extraction": not self.extraction.out_of_time,
            "partition": self.partition is None or self.partition.complete,
        }
        return tuple(phase for phase, is_complete in complete.items() if not is_complete)

    def __repr__(self) -> str:
        """A few lines: the fields hold whole graphs."""
        before, after = self.before, self.after
        cost = "; ".join((f"predicted {before.predicted:.4g} -> {after.predicted:.4g} {before.unit}", *before.notes))
        verdict = self.verification.summary if self.verification is not None else "none"
        return (
            f"<Result: {before.nodes} -> {after.nodes} nodes, {cost}\n"
            f"  search: {self.saturation.stop_reason} after {self.saturation.iterations} iterations, "
            f"extraction {self.extraction.status}\n"
            f"  verification: {verdict}\n"
            f"  written: {self.path or 'no'}>"
        )


def prepare_verification(options: Options) -> None:
    """Start the process of a later verification, if one is asked for, while other work goes on."""
    if options.verify:
        from ..engine.verification import prepare

        prepare()


@pause_collection()
def optimize_model(
    source: Any,
    output: Path | None,
    options: Options,
    observer: Observer | None = None,
    worker: Worker | None = None,
    measure: MeasureOptions | None = None,
    lowering: Lowering | None = None,
    explain_seconds: float = 0.0,
) -> Result:
    """Optimise a model: a path, a ModelProto, an onnx_ir.Model or a Model; with `output`, write it once it is verified.

    `worker` may have been started before, with the rules of the options: it loads them while the model is read. The
    `lowering` will compile the kernels of the partition. The rules of each value are looked for in `explain_seconds`,
    and not at all in 0. Raises EqfuseError with one clear line on any error that a
    user can mend, among them VerificationError if the result differs from the original, or cannot be compared with it:
    then nothing is written.
    """
    if measure is not None:
        measure.check_beside(options)
    _check_certificate(options.certificate, output)
    clock = Clock(observer, options.time_limit)
    with (
        custom_operators(options.custom_ops),
        worker or Worker(options.selection) as started,
        blame_input_shapes(
            source,
            options.input_shapes,
            verifies=options.verify,
            seed=options.seed,
            limit=options.verification_seconds,
        ),
    ):
        prepare_verification(options)
        saturated = saturate_model(source, output, options, started, clock)
        with blame_user_rules(options.selection, saturated.egraph):
            chosen, partition, timings = _choose_graph(saturated, options, measure, clock, lowering)
            save_stage(options, "decode", chosen.choice.model)
            rules = _find_rules(chosen, min(explain_seconds, seconds_left(clock.deadline)), clock)
            with _look_for_order(chosen.choice.selection, options, clock) as prove:
                with clock.phase("summarize"):
                    recorded = partition if lowering is None else None
                    result = _summarize(chosen, recorded, options, clock)
                    unrounded = _predict_unrounded(chosen, partition, clock)
                    result = replace(
                        result, partition=partition, timings=timings, rules_of_values=rules, unrounded=unrounded
                    )
                result = replace(result, acyclicity=prove())
                result.model.metadata_props[ACYCLIC_KEY] = str(result.acyclicity)
            save_stage(options, "summarize", replace(chosen.choice.model, ir=result.model))
            if options.verify:
                with clock.phase("verify"):
                    verdict = _verify(saturated, result.model, options, seconds_left(clock.deadline))
                    result = replace(result, verification=verdict)
            return replace(result, path=_write(chosen, result.model, output, options.certificate, clock))


@option_class()
class OptimizePass(Options, ir.passes.FunctionalPass):
    """`optimize` as a pass of onnx-ir, with the same options: for ``ir.passes.Sequential`` beside other passes.

    The model that it is given is not changed. `modified` says whether the graph is another one; metadata do not count.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Optimise a model. Raises EqfuseError as `optimize` does."""
        result = optimize_model(model, None, self).model
        return ir.passes.PassResult(result, modified=not is_same_graph(model, result))


def _check_certificate(certificate: Path | None, output: Path | None) -> None:
    if certificate is None:
        return
    check_destination(certificate)
    if output is not None and output.resolve() == certificate.resolve():
        raise UsageError(f"{output}: cannot be both model and certificate; name another file for one of them")


def _write(chosen: Chosen, result: ir.Model, output: Path | None, proof: Path | None, clock: Clock) -> Path | None:
    """Write the model and the certificate (`proof`) that are asked for; the path that the model has then."""
    model = replace(chosen.choice.model, ir=result)
    if output is not None:
        with clock.phase("write"):
            model = write(model, output, external=chosen.saturated.original.has_external_data)
    if proof is not None:
        from .partition import certificate_text

        write_text(proof, certificate_text(model))
    return model.path


def _summarize(chosen: Chosen, recorded: Partitioned | None, options: Options, clock: Clock) -> Result:
    """The result before it is verified. Its model has a record of the run and of the `recorded` partition."""
    saturated, choice, cost_model = chosen.saturated, chosen.choice, cost_model_for(options)
    original, result, egraph = saturated.original, choice.model, saturated.egraph
    runtime = summarized_runtime(options, options.runtime)
    before = summarize(without_bodies(original), saturated.knowledge, cost_model, runtime)
    rewritten = Typed(result, knowledge_of_result(result, saturated.knowledge))
    flat = without_bodies(result)
    after = summarize(flat, knowledge_of_result(flat, saturated.knowledge), cost_model, runtime)
    drop_annotations(result.ir, original.ir)
    keep_declared_shapes(result.ir, original.ir)
    result = _record_partition(result, recorded, options)
    matched, device = len(egraph.saturation.matched), load_device(chosen.options.device)
    stamp(result.ir.metadata_props, options.precision, matched, device, options.trusted)
    return Result(
        model=result.ir, path=None, before=before, after=after, saturation=egraph.saturation,
        extraction=choice.selection, classes=len(egraph.classes), enodes=egraph.enodes, verification=None,
        phases=clock.phases, original=Typed(original, saturated.knowledge), rewritten=rewritten,
        checked=saturated.checked, trusted=options.trusted,
    )  # fmt: skip


def _choose_graph(
    saturated: Saturated, options: Options, measure: MeasureOptions | None, clock: Clock, lowering: Lowering | None
) -> tuple[Chosen, Partitioned | None, Timings | None]:
    if measure is not None and measure.measure is not None:
        from .measure import measure_candidates  # ONNX Runtime takes time to import

        chosen, timings = measure_candidates(saturated, options, measure, clock)
        return chosen, None, timings
    if options.partition == "none":
        choice = extract_model(saturated, criteria_for(options, saturated), options, clock)
        return Chosen(saturated, choice, options), None, None
    from .partition import partition_model  # sub-graphs take imports of their own

    choice, partition = partition_model(saturated, options.partition, options, clock, lowering)
    return Chosen(saturated, choice, options), partition, None


def _predict_unrounded(chosen: Chosen, partition: Partitioned | None, clock: Clock) -> Unrounded | None:
    """What ``--precision fast`` may gain where kernels are made, as far as there is time to find out."""
    if partition is None or is_over(clock.deadline):
        return None
    criteria = Criteria.of(FusedCost(partition.model.device), runtime_for(chosen.options))
    return predict_unrounded(chosen.saturated, criteria, partition.seconds, chosen.options)


def _find_rules(chosen: Chosen, seconds: float, clock: Clock) -> Mapping[str, RulesOfValue]:
    if seconds <= 0:
        return {}
    from ..rules.loader import load_selection
    from ..tools.explain.cone import Rewriting  # only reports need the tools that explain
    from ..tools.explain.values import find_rules

    with clock.phase("explain"):
        saturated, choice = chosen.saturated, chosen.choice.selection
        rules = load_selection(chosen.options.selection)
        return find_rules(Rewriting(saturated.encoding, saturated.egraph, choice, rules), seconds)


@contextmanager
def _look_for_order(selection: Selection, options: Options, clock: Clock) -> Iterator[Callable[[], Acyclicity]]:
    """Have z3 look for an order of the classes of a selection in the loops of its e-graph; the function awaits it.

    The process that will verify asks z3, unless this one has imported it for a partition. Raises ExtractionError if the
    selection is cyclic.
    """
    question = OrderQuestion(selection.loops.reads, _ORDER_SECONDS)

    def prove(await_cycle: Callable[[], tuple[int, ...]]) -> Acyclicity:
        if not question.pairs:
            return Acyclicity.of(selection.loops)
        try:
            with clock.phase("certify"):
                cycle = await_cycle()
        except UndecidedOrderError:
            return Acyclicity.of(selection.loops, is_decided=False)
        if cycle:
            owners = [question.pairs[position][0] for position in cycle]
            steps = " -> ".join(f"{selection.choice[n].op} (e-class {n})" for n in (*owners, owners[0]))
            raise ExtractionError(f"extraction: the selection is cyclic: {steps}; please report this")
        return Acyclicity.of(selection.loops)

    if question.pairs and options.verify and options.partition == "none":
        from ..engine.verification import look_for_order

        with look_for_order(question) as await_cycle:
            yield partial(prove, await_cycle)
    else:
        yield partial(prove, question.answer)


def _record_partition(model: Model, partition: Partitioned | None, options: Options) -> Model:
    if partition is None:
        forget_partition(model)
        return model
    from ..extract.partition.annotations.annotate import annotate
    from ..extract.partition.annotations.local_functions import as_functions

    annotate(model, partition.partition)
    return as_functions(model, partition.partition, options.link_params) if options.as_functions else model


def _verify(saturated: Saturated, result: ir.Model, options: Options, left: float) -> Verification:
    """Verify within the user's limit for it, otherwise within the seconds that are `left` for everything."""
    from ..engine.verification import require_comparison, require_verdict, verify

    model = saturated.original
    original = model.source
    limit = options.verify_limit or min(options.verification_seconds, left)
    with require_verdict(model.label):
        if not limit:
            raise VerificationError(
                f"--time-limit {options.time_limit:g} ended before the result was verified; --verify-limit gives "
                "verification seconds of its own"
            )
        verification = require_comparison(
            verify(
                original,
                result,
                atol=options.atol,
                rtol=options.rtol,
                seed=options.seed,
                samples=saturated.samples,
                precision=options.precision,
                limit=limit,
            )
        )
    if verification.status == "failed":
        raise VerificationError(
            f"{model.label}: the result differs from the original: {verification.summary}",
            "nothing was written; `eqfuse bisect` finds the rule",
        )
    return verification
