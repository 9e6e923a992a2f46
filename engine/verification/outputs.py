"""The outputs of both models side by side: one report per output over all runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...support.units import ulps
from .baseline import Baseline, is_saturated
from .divergence import Judge
from .effect import Effect, StepCount, count_steps, identical_elements, measure_effect, measure_errors
from .judges.oracle import Judgement, Oracle, judge, may_acquit
from .judges.quantization import DitheredModel, Steps, find_quantizers, measure_distance
from .judges.rounding import Extent, RoundedValues
from .judges.sensitivity import Sensitivity, distances_of, has_shapes_of, silence_of
from .report import OutputReport, Status
from .runs.compare import EQUAL, Difference, Tolerance, compare, distances, to_double
from .runs.run import OnnxRuntime
from .runs.source import Source
from .runs.structure import Structure
from .runs.values import RunError, Value, layout, leaves

_NARROW_FLOATS = frozenset({"float32", "float16", "bfloat16"})


@dataclass(frozen=True)
class ComparedOutput:
    """One output over all runs.

    ``is_informative``: the output reacts to the inputs and is not saturated, or it has no elements, so that only its
    shape can be compared. ``broken_run`` is the index of the first run in which it differs; ``convicted`` if
    only the oracle says so.
    """

    report: OutputReport
    is_informative: bool = False
    broken_run: int | None = None
    convicted: bool = False


@dataclass(frozen=True)
class _Ruling:
    """The verdict on one output in one run. ``is_silent``: rounding moves most of it by more than the tolerance."""

    passed: bool
    note: str = ""
    convicted: bool = False
    is_silent: bool = False


_PASSED = _Ruling(True)


@dataclass(frozen=True)
class Demands:
    """The strictness of a comparison. ``oracle``: float64 runs judge doubtful differences. ``bits``: only
    identical bits pass.

    ``errors``: differences of any size are also measured against float64, in at least one run.
    ``is_fast``: made with the precision "fast". On stress inputs the candidate may give NaN or an infinity although the
    original does not, and numbers may be left as they are where the original rounds them to steps.
    """

    oracle: bool
    bits: bool = False
    errors: bool = False
    is_fast: bool = False


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
        candidate: Source | None = None,
        rewritten: Source | None = None,
    ) -> None:
        """``results``: the outputs of the ``candidate`` (None: compiled code) in each run of the ``baseline``.

        ``rewritten`` is the model that compiled code was made from.
        """
        self.baseline = baseline
        self.unmeasured = ""
        self._original = original
        self._structure = structure
        self._tolerance = tolerance
        self._results = results
        self.demands = demands
        self._candidate = candidate
        self._rewritten = rewritten
        self._runtime: OnnxRuntime | None = None
        self._oracles: dict[Path, Oracle] = {}
        self._exact: dict[int, Mapping[str, Value]] = {}
        self._own: dict[int, Mapping[str, Value]] = {}
        self._sensitivities: dict[tuple[int, Extent], Sensitivity] = {}
        self._own_sensitivities: dict[int, Sensitivity] = {}
        self._dithered: DitheredModel | None = None
        self._steps: dict[int, Mapping[str, Steps]] = {}
        self._is_quantized = bool(find_quantizers(structure))

    def outputs(self) -> list[ComparedOutput]:
        """Every output of the original, in its order."""
        return [self._output(value.name) for value in self._structure.graph.output]

    def beyond_rounding(self, index: int, names: Sequence[str]) -> Judge:
        """The judge of intermediate values in a run whose output the oracle convicted. Raises RunError."""
        exact = self._oracle(self._original).run(self.baseline.runs[index].feeds, names)

        def judge_by_oracle(name: str, expected: Value, actual: Value) -> Difference | None:
            difference = compare(expected, actual, self._tolerance)
            if difference.negligible or name not in exact:
                return None
            return difference if judge(exact[name], expected, actual, None).convicted else None

        return judge_by_oracle

    def _output(self, name: str) -> ComparedOutput:
        if name in self._structure.random:
            note = "depends on a random operator and was not compared"
            return ComparedOutput(OutputReport(name, math.nan, math.nan, False, False, note))
        node = self._structure.origin(name)
        saturated = (
            node is not None and node.op_type == "Sigmoid" and is_saturated(self.baseline, self._structure, name)
        )
        total, rulings, whole, steps = EQUAL, [], Effect(), list[StepCount | None]()
        for index, run in enumerate(self.baseline.runs):
            near = None if run.is_stress else self.baseline.spread(name, index)
            expected, actual = run.outputs[name], self._results[index][name]
            difference = compare(
                expected, actual, self._tolerance, near,
                is_saturated=saturated and not run.is_stress, may_lack_shape=name in self._structure.collected,
            )  # fmt: skip
            changed = measure_effect(expected, actual)
            rulings.append(self._rule(name, index, difference, changed, near))
            is_news = not rulings[-1].passed and all(ruling.passed for ruling in rulings[:-1])
            if not run.is_stress or is_news:  # figures are of ordinary inputs, unless only stress inputs differ
                total = total.worst(difference)
                whole = whole.plus(self._add_errors(name, index, changed))
                steps.append(count_steps(self._structure, name, expected, actual) if self._is_quantized else None)
        counted = [each for each in steps if each is not None]
        count = reduce(StepCount.plus, counted) if counted and len(counted) == len(steps) else None
        concluded = self._conclude(name, total, whole, rulings)
        return replace(concluded, report=replace(concluded.report, steps=count))

    def _add_errors(self, name: str, index: int, changed: Effect) -> Effect:
        """The effect with the errors against float64 if that ran; if errors are demanded, it runs once."""
        expected, actual = self.baseline.runs[index].outputs[name], self._results[index][name]
        wanted = index in self._exact or (self.demands.errors and not self._exact and not self.unmeasured)
        if changed.is_identical or not wanted or not _is_narrow(expected):
            return changed
        try:
            exact = self._truth(name, index)
        except RunError as error:
            self.unmeasured = str(error)
            return changed
        own, other = measure_errors(exact, expected), measure_errors(exact, actual)
        return replace(changed, original_error=own, result_error=other)

    def _conclude(self, name: str, total: Difference, whole: Effect, rulings: Sequence[_Ruling]) -> ComparedOutput:
        broken = next((index for index, ruling in enumerate(rulings) if not ruling.passed), None)
        decisive = rulings[broken] if broken is not None else next((r for r in rulings if r.note), _PASSED)
        reacts = name in self._structure.input_dependent and self.baseline.reacts(name, self._tolerance)
        ordinary = [ruling for ruling, run in zip(rulings, self.baseline.runs, strict=True) if not run.is_stress]
        is_silent = all(ruling.is_silent for ruling in ordinary)
        is_empty = not any(leaf.size for run in self.baseline.runs for leaf in leaves(run.outputs[name]))
        has_only_extremes = is_saturated(self.baseline, self._structure, name)
        is_informative = is_empty or (reacts and not has_only_extremes and not is_silent)
        note = decisive.note
        if not note and not is_informative:
            if is_silent:
                note = "is moved by rounding alone as far as by a fault"
            elif reacts:
                note = "is saturated (nothing but extreme values)"
            elif name in self._structure.input_dependent:
                note = "did not change with the inputs"
            else:
                note = "does not depend on input values"
        if broken is not None:
            place = f"on inputs {broken + 1} of {len(rulings)}, the first that differ" if len(rulings) > 1 else ""
            title = self.baseline.runs[broken].title or place
            note += f", {title}" if title else ""
        report = OutputReport(name, total.max_abs, total.max_rel, reacts, broken is None, note, whole)
        return ComparedOutput(report, is_informative, broken, decisive.convicted)

    def _rule(self, name: str, index: int, difference: Difference, changed: Effect, spread: float | None) -> _Ruling:
        """The verdict by bits if they are demanded, else by tolerance, and by the oracle for doubtful differences."""
        if self.demands.bits:
            is_same = changed.is_identical or self._is_open(name, index)
            return _PASSED if is_same else _Ruling(False, _describe_bits(difference, changed))
        run = self.baseline.runs[index]
        expected, actual = run.outputs[name], self._results[index][name]
        by_tolerance = _PASSED if difference.equal else _Ruling(False, str(difference))
        if difference.negligible or not self.demands.oracle:
            return by_tolerance
        steps = self._steps_of(index).get(name) if self._is_quantized else None
        if steps is not None and (steps.allow(expected, actual) or not run.is_stress):
            is_right = difference.equal or steps.allow(expected, actual)
            return _PASSED if is_right else _Ruling(False, f"{difference}; {steps}")
        if run.is_stress:
            runs = partial(self._truth, name, index), partial(self._candidate_truth, name, index)
            moves = partial(self._sensitivity, index, Extent.ALL)
            if self._candidate is not None:
                moves = partial(self._own_sensitivity, index)
            truths = Truths(*runs, moves, name, self._structure.chooses, self._noise(name))
            is_fast = self.demands.is_fast
            wrong = judge_stress(expected, actual, self._tolerance, truths, may_overflow=is_fast)
            if wrong is not None and self._candidate is None and self._is_rounding(name, index, None):
                wrong = None
            return _PASSED if wrong is None else _Ruling(False, str(wrong))
        may_be_right = may_acquit(expected, actual, spread) or self._structure.casts_to_uint32
        if not difference.equal and not may_be_right:
            return _Ruling(True, is_silent=True) if self._says_nothing(name, index, spread) else by_tolerance
        if difference.equal and not _is_narrow(expected):
            return by_tolerance
        try:
            judgement = judge(self._truth(name, index), expected, actual, spread)
        except RunError as error:
            return by_tolerance if difference.equal else _Ruling(False, f"{difference} (no float64 run: {error})")
        if not difference.equal and judgement.no_farther and self._agrees(name, index, judgement):
            judgement = replace(judgement, acquitted=True)
        doubtful = judgement.convicted or not (difference.equal or judgement.acquitted)
        if doubtful and self._is_rounding(name, index, spread):
            judgement = replace(judgement, convicted=False, acquitted=True)
            return replace(_apply_judgement(difference, judgement), is_silent=self._is_silent(name, index, spread))
        return _apply_judgement(difference, judgement)

    def _says_nothing(self, name: str, index: int, spread: float | None) -> bool:
        """Whether other inputs move an output hardly farther than the original's own rounding does, so that it tells no
        fault from rounding; what differs by more than the tolerance that does not look at these moves is a fault."""
        expected, actual = self.baseline.runs[index].outputs[name], self._results[index][name]
        if spread is None or not compare(expected, actual, self._tolerance).equal:
            return False
        try:
            errors = measure_errors(self._truth(name, index), expected)
        except RunError:
            return False
        return errors is not None and errors.rms > spread / 2

    def _noise(self, name: str) -> float:
        """A few units in the last place of the largest element of an output on ordinary inputs."""
        ordinary = (run.outputs[name] for run in self.baseline.runs if not run.is_stress)
        return max((self._tolerance.noise(leaf) for value in ordinary for leaf in leaves(value)), default=0.0)

    def _agrees(self, name: str, index: int, judgement: Judgement) -> bool:
        """Whether the candidate in float64 is as near to the oracle as the original is in its own type.

        Compiled code cannot be widened: there the original must be nearer than half of how far outputs move.
        """
        if self._candidate is None:
            spread = self.baseline.spread(name, index)
            return spread is not None and judgement.original_error <= spread / 2
        try:
            own = measure_errors(self._truth(name, index), self._own_truth(name, index))
        except RunError:
            return False
        return own is not None and own.rms <= judgement.original_error

    def _is_rounding(self, name: str, index: int, spread: float | None) -> bool:
        """Whether rounding explains how far an output is from the original's float64 run.

        A model in float64, the candidate or the one that compiled code was made from, may differ from the original by
        the effect of rounding stored numbers. In its own type the candidate may differ by the effect of rounding all
        numbers, element by element or over the whole output; compiled code also if it is no farther than the original,
        or not much farther than the model that it was made from is in ONNX Runtime, which approximates some functions.
        """
        run = self.baseline.runs[index]
        expected, actual = run.outputs[name], self._results[index][name]
        try:
            truth = self._truth(name, index)
        except RunError:
            return False
        if self._candidate is None:
            own_errors, errors = measure_errors(truth, expected), measure_errors(truth, actual)
            if own_errors is not None and errors is not None and own_errors.worst(errors) == own_errors:
                return True
        if not self._agrees_in_float64(name, index, spread):
            return False
        sensitivity = self._sensitivity(index, Extent.ALL)
        if not has_shapes_of(truth, expected) or not has_shapes_of(truth, actual):
            return sensitivity.explains_layout(name)
        if self._explains(sensitivity, name, index, actual, spread):
            return True
        if self._candidate is not None:
            return False
        whole = self._sensitivity(index, Extent.INPUTS)
        return whole.explains_overall(name, expected, actual) or self._is_near_rewritten(name, index)

    def _is_open(self, name: str, index: int) -> bool:
        """Whether bits differ only in elements for which the original gives a value that ONNX leaves open."""
        if not self._structure.casts_to_uint32:
            return False
        expected, actual = self.baseline.runs[index].outputs[name], self._results[index][name]
        pairs = list(zip(leaves(expected), leaves(actual), strict=True)) if layout(expected) == layout(actual) else []
        try:
            if not pairs or not has_shapes_of(self._truth(name, index), expected):
                return False
            far = [np.where(identical_elements(*pair), 0.0, np.inf) for pair in pairs]
            return self._sensitivity(index, Extent.OPEN).explains(name, far, [np.zeros(())] * len(far))
        except RunError:
            return False

    def _explains(self, sensitivity: Sensitivity, name: str, index: int, other: Value, spread: float | None) -> bool:
        """Whether rounding explains the distances of a value from the original's float64 run beyond a few units in the
        last place of the largest element. Elements at which the original itself is off by a large part of its range do
        not judge results that are rounded like it.
        """
        expected, far = self.baseline.runs[index].outputs[name], []
        silence = silence_of(expected, self._tolerance, spread, chooses=self._structure.chooses)
        values = (expected, self._truth(name, index), other)
        for one, truth, result, silent_at in zip(*map(leaves, values), silence, strict=True):
            distance = distances_of(truth, result)
            says = sensitivity.extent is not Extent.ALL or distances_of(truth, one) <= silent_at
            far.append(np.where((distance > self._tolerance.noise(one)) & says, distance, 0.0))
        return sensitivity.explains(name, far, silence)

    def _agrees_in_float64(self, name: str, index: int, spread: float | None) -> bool:
        """Whether the candidate's model in float64 differs from the original by no more than its stored numbers do."""
        try:
            own = self._own_truth(name, index)
        except RunError:
            return True  # its own results decide
        expected, truth = self.baseline.runs[index].outputs[name], self._truth(name, index)
        if has_shapes_of(truth, own) and has_shapes_of(truth, expected):
            return self._explains(self._own_sensitivity(index), name, index, own, spread)
        return has_shapes_of(truth, own) or self._own_sensitivity(index).explains_layout(name)

    def _is_near_rewritten(self, name: str, index: int) -> bool:
        """Whether compiled code is as near as ONNX Runtime is when it runs the model that was compiled."""
        if self._rewritten is None:
            return False
        run = self.baseline.runs[index]
        try:
            self._runtime = self._runtime or OnnxRuntime(self._rewritten)
            own = measure_distance(run.outputs[name], self._runtime.run(run.feeds)[name])
            self._own_truth(name, index)  # without it, this model may itself be wrong
        except RunError:
            return False
        effect = self._sensitivity(index, Extent.INPUTS).effect(name)
        return own is not None and own.worst(effect).allow(run.outputs[name], self._results[index][name])

    def _is_silent(self, name: str, index: int, spread: float | None) -> bool:
        """Whether rounding moves most elements of an output by a large part of its range."""
        expected, truth = self.baseline.runs[index].outputs[name], self._truth(name, index)
        if not has_shapes_of(expected, truth):
            return True
        silence = silence_of(expected, self._tolerance, spread)
        moved = self._sensitivity(index, Extent.ALL).silent(name, silence)
        values = zip(leaves(expected), leaves(truth), silence, moved, strict=True)
        silent = [each | (distances_of(exact, one) > limit) for one, exact, limit, each in values]
        return sum(map(np.count_nonzero, silent)) > sum(each.size for each in silent) / 2

    def _sensitivity(self, index: int, extent: Extent) -> Sensitivity:
        """How far rounding moves the original's float64 outputs in a run. Raises RunError."""
        if (index, extent) not in self._sensitivities:
            self._truth(self._structure.graph.output[0].name, index)
            oracle, values = self._oracle(self._original), RoundedValues.of(self._structure)
            draw = partial(oracle.run_rounded, self.baseline.runs[index].feeds, values, extent, self._tolerance.epsilon)
            self._sensitivities[index, extent] = Sensitivity(self._exact[index], draw, extent)
        return self._sensitivities[index, extent]

    def _own_sensitivity(self, index: int) -> Sensitivity:
        """How far rounding of its stored numbers moves the candidate's model in float64. Raises RunError."""
        if index not in self._own_sensitivities:
            model = self._model_of_candidate()
            self._own_truth(self._structure.graph.output[0].name, index)
            oracle, values = self._oracle(model), RoundedValues.of(Structure(model.structure))
            feeds, epsilon = self.baseline.runs[index].feeds, self._tolerance.epsilon
            draw = partial(oracle.run_rounded, feeds, values, Extent.CONSTANTS, epsilon)
            self._own_sensitivities[index] = Sensitivity(self._own[index], draw, Extent.CONSTANTS)
        return self._own_sensitivities[index]

    def _model_of_candidate(self) -> Source:
        """The candidate, or the model that it was compiled from. Raises RunError if none is known."""
        model = self._candidate or self._rewritten
        if model is None:
            raise RunError("the candidate is no ONNX model")
        return model

    def _steps_of(self, index: int) -> Mapping[str, Steps]:
        """The effect of quantisers' steps on the outputs of a run; {} if that cannot be measured."""
        if index not in self._steps:
            run = self.baseline.runs[index]
            try:
                self._dithered = self._dithered or DitheredModel(self._original, self._structure, self.demands.is_fast)
                self._steps[index] = self._dithered.steps(run.feeds, run.outputs, self._results[index])
            except RunError:
                self._steps[index] = {}
        return self._steps[index]

    def _oracle(self, source: Source) -> Oracle:
        if source.path not in self._oracles:
            self._oracles[source.path] = Oracle(source)
        return self._oracles[source.path]

    def _truth(self, name: str, index: int) -> Value:
        """An output of a float64 run of the original. Raises RunError."""
        if index not in self._exact:
            self._exact[index] = self._oracle(self._original).run(self.baseline.runs[index].feeds)
        return self._exact[index][name]

    def _candidate_truth(self, name: str, index: int) -> Value:
        """The same of the candidate. Raises RunError, always so for compiled code."""
        if self._candidate is None:
            raise RunError("the candidate is no ONNX model")
        return self._own_truth(name, index)

    def _own_truth(self, name: str, index: int) -> Value:
        """The same of the candidate, or of the model that it was compiled from. Raises RunError."""
        model = self._model_of_candidate()
        if index not in self._own:
            self._own[index] = self._oracle(model).run(self.baseline.runs[index].feeds)
        return self._own[index][name]


