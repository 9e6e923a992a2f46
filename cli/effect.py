"""What ``eqfuse verify`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import render
from .terminal import write

if TYPE_CHECKING:
    from ..engine.verification import OutputReport, Verification

_BITS = ("identical", "max ulp")
_ERRORS = ("max abs", "max rel", "original error", "result error")
_COLUMNS = ("output", "equal", "depends on inputs", *_BITS, *_ERRORS)


def print_verification(title: str, verification: Verification) -> None:
    """A row for each output, how the second model was made, what became of the numbers, and the verdict."""
    render.table(title, _COLUMNS, [_row(report) for report in verification.outputs])
    if verification.made:
        write(verification.made)
    if verification.numeric_effect:
        write(f"numeric effect: {verification.numeric_effect}")
    if verification.accuracy:
        write(f"accuracy: {verification.accuracy}")
    if verification.unmeasured:
        write(f"accuracy: not measured, no float64 run: {verification.unmeasured}")
    for line in verification.one_sided:
        write(f"seen from one side only: {line}")
    write(verification.summary)


def _row(report: OutputReport) -> tuple[str, ...]:
    from ..engine.verification.report import percentage, units

    effect = report.effect
    return (
        report.name,
        "yes" if report.passed else "NO",
        "yes" if report.depends_on_inputs else "no",
        "-" if effect.share is None else percentage(effect.share),
        "-" if effect.max_ulp is None else units(effect.max_ulp),
        f"{report.max_abs:.3g}",
        f"{report.max_rel:.3g}",
        f"{effect.original_error.largest:.3g}" if effect.original_error else "-",
        f"{effect.result_error.largest:.3g}" if effect.result_error else "-",
    )
