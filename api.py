"""The public API: optimise a model, compile it, and load what was compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from .costmodels.device import load_device
from .engine.canary import own_rules_suspected
from .engine.decode import drop_annotations
from .engine.egraph import Saturation, Selection
from .engine.inference import Knowledge
from .engine.model import Model, write
from .engine.provenance import forget_partition, stamp
from .engine.summary import GraphSummary, knowledge_of_result, summarize
from .engine.worker import Worker
from .errors import VerificationError
from .extract.select import Pricing
from .pipeline import Clock, Observer, Options, Saturated, cost_model_for, extracted, saturated
from .support.files import check_destination, write_text
from .support.options import options_of

if TYPE_CHECKING:
    import onnx

    from .compilation import Compiled
    from .engine.verification import Verification
    from .lowering.loaded import LoadedModel
    from .partitioning import Partitioned


@dataclass(frozen=True)
class Typed:
    """A model and what is known of its values, from which its graph of operators can be had."""

    model: Model
    knowledge: Knowledge = field(repr=False)


@dataclass(frozen=True, repr=False)
class Result:
    """An optimised model and how it came about. `phases` are wall-clock seconds.

    `original` and `rewritten` are for reports; with `as_functions`, `rewritten` is from before its functions were made.
    `checked` says whether all constants that rules united were compared, `trusted` names the rule files that were used
    without a check.
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
        price = f"predicted {before.predicted:.4g} -> {after.predicted:.4g} {before.unit}"
        verdict = self.verification.summary if self.verification is not None else "none"
        return (
            f"<Result: {before.nodes} -> {after.nodes} nodes, {price}\n"
            f"  search: {self.saturation.stop_reason} after {self.saturation.iterations} iterations, "
            f"extraction {self.extraction.status}\n"
            f"  verification: {verdict}\n"
            f"  written: {self.path or 'no'}>"
        )


def optimize(
    model: str | Path | onnx.ModelProto | ir.Model,
    output: str | Path | None = None,
    *,
    observer: Observer | None = None,
    **options: Any,
) -> Result:
    """Optimise an ONNX model; with `output`, write it there once it is verified.

    `options` are the fields of `Options`. Raises EqfuseError with one clear line on anything a user can mend, among
    them VerificationError where the result differs from the original, or cannot be compared with it: then nothing is
    written.
    """
    return run(model, Path(output) if output is not None else None, options_of(Options, options), observer)


def run(
    source: str | Path | onnx.ModelProto | ir.Model,
    output: Path | None,
    options: Options,
    observer: Observer | None = None,
    worker: Worker | None = None,
) -> Result:
    """`optimize` with its options in one object, and a worker that may have been started before with their rules."""
    with worker or Worker(options.selection) as started:  # loads the rules while the model is read
        return _run(source, output, options, Clock(observer), started)


def compile(
    model: str | Path | onnx.ModelProto | ir.Model,
    output: str | Path,
    *,
    target: str = "host",
    threads: int | None = None,
    observer: Observer | None = None,
    accelerator: Mapping[str, Any] | None = None,
    tuning: Mapping[str, Any] | None = None,
    **options: Any,
) -> Compiled:
    """Compile an ONNX model for a target to a bundle: a folder that `load` runs. It is written once it is verified.

    `options` are the fields of `Options`; `partition` is "joint" unless it says otherwise, and `device` is the target.
    With a target ``dsa-NAME``, `accelerator` may hold the `batch`, `floats`, `variant`, `order` and `per_cluster` of
    the command line. `tuning` are the fields of `lowering.tuning.settings.Settings`, ``{"trials": 200}`` at least: then
    schedules are searched for. Raises EqfuseError with one clear line on anything a user can mend.
    """
    from .compilation import compile_model  # TVM takes a second to import
    from .lowering.target import is_accelerator
    from .lowering.tuning.settings import Settings

    chosen = options_of(Options, {"partition": "joint", **options})
    if is_accelerator(target):
        from .dsa_compilation import AcceleratorOptions, compile_for_accelerator, demands_of

        demands = demands_of(target, options_of(AcceleratorOptions, accelerator or {}))
        return compile_for_accelerator(model, Path(output), chosen, demands, observer)
    settings = options_of(Settings, tuning) if tuning is not None else None
    return compile_model(
        model, Path(output), chosen, target=target, threads=threads, tuning=settings, observer=observer
    )


