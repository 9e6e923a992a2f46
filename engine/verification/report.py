"""The result of a verification: one report per output and a verdict for the model."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any, Literal

from ...support.units import percentage, ulps
from ..onnx.provenance import Provenance
from .effect import Effect, Errors, StepCount

Status = Literal["passed", "failed", "not verifiable", "unverified"]


@dataclass(frozen=True)
class OutputReport:
    """How one output of the two models compares, over every run.

    ``max_abs`` is the largest absolute difference, in the output's own unit. ``max_rel`` is the largest difference
    relative to the element; elements below a thousandth of the largest one count as that thousandth.
    Either is infinite if the values cannot be subtracted (other shape, type or kind, NaN on one side only).
    ``depends_on_inputs`` is false if other inputs did not change the output: its equality then proves little.
    ``passed`` is the verdict on the numbers alone. ``note`` is a remark for the reader.
    ``effect`` says how the numbers changed, whether or not that is within tolerance. ``steps`` counts the steps of an
    output that was quantised, None for others.
    """

    name: str
    max_abs: float
    max_rel: float
    depends_on_inputs: bool
    passed: bool
    note: str = ""
    effect: Effect = field(default_factory=Effect)
    steps: StepCount | None = None


@dataclass(frozen=True, repr=False)
class Verification:
    """The verdict on a candidate.

    ``passed``: every comparable output is equal within tolerance and at least one of them was seen to depend on the
    inputs (or cannot, because nothing in it depends on input values). ``failed``: some output differs, the interface
    differs, or the candidate does not run. ``not verifiable``: nothing differs, but no output could have shown a
    difference. ``unverified``: the original itself does not run here, so nothing was compared.
    ``first_divergent`` names the earliest value, in topological order, that differs beyond tolerance.
    ``provenance`` is that of a candidate that eqfuse wrote. ``unmeasured`` says why a float64 run failed, if one did.
    ``one_sided`` has a line for each operator that chooses (Where, If, Clip, Relu, ...) and took only one branch.
    """

    status: Status
    outputs: tuple[OutputReport, ...]
    first_divergent: str | None
    reason: str
    seconds: float
    provenance: Provenance | None = None
    unmeasured: str = ""
    one_sided: tuple[str, ...] = ()

    @property
    def effect_lines(self) -> list[str]:
        """How the rewriting changed the numbers, as lines for a terminal."""
        lines = {"numeric effect": self.numeric_effect, "accuracy": self.accuracy}
        return [f"{name}: {text}" for name, text in lines.items() if text]

    def __repr__(self) -> str:
        """One line, however many outputs there are."""
        return f"<Verification: {self.summary}>"

    @property
    def summary(self) -> str:
        """One line for a terminal."""
        compared = [report for report in self.outputs if not math.isnan(report.max_abs)]
        figures = f", {len(compared)} output(s)" if compared else ""
        if counts := [report.steps for report in compared if report.steps is not None]:
            figures += f", {reduce(StepCount.plus, counts)}"
        if others := [report for report in compared if report.steps is None]:
            worst_abs, worst_rel = (max(getattr(report, name) for report in others) for name in ("max_abs", "max_rel"))
            figures += f", differences up to {worst_abs:.3g} (relative: {worst_rel:.3g})"
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.status}{figures}, {self.seconds:.2f} s{reason}"

    @property
    def numeric_effect(self) -> str:
        """One line for a terminal about the bits of all outputs together; empty without elements."""
        total = self._effect
        if total.share is None:
            return ""
        distance = "" if not total.max_ulp else f", others up to {ulps(total.max_ulp)} ulp apart"
        return f"{percentage(total.share)} of elements bit-identical{distance}"

    @property
    def accuracy(self) -> str:
        """One line for a terminal: the largest errors of all outputs together; empty if they were not measured."""
        own, other = self._effect.original_error, self._effect.result_error
        if own is None or other is None:
            return ""
        return f"errors up to {other.largest:.3g} against a float64 run (original: {own.largest:.3g})"

    @property
    def coverage(self) -> str:
        """One line for a terminal: the operators with uncovered branches; empty if every branch was covered."""
        if len(self.one_sided) < 2:
            return "".join(self.one_sided)
        first, _, _ = self.one_sided[0].partition(": ")
        return f"{first} and {len(self.one_sided) - 1} more operators"

    @property
    def _effect(self) -> Effect:
        total = Effect()
        for report in self.outputs:
            total = total.plus(report.effect)
        return total

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain values that ``json.dumps`` accepts; figures that are not finite become text."""
        return {
            "status": self.status,
            "outputs": [_report_as_dict(report) for report in self.outputs],
            "first_divergent": self.first_divergent,
            "reason": self.reason,
            "seconds": round(self.seconds, 6),
            "precision": self.provenance.precision if self.provenance else None,
            "rules": self.provenance.rules if self.provenance else None,
            "unmeasured": self.unmeasured,
            "one_sided": list(self.one_sided),
            "numeric_effect": self.numeric_effect,
            "accuracy": self.accuracy,
            "summary": self.summary,
        }


def _report_as_dict(report: OutputReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "max_abs": _json_number(report.max_abs),
        "max_rel": _json_number(report.max_rel),
        "depends_on_inputs": report.depends_on_inputs,
        "passed": report.passed,
        "note": report.note,
        "elements": report.effect.elements,
        "bit_identical": report.effect.share,
        "steps": None if report.steps is None else asdict(report.steps),
        "max_ulp": None if report.effect.max_ulp is None else _json_number(report.effect.max_ulp),
        "float64_error": {
            "original": _errors_as_dict(report.effect.original_error),
            "result": _errors_as_dict(report.effect.result_error),
        },
    }


def _errors_as_dict(errors: Errors | None) -> dict[str, float | str] | None:
    return {"max": _json_number(errors.largest), "rms": _json_number(errors.rms)} if errors else None


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
