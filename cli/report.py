"""What ``eqfuse optimize`` prints."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..api import Result
from . import render


def print_report(arguments: argparse.Namespace, result: Result) -> None:
    """The result as JSON, as tables, or not at all, as asked for."""
    if arguments.json:
        render.print_json(as_dict(result))
    elif not arguments.quiet:
        _print_tables(arguments.model, result, everything=arguments.verbose > 0)


def _print_tables(model: Path, result: Result, *, everything: bool) -> None:
    """What changed by figure and by operator, which rules matched, and how the search ended."""
    render.table(str(model), ("", "before", "after", "change"), list(render.summary_rows(result.before, result.after)))
    rows = render.operator_rows(result.before.operators, result.after.operators)
    shown = rows if everything else [r for r in rows if r[3] != "="]
    if shown:
        render.table("layers by operator", ("operator", "before", "after", "change"), list(shown))
    fired = [r for r in result.saturation.rules if r.matches and not r.name.startswith(("analysis.", "("))]
    top = fired if everything else fired[:10]
    if top:
        title = f"rules that matched ({len(top)} of {len(fired)})"
        rules = [(r.name, str(r.matches), render.seconds(r.seconds) if r.seconds else "< 1 ms") for r in top]
        render.table(title, ("rule", "matches", "time"), list(rules))
    for line in _closing(result):
        print(line)


def _closing(result: Result) -> list[str]:
    saturation, extraction = result.saturation, result.extraction
    gap = f"within {100 * extraction.gap:.2g} % of the optimum"
    proof = "proven optimal" if extraction.status == "optimal" else gap
    lines = [
        f"saturation: {saturation.stop_reason} after {saturation.iterations} iterations, "
        f"{result.classes} e-classes, {result.enodes} e-nodes",
        f"extraction: {proof}",
        f"verification: {result.verification.summary if result.verification else 'not asked for'}",
        "time: " + render.seconds(sum(result.phases.values())) + _slowest(result.phases),
    ]
    return [*lines, f"written: {result.path}"] if result.path else lines


def _slowest(phases: Mapping[str, float]) -> str:
    """The phases that took a tenth of the time or more, the longest first."""
    whole = sum(phases.values())
    long = sorted((item for item in phases.items() if item[1] >= whole / 10), key=lambda item: -item[1])
    return f" ({', '.join(f'{name} {render.seconds(taken)}' for name, taken in long)})" if long else ""


def as_dict(result: Result) -> dict[str, Any]:
    """The result as plain data."""
    saturation, extraction = result.saturation, result.extraction
    return {
        "output": str(result.path) if result.path else None,
        "before": result.before.as_dict(),
        "after": result.after.as_dict(),
        "saturation": {
            "stop_reason": saturation.stop_reason,
            "iterations": saturation.iterations,
            "growth": list(saturation.growth),
            "classes": result.classes,
            "enodes": result.enodes,
            "rules": [asdict(r) for r in saturation.rules if r.matches],
        },
        "extraction": {
            "status": extraction.status,
            "cost": extraction.cost,
            "lower_bound": extraction.lower_bound,
            "gap": extraction.gap,
        },
        "verification": result.verification.as_dict() if result.verification else None,
        "seconds": dict(result.phases),
        "budget_hit": result.budget_hit,
    }
