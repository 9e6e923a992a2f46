"""The verdict on whether a candidate computes the same as the original.

It runs in a separate process: it may crash in a kernel or never end, and its parent ends it then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...support.errors import UsageError
from ...support.solvers import OrderQuestion
from ..onnx.provenance import provenance
from .baseline import STRESS, Baseline, Request, run_original
from .divergence import common_values, first_divergence, judge_bits, tolerance_judge
from .inputs.draws import generate
from .inputs.plans import Temper, input_specs, plans
from .outputs import ComparedOutput, Comparison, Demands, status_of
from .question import Question
from .report import OutputReport, Status, Verification
from .runs.compare import Tolerance, compare
from .runs.run import Backend, OnnxRuntime, Reference
from .runs.source import read_source
from .runs.structure import Structure, interface_difference
from .runs.values import RunError, Value


def answer(question: Question | OrderQuestion) -> Verification | tuple[int, ...]:
    """What this process is asked: the verdict on two models, or what z3 says about an order."""
    return verdict(question) if isinstance(question, Question) else question.answer()


def verdict(question: Question) -> Verification:
    """Run both models in this process and compare them.

    Raises UsageError for a file that is no model and for inputs the model lacks.
    """
    return _Check(question).verdict()


class _Check:
    """One verification in progress."""

    def __init__(self, question: Question) -> None:
        self.started = time.perf_counter()
        self.question = question
        self.original = read_source(question.original, "original")
        self.candidate = read_source(question.candidate, "candidate")
        self.structure = Structure(self.original.structure)
        self.specs = input_specs(self.structure)
        inputs = [spec.name for spec in self.specs]
        for name in question.shapes:
            if name not in inputs:
                raise UsageError(f"the model has no input {name!r}; its inputs are {', '.join(inputs) or 'none'}")
        tolerance = Tolerance(question.atol, question.rtol, self.structure.coarsest_type)
        self.provenance = provenance({e.key: e.value for e in self.candidate.structure.metadata_props})
        precision = question.precision or (self.provenance.precision if self.provenance is not None else "real")
        by_default = question.atol is None and question.rtol is None
        self.demands = Demands(
            oracle=question.precise and by_default,
            bits=precision == "exact" and by_default,
            errors=question.precise and question.measure,
            is_fast=precision == "fast",
        )
        tempers = (*STRESS, Temper.SPECIAL) if self.demands.bits else STRESS if self.demands.oracle else ()
        self.request = Request(question.seed, question.shapes, question.samples, tolerance, tempers)

    def verdict(self) -> Verification:
        """Run and compare the models."""

        def conclude(
            status: Status,
            reason: str,
            outputs: tuple[OutputReport, ...] = (),
            divergent: str | None = None,
            unmeasured: str = "",
            one_sided: tuple[str, ...] = (),
        ) -> Verification:
            taken = time.perf_counter() - self.started
            return Verification(status, outputs, divergent, reason, taken, self.provenance, unmeasured, one_sided)

        difference = interface_difference(self.original.graph, self.candidate.graph)
        if difference is not None:
            return conclude("failed", difference)
        self.question.note_running("original")
        try:
            baseline = run_original(self.original, self.structure, self.specs, self.request)
        except RunError as error:
            refusal = self._refusal()
            return conclude("failed", refusal) if refusal else conclude("unverified", str(error))
        if baseline.on_reference and (refusal := self._refusal()):
            return conclude("failed", refusal)
        self.question.note_running("candidate")
        try:
            results = self._run_candidate(baseline)
        except RunError as error:
            return conclude("failed", f"the candidate does not run: {error}")
        self.question.note_running("")
        # ONNX Runtime folded the constants, and the reference evaluator rounds differently: there bits prove nothing.
        demands = replace(self.demands, bits=self.demands.bits and not baseline.on_reference)
        comparison = Comparison(
            self.original, self.structure, self.request.tolerance, baseline, results, demands, self.candidate
        )
        compared = comparison.outputs()
        reports = tuple(output.report for output in compared)
        broken = next((output for output in compared if output.broken_run is not None), None)
        status, reason = status_of(compared, self.structure)
        name = None
        if broken is not None:
            name, place = self._first_divergent(broken, comparison)
            reason += place
        if baseline.on_reference:
            note = "compared in onnx's reference evaluator, for ONNX Runtime does not run the original"
            reason = "; ".join(filter(None, (reason, f"{note}: {baseline.refusal}")))
        return conclude(status, reason, reports, name, comparison.unmeasured, baseline.one_sided)

    def _refusal(self) -> str:
        """Why ONNX Runtime does not load the candidate although it loads the original; "" if that is not so."""
        try:
            OnnxRuntime(self.original)
        except RunError:
            return ""
        self.question.note_running("candidate")
        try:
            OnnxRuntime(self.candidate)
        except RunError as error:
            return f"ONNX Runtime loads the original, but not the candidate: {error}"
        return ""

    def _run_candidate(self, baseline: Baseline) -> list[Mapping[str, Value]]:
        try:
            backend: Backend = Reference(self.candidate) if baseline.on_reference else OnnxRuntime(self.candidate)
        except RunError:
            if not baseline.on_reference:
                raise
            backend = OnnxRuntime(self.candidate)
        results: list[Mapping[str, Value]] = []
        for run in baseline.runs:
            try:
                results.append(backend.run(run.feeds))
            except RunError as error:
                raise RunError(f"{run.title}: {error}" if run.title else str(error)) from error
        return results

    def _first_divergent(self, broken: ComparedOutput, comparison: Comparison) -> tuple[str, str]:
        """The name of the first divergent value, and an addition to the reason."""
        index = broken.broken_run or 0
        run = comparison.baseline.runs[index]
        judge = judge_bits if comparison.demands.bits else tolerance_judge(self.request.tolerance)
        if broken.convicted:
            judge = comparison.beyond_rounding(index, common_values(self.original, self.candidate, self.structure))
        on_reference = comparison.baseline.on_reference
        divergence = first_divergence(self.original, self.candidate, self.structure, run.feeds, judge, on_reference)
        if divergence is None:
            return broken.report.name, ""
        return divergence.name, f"; first divergent value {divergence}"


def find_mixed_samples(original: Path, freed: Path, batch: str, seed: int) -> str:
    """How the model whose inputs begin with a dynamic `batch` differs in ONNX Runtime; "" if it does not.

    Both run on the same samples, the original on one after the other.
    """
    before, after = read_source(original, "original"), read_source(freed, "original")
    specs = input_specs(Structure(after.structure))
    batched = {spec.name for spec in specs if spec.dims and spec.dims[0] == batch}
    refusal = "it runs on none of the inputs tried"
    try:
        alone, together = OnnxRuntime(before), OnnxRuntime(after)
    except RunError as error:
        return str(error)
    for plan in plans(specs, {}):
        feeds = generate(specs, plan, seed)
        count = min(len(feeds[name]) for name in batched)
        if count < 2:
            continue
        try:
            results = together.run(feeds)
            for sample in range(count):
                one = slice(sample, sample + 1)
                expected = alone.run({n: value[one] if n in batched else value for n, value in feeds.items()})
                for name, value in expected.items():
                    if not (difference := compare(value, results[name][one], Tolerance())).equal:
                        return f"output {name!r} of a sample depends on the other ones: it is off by {difference}"
            return ""
        except RunError as error:
            refusal = str(error)
    return refusal