def status_of(compared: Sequence[ComparedOutput], structure: Structure) -> tuple[Status, str]:
    """The verdict on all outputs, and its reason or remarks."""
    broken = next((output for output in compared if output.broken_run is not None), None)
    if broken is not None:
        return "failed", f"output {broken.report.name!r} differs: {broken.report.note}"
    doubtful = [output.report for output in compared if not output.is_informative]
    remark = "; ".join(f"{report.name!r} {report.note}" for report in doubtful)
    acquitted = [output.report for output in compared if output.is_informative and output.report.note]
    acquitted.sort(key=lambda report: -report.max_abs)
    dependent = [output for output in compared if output.report.name in structure.input_dependent]
    steady = any(output.report.passed and output not in dependent for output in compared)
    if any(output.is_informative for output in dependent) or (steady and not dependent):
        notes = [f"no evidence: {remark}"] if remark else []
        return "passed", "; ".join([*notes, *(f"{report.name!r} {report.note}" for report in acquitted[:1])])
    return "not verifiable", remark or "the model has no outputs"


def _describe_bits(difference: Difference, changed: Effect) -> str:
    wrong = changed.elements - changed.identical
    unit = "" if changed.max_ulp is None else f", max {ulps(changed.max_ulp)} ulp"
    share = f"{wrong} of {changed.elements} elements"
    return f"made with --precision exact, but {share} differ in their bits: {difference}{unit}"