def load(path: str | Path, threads: int | None = None) -> LoadedModel:
    """Load a compiled bundle: call what comes back with arrays, in the order of its inputs or by their names.

    Raises EqfuseError with one clear line where the bundle is damaged, edited, or made for another machine.
    """
    from .lowering.runner import load as load_bundle

    return load_bundle(path, threads)


def _run(source: Any, output: Path | None, options: Options, clock: Clock, worker: Worker) -> Result:
    if options.certificate is not None:
        check_destination(options.certificate)
    if options.verify:
        from .engine.verification import prepare

        prepare()
    known = saturated(source, output, options, worker, clock)
    with own_rules_suspected(options.selection, known.egraph):
        return _result(known, output, options, clock)


def _result(known: Saturated, output: Path | None, options: Options, clock: Clock) -> Result:
    price = options.cost_model
    model, egraph = known.model, known.egraph
    (result, selection), partition = _chosen(known, options, clock)
    with clock.phase("summarize"):
        before = summarize(model, known.knowledge, price)
        rewritten = Typed(result, knowledge_of_result(result, known.knowledge))
        after = summarize(result, rewritten.knowledge, price)
        drop_annotations(result, model)
        result = _with_partition(result, partition, options)
        matched, device = len(egraph.saturation.matched), load_device(options.device)
        stamp(result.ir.metadata_props, options.precision, matched, device, options.trusted)
    verification = None
    if options.verify:
        with clock.phase("verify"):
            verification = _verify(known, result, options)
    if output is not None:
        with clock.phase("write"):
            result = write(result, output, external=model.has_external_data)
    if options.certificate is not None:
        write_text(options.certificate, _certificate(result))
    return Result(
        model=result.ir,
        path=result.path,
        before=before,
        after=after,
        saturation=egraph.saturation,
        extraction=selection,
        classes=len(egraph.classes),
        enodes=egraph.enodes,
        verification=verification,
        phases=clock.phases,
        original=Typed(model, known.knowledge),
        rewritten=rewritten,
        partition=partition,
        checked=known.checked,
        trusted=options.trusted,
    )


def _chosen(known: Saturated, options: Options, clock: Clock) -> tuple[tuple[Model, Selection], Partitioned | None]:
    if options.partition == "none":
        chosen = extracted(known, Pricing.of(cost_model_for(options, known)), options, clock)
        return (chosen.model, chosen.selection), None
    from .partitioning import partitioned  # sub-graphs take imports of their own

    return partitioned(known, options.partition, options, clock)


def _with_partition(model: Model, partition: Partitioned | None, options: Options) -> Model:
    if partition is None:
        forget_partition(model)
        return model
    from .extract.partition.annotate import annotate
    from .extract.partition.local_functions import as_functions

    annotate(model, partition.partition)
    return as_functions(model, partition.partition) if options.as_functions else model


def _certificate(result: Model) -> str:
    from .partitioning import certificate_text

    return certificate_text(result)


def _verify(known: Saturated, result: Model, options: Options) -> Verification:
    from .engine.verification import require_comparison, verdict_required, verify

    model = known.model
    original = model.path if model.path is not None and not options.input_shapes else model.ir
    with verdict_required(model.label):
        verification = require_comparison(
            verify(
                original,
                result.ir,
                atol=options.atol,
                rtol=options.rtol,
                seed=options.seed,
                samples=known.samples,
                precision=options.precision,
                limit=options.verify_limit,
            )
        )
    if verification.status == "failed":
        raise VerificationError(
            f"{model.label}: the result differs from the original: {verification.summary}; nothing was written; "
            "`eqfuse bisect` finds the rule"
        )
    return verification


__all__: Sequence[str] = ["Options", "Result", "compile", "load", "optimize", "run"]
