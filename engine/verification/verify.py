"""The verdict on a candidate: does it compute what the original computes?"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from ...errors import UsageError
from .baseline import Baseline, Request, Run, establish, saturated
from .compare import Difference, Tolerance, compare
from .divergence import first_divergence
from .inputs import InputSpec, input_specs
from .interface import interface_difference
from .oracle import Oracle, judge, may_acquit
from .report import OutputReport, Status, Verification
from .run import Backend, OnnxRuntime, Reference
from .source import ModelLike, Source, open_source
from .structure import Structure
from .values import RunError, Value


def verify(
    original: ModelLike,
    candidate: ModelLike,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    user_inputs: Mapping[str, NDArray[Any]] | None = None,
    precise: bool = True,
) -> Verification:
    """Run both models on the same inputs, compare every output, and name the first value that differs.

    Each model is a path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``. Inputs are random from ``seed``, of shapes and
    values that suit their use in the original; ``shapes`` fixes the shape of inputs and ``user_inputs`` their values.
    Both models run under two seeds, and once more with larger sizes where dimensions are symbolic. A given ``atol`` or
    ``rtol`` is final; with the default tolerance and ``precise``, a float64 oracle decides about floats that
    differ beyond it (see ``oracle``). Raises UsageError for a file that is no model and for inputs the model lacks.
    """
    started = time.perf_counter()
    with open_source(original, "original") as before, open_source(candidate, "candidate") as after:
        structure = Structure(before.structure)
        specs = input_specs(structure)
        fixed_shapes, fixed_values = dict(shapes or {}), dict(user_inputs or {})
        _check_names(specs, [*fixed_shapes, *fixed_values])
        tolerance = Tolerance(atol, rtol, structure.lowest_precision)
        request = Request(seed, fixed_shapes, fixed_values, tolerance)
        check = _Check(before, after, structure, specs, request, precise and atol is None and rtol is None)
        return check.verdict(started)


def _check_names(specs: Sequence[InputSpec], names: Sequence[str]) -> None:
    known = [spec.name for spec in specs]
    for name in names:
        if name not in known:
            raise UsageError(f"the model has no input {name!r}; its inputs are {', '.join(known) or 'none'}")


@dataclass(frozen=True)
class _Compared:
    """One output over all runs; ``run`` is the first run that differs."""

    report: OutputReport
    run: Run | None = None
    informative: bool = False


@dataclass(frozen=True)
class _Check:
    """One verification at work."""

    original: Source
    candidate: Source
    structure: Structure
    specs: Sequence[InputSpec]
    request: Request
    ask_oracle: bool

    def verdict(self, started: float) -> Verification:
        def conclude(
            status: Status, reason: str, outputs: tuple[OutputReport, ...] = (), divergent: str | None = None
        ) -> Verification:
            return Verification(status, outputs, divergent, reason, time.perf_counter() - started)

        difference = interface_difference(self.original.graph, self.candidate.graph)
        if difference is not None:
            return conclude("failed", difference)
        try:
            baseline = establish(self.original, self.structure, self.specs, self.request)
        except RunError as error:
            return conclude("unsupported", f"nothing was verified, the original does not run: {error}")
        try:
            results = self._run_candidate(baseline)
        except RunError as error:
            return conclude("failed", f"the candidate does not run: {error}")
        compared = _Comparison(self, baseline, results).outputs()
        reports = tuple(output.report for output in compared)
        broken = next((output for output in compared if output.run is not None), None)
        if broken is None:
            return conclude(*self._status(compared), reports)
        name, reason = self._explain(broken, baseline.on_reference)
        return conclude("failed", reason, reports, name)

    def _run_candidate(self, baseline: Baseline) -> list[Mapping[str, Value]]:
        backend = self._load_candidate(baseline.on_reference)
        results: list[Mapping[str, Value]] = []
        for run in baseline.runs:
            try:
                results.append(backend.run(run.feeds))
            except RunError as error:
                raise RunError(f"{run.title}: {error}" if run.title else str(error)) from error
        return results

    def _load_candidate(self, on_reference: bool) -> Backend:
        if not on_reference:
            return OnnxRuntime(self.candidate)
        try:
            return Reference(self.candidate)
        except RunError:
            return OnnxRuntime(self.candidate)

    def _status(self, compared: Sequence[_Compared]) -> tuple[Status, str]:
        """The status when nothing differs."""
        doubtful = [output.report for output in compared if not output.informative]
        remark = "; ".join(f"{report.name!r} {report.note}" for report in doubtful)
        dependent = [output for output in compared if output.report.name in self.structure.input_dependent]
        steady = [output for output in compared if output.report.passed and output not in dependent]
        if any(output.informative for output in dependent) or (steady and not dependent):
            return "passed", f"not verified as dependent: {remark}" if remark else ""
        return "not verifiable", remark or "the model has no outputs"

    def _explain(self, broken: _Compared, on_reference: bool) -> tuple[str, str]:
        """Name of the first divergent value, and the reason in one line."""
        assert broken.run is not None
        tolerance = self.request.tolerance
        found = first_divergence(
            self.original, self.candidate, self.structure, broken.run.feeds, tolerance, on_reference
        )
        place = f" {broken.run.title}" if broken.run.title else ""
        reason = f"output {broken.report.name!r} differs{place}: {broken.report.note}"
        if found is None:
            return broken.report.name, reason
        return found.name, f"{reason}; first divergent value {found}"


class _Comparison:
    """The outputs of both models side by side."""

    def __init__(self, check: _Check, baseline: Baseline, results: Sequence[Mapping[str, Value]]) -> None:
        self._check = check
        self._structure = check.structure
        self._tolerance = check.request.tolerance
        self._baseline = baseline
        self._results = results
        self._exact: dict[int, Mapping[str, Value]] = {}

    def outputs(self) -> list[_Compared]:
        """Every output of the original, in its order."""
        return [self._output(value.name) for value in self._structure.graph.output]

    def _output(self, name: str) -> _Compared:
        if name in self._structure.random:
            note = "depends on a random operator and was not compared"
            return _Compared(OutputReport(name, math.nan, math.nan, False, False, note))
        spread = self._baseline.spread(name)
        total, notes, broken = Difference(True), [], None
        for index, run in enumerate(self._baseline.runs):
            difference = compare(run.outputs[name], self._results[index][name], self._tolerance, spread)
            total = total.worst(difference)
            acquitted, note = (True, "") if difference.equal else self._appeal(name, index, difference, spread)
            notes.append(note)
            broken = broken or (None if acquitted else run)
        return self._conclude(name, total, broken, next(filter(None, notes), ""))

    def _conclude(self, name: str, total: Difference, broken: Run | None, note: str) -> _Compared:
        dependent = name in self._structure.input_dependent and self._baseline.reacts(name, self._tolerance)
        stuck = dependent and saturated(self._baseline, self._structure, name)
        if not note and stuck:
            note = "is saturated (nothing but extreme values)"
        elif not note and not dependent:
            note = self._why_steady(name)
        report = OutputReport(name, total.max_abs, total.max_rel, dependent, broken is None, note)
        return _Compared(report, broken, dependent and not stuck)

    def _why_steady(self, name: str) -> str:
        if name not in self._structure.input_dependent:
            return "does not depend on input values"
        return "did not change with the inputs"

    def _appeal(self, name: str, index: int, difference: Difference, spread: float | None) -> tuple[bool, str]:
        """Ask the float64 oracle about a difference beyond tolerance: (acquitted, note)."""
        plain = str(difference)
        expected, found = self._baseline.runs[index].outputs[name], self._results[index][name]
        if not self._check.ask_oracle or not may_acquit(expected, found, spread):
            return False, plain
        try:
            exact = self._exact_outputs(index)[name]
        except RunError as error:
            return False, f"{plain} (no float64 oracle: {error})"
        judgement = judge(exact, expected, found, spread)
        own, other = judgement.original_error, judgement.candidate_error
        return (
            judgement.acquitted,
            f"{plain}; against float64 the original errs by {own:.3g}, the candidate by {other:.3g}",
        )

    @cached_property
    def _oracle(self) -> Oracle:
        return Oracle(self._check.original)

    def _exact_outputs(self, index: int) -> Mapping[str, Value]:
        if index not in self._exact:
            self._exact[index] = self._oracle.run(self._baseline.runs[index].feeds)
        return self._exact[index]