def _apply_judgement(difference: Difference, judgement: Judgement) -> _Ruling:
    own, other = judgement.original_error, judgement.candidate_error
    note = f"{difference}; against float64 the original errs by {own:.3g}, the candidate by {other:.3g}"
    if difference.equal:
        return _Ruling(False, f"{note}: more than rounding", convicted=True) if judgement.convicted else _PASSED
    return _Ruling(judgement.acquitted, note)


def _is_narrow(value: Value) -> bool:
    return any(leaf.dtype.name in _NARROW_FLOATS for leaf in leaves(value))


Array = NDArray[Any]
Truth = Callable[[], Value]
"""Gives the value of a float64 run. Raises RunError if there is none."""


@dataclass(frozen=True)
class Truths:
    """Float64 runs of the original and of the candidate, and how far rounding moves an output.

    `noise` is a distance that rounding explains by itself: where all finite numbers are 0, as log(1 + exp(x)) is for
    x below -40, their own size allows none.
    """

    original: Truth
    candidate: Truth
    sensitivity: Callable[[], Sensitivity]
    name: str
    chooses: bool = False
    noise: float = 0.0


def judge_stress(
    expected: Value, actual: Value, tolerance: Tolerance, truths: Truths, *, may_overflow: bool
) -> Difference | None:
    """The difference that makes a candidate wrong; None if it is right.

    Without a float64 run of the original only NaN and infinities in the place of finite numbers are wrong.
    """
    difference = compare(expected, actual, tolerance)
    if difference.equal:
        return None
    if layout(expected) != layout(actual):
        return difference if _is_shape_wrong(expected, actual, truths) else None
    wrong = _wrong(expected, actual, tolerance, truths.noise, may_overflow)
    if not any(map(np.any, wrong)):
        return None
    difference = _difference_at(wrong, expected, actual, tolerance)
    try:
        exact = truths.original()
    except RunError:
        strange = [bad & ~np.isfinite(to_double(leaf)) for bad, leaf in zip(wrong, leaves(actual), strict=True)]
        return difference if any(map(np.any, strange)) else None
    if not has_shapes_of(expected, exact):
        return None  # rounding decided about the shape of the original's result
    try:
        own = truths.candidate()
    except RunError:
        own = actual
    if not has_shapes_of(exact, own):
        return None if truths.sensitivity().explains_layout(truths.name) else difference
    far = []
    for bad, number, truth, other in zip(wrong, *map(leaves, (expected, exact, own)), strict=True):
        allowed = _allowance(number, tolerance, truths.noise)
        confirmed = _near(number, truth, allowed)
        far.append(np.where(bad & confirmed & ~_near(truth, other, allowed), distances_of(truth, other), 0.0))
    if not any(map(np.any, far)):
        return None
    silence = silence_of(expected, tolerance, None, chooses=truths.chooses)
    return None if truths.sensitivity().explains(truths.name, far, silence) else difference


