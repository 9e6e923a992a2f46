"""The outputs of both models side by side: one report per output over all runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .baseline import Baseline, saturated
from .compare import EQUAL, Difference, Tolerance, compare
from .divergence import Judge
from .effect import Effect, effect, errors
from .oracle import Judgement, Oracle, judge, may_acquit
from .report import OutputReport, units
from .source import Source
from .structure import Structure
from .values import RunError, Value, leaves

_NARROW_FLOATS = frozenset({"float32", "float16", "bfloat16"})


@dataclass(frozen=True)
class ComparedOutput:
    """One output over all runs. ``informative``: its equality says something (it reacts and is not saturated).

    ``broken_run`` is the index of the first run in which it differs; ``convicted`` when only the oracle says so.
    """

    report: OutputReport
    informative: bool = False
    broken_run: int | None = None
    convicted: bool = False


@dataclass(frozen=True)
class _Ruling:
    """What became of one output in one run."""

    passed: bool
    note: str = ""
    convicted: bool = False


_PASSED = _Ruling(True)


@dataclass(frozen=True)
class Demands:
    """``oracle``: it decides where the tolerance leaves room. ``bits``: nothing less than identity passes.

    ``errors``: what differs is also measured against float64, however small the difference, in one run at least.
    """

    oracle: bool
    bits: bool = False
    errors: bool = False


class Comparison:
    """Compares the results of a candidate with the runs of the original."""

    def __init__(
        self,
        original: Source,
        structure: Structure,
        tolerance: Tolerance,
        baseline: Baseline,
        results: Sequence[Mapping[str, Value]],
        demands: Demands,
    ) -> None:
        """``results`` are the candidate's outputs, one for each run of the ``baseline``."""
        self.baseline = baseline
        self.unmeasured = ""
        self._original = original
        self._structure = structure
        self._tolerance = tolerance
        self._results = results
        self.demands = demands
        self._oracle: Oracle | None = None
        self._exact: dict[int, Mapping[str, Value]] = {}

    def outputs(self) -> list[ComparedOutput]:
        """Every output of the original, in its order."""
        return [self._output(value.name) for value in self._structure.graph.output]

    def beyond_rounding(self, index: int, names: Sequence[str]) -> Judge:
        """The judge of intermediate values in a run whose output the oracle convicted. Raises RunError."""
        exact = self._loaded_oracle().run(self.baseline.runs[index].feeds, names)

        def judge_by_oracle(name: str, expected: Value, found: Value) -> Difference | None:
            difference = compare(expected, found, self._tolerance)
            if difference.negligible or name not in exact:
                return None
            return difference if judge(exact[name], expected, found, None).convicted else None

        return judge_by_oracle

    def _output(self, name: str) -> ComparedOutput:
        if name in self._structure.random:
            note = "depends on a random operator and was not compared"
            return ComparedOutput(OutputReport(name, math.nan, math.nan, False, False, note))
        spread = self.baseline.spread(name)
        total, rulings, whole = EQUAL, [], Effect()
        for index, run in enumerate(self.baseline.runs):
            difference = compare(run.outputs[name], self._results[index][name], self._tolerance, spread)
            total = total.worst(difference)
            changed = effect(run.outputs[name], self._results[index][name])
            rulings.append(self._rule(name, index, difference, changed, spread))
            whole = whole.plus(self._measured(name, index, changed))
        return self._conclude(name, total, whole, rulings)

    def _measured(self, name: str, index: int, changed: Effect) -> Effect:
        """The same with the errors of both against float64, where that was run; to measure, one such run must do."""
        expected, found = self.baseline.runs[index].outputs[name], self._results[index][name]
        wanted = index in self._exact or (self.demands.errors and not self._exact and not self.unmeasured)
        if changed.is_identical or not wanted or not _is_narrow(expected):
            return changed
        try:
            exact = self._exact_outputs(index)[name]
        except RunError as error:
            self.unmeasured = str(error)
            return changed
        return replace(changed, original_error=errors(exact, expected), result_error=errors(exact, found))

    def _conclude(self, name: str, total: Difference, whole: Effect, rulings: Sequence[_Ruling]) -> ComparedOutput:
        broken = next((index for index, ruling in enumerate(rulings) if not ruling.passed), None)
        decisive = rulings[broken] if broken is not None else next((r for r in rulings if r.note), _PASSED)
        reacts = name in self._structure.input_dependent and self.baseline.reacts(name, self._tolerance)
        informative = reacts and not saturated(self.baseline, self._structure, name)
        note = decisive.note or ("" if informative else self._why_uninformative(name, reacts))
        report = OutputReport(name, total.max_abs, total.max_rel, reacts, broken is None, note, whole)
        return ComparedOutput(report, informative, broken, decisive.convicted)

    def _why_uninformative(self, name: str, reacts: bool) -> str:
        if reacts:
            return "is saturated (nothing but extreme values)"
        if name in self._structure.input_dependent:
            return "did not change with the inputs"
        return "does not depend on input values"

    def _rule(self, name: str, index: int, difference: Difference, changed: Effect, spread: float | None) -> _Ruling:
        """Bits where they are demanded; else tolerance, and the oracle where a difference is worth the question."""
        if self.demands.bits:
            return _PASSED if changed.is_identical else _Ruling(False, _other_bits(difference, changed))
        expected, found = self.baseline.runs[index].outputs[name], self._results[index][name]
        by_tolerance = _PASSED if difference.equal else _Ruling(False, str(difference))
        if difference.negligible or not self.demands.oracle:
            return by_tolerance
        hopeless = not difference.equal and not may_acquit(expected, found, spread)
        if hopeless or (difference.equal and not _is_narrow(expected)):
            return by_tolerance
        try:
            judgement = judge(self._exact_outputs(index)[name], expected, found, spread)
        except RunError as error:
            return by_tolerance if difference.equal else _Ruling(False, f"{difference} (no float64 oracle: {error})")
        return _overruled(difference, judgement)

    def _loaded_oracle(self) -> Oracle:
        if self._oracle is None:
            self._oracle = Oracle(self._original)
        return self._oracle

    def _exact_outputs(self, index: int) -> Mapping[str, Value]:
        if index not in self._exact:
            self._exact[index] = self._loaded_oracle().run(self.baseline.runs[index].feeds)
        return self._exact[index]


def _other_bits(difference: Difference, changed: Effect) -> str:
    wrong = changed.elements - changed.identical
    unit = "" if changed.max_ulp is None else f", max {units(changed.max_ulp)} ulp"
    share = f"{wrong} of {changed.elements} elements"
    return f"made with --precision exact, but {share} differ in their bits: {difference}{unit}"


def _overruled(difference: Difference, judgement: Judgement) -> _Ruling:
    own, other = judgement.original_error, judgement.candidate_error
    note = f"{difference}; against float64 the original errs by {own:.3g}, the candidate by {other:.3g}"
    if difference.equal:
        return _Ruling(False, f"{note}: more than rounding", convicted=True) if judgement.convicted else _PASSED
    return _Ruling(judgement.acquitted, note)


def _is_narrow(value: Value) -> bool:
    return any(leaf.dtype.name in _NARROW_FLOATS for leaf in leaves(value))
