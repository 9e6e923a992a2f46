"""What a verification says: one report per output and a verdict for the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["passed", "failed", "not verifiable", "unsupported"]


@dataclass(frozen=True)
class OutputReport:
    """How one output of the two models compares, over every run.

    ``max_abs`` is the largest absolute difference, in the output's own unit. ``max_rel`` is the largest difference
    relative to the element, where elements below a thousandth of the largest one count as that thousandth.
    Either is infinite when the values cannot be subtracted (other shape, type or kind, NaN on one side only).
    ``depends_on_inputs`` is false when other inputs left the output as it was: its equality then proves little.
    ``passed`` is the verdict on the numbers alone. ``note`` says what the reader should know besides.
    """

    name: str
    max_abs: float
    max_rel: float
    depends_on_inputs: bool
    passed: bool
    note: str = ""


@dataclass(frozen=True)
class Verification:
    """The verdict on a candidate.

    ``passed``: every comparable output is equal within tolerance and at least one of them was seen to depend on the
    inputs (or cannot, because nothing in it depends on input values). ``failed``: some output differs, the interface
    differs, or the candidate does not run. ``not verifiable``: nothing differs, but no output could have shown a
    difference. ``unsupported``: the original itself cannot be run here.
    ``first_divergent`` names the earliest value, in topological order, that differs beyond tolerance.
    """

    status: Status
    outputs: tuple[OutputReport, ...]
    first_divergent: str | None
    reason: str
    seconds: float

    @property
    def summary(self) -> str:
        """One line for a terminal."""
        compared = [report for report in self.outputs if not math.isnan(report.max_abs)]
        figures = ""
        if compared:
            worst_abs = max(report.max_abs for report in compared)
            worst_rel = max(report.max_rel for report in compared)
            figures = f", {len(compared)} output(s), max abs {worst_abs:.3g}, max rel {worst_rel:.3g}"
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.status}{figures}, {self.seconds:.2f} s{reason}"

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain values that ``json.dumps`` accepts; figures that are not finite become text."""
        return {
            "status": self.status,
            "outputs": [_report_as_dict(report) for report in self.outputs],
            "first_divergent": self.first_divergent,
            "reason": self.reason,
            "seconds": round(self.seconds, 6),
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
    }


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