def _is_shape_wrong(expected: Value, actual: Value, truths: Truths) -> bool:
    """Whether a result of another shape or type than the original's is wrong: rounding may decide how many elements a
    detector finds."""
    if [dtype for _, dtype in layout(expected)] != [dtype for _, dtype in layout(actual)]:
        return True
    try:
        is_confirmed = has_shapes_of(expected, truths.original())
        return is_confirmed and not truths.sensitivity().explains_layout(truths.name)
    except RunError:
        return True


def _wrong(expected: Value, actual: Value, tolerance: Tolerance, noise: float, may_overflow: bool) -> list[Array]:
    """Masks of the elements that are out of tolerance although the original is finite, one for each array."""
    wrong = []
    for number, other in zip(leaves(expected), leaves(actual), strict=True):
        if number.dtype.kind in "OUS":
            wrong.append(np.asarray(number != other))
            continue
        bad = np.isfinite(to_double(number)) & ~_near(number, other, _allowance(number, tolerance, noise))
        wrong.append(bad & np.isfinite(to_double(other)) if may_overflow else bad)
    return wrong


def _near(one: Array, other: Array, allowed: Array) -> Array:
    if one.dtype.kind in "OUS":
        return np.asarray(one == other)
    return np.asarray(distances(to_double(one), to_double(other)) <= allowed)


def _difference_at(places: Sequence[Array], expected: Value, actual: Value, tolerance: Tolerance) -> Difference:
    """The difference at some places of each array alone, which a message about them gives."""
    pairs = zip(places, leaves(expected), leaves(actual), strict=True)
    kept = [compare(one, np.where(here, other, one).astype(one.dtype), tolerance) for here, one, other in pairs]
    return reduce(Difference.worst, kept, EQUAL)


def _allowance(number: Array, tolerance: Tolerance, noise: float) -> Array:
    """The largest difference per element; 0 for types other than floats."""
    limit = tolerance.limit(number, None)
    return np.maximum(limit, noise) if number.dtype.name in _NARROW_FLOATS else limit
