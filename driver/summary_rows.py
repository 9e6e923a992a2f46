"""Figures of two graphs side by side, as text for people: the page and the commands show the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..support import units

if TYPE_CHECKING:
    from ..engine.summary import GraphSummary


def predicted_cost(summary: GraphSummary) -> str:
    """The predicted cost in its unit: ``1.2 ms``."""
    return units.seconds(summary.predicted) if summary.unit == "s" else units.figure(summary.predicted, summary.unit)


def cost_name(summary: GraphSummary) -> str:
    """The name of the cost that the model predicts."""
    return "predicted latency" if summary.unit == "s" else "predicted cost"


def summary_rows(before: GraphSummary, after: GraphSummary) -> list[tuple[str, str, str, str]]:
    """Name, before, after and change of each figure."""
    rows = [
        (name, str(old), str(new), units.change(old, new))
        for name, old, new in (("nodes", before.nodes, after.nodes), ("layers", before.layers, after.layers))
    ]
    for name, unit in (("FLOPs", ""), ("intermediate bytes", "B"), ("weight bytes", "B")):
        old, new = (getattr(summary, name.lower().replace(" ", "_")) for summary in (before, after))
        rows.append((name, units.figure(old, unit), units.figure(new, unit), units.change(old, new)))
    costs = units.change(before.predicted, after.predicted)
    return [*rows, (cost_name(before), predicted_cost(before), predicted_cost(after), costs)]


def operator_rows(before: Mapping[str, int], after: Mapping[str, int]) -> list[tuple[str, str, str, str]]:
    """Counts by operator, those that changed first."""
    names = sorted({*before, *after}, key=lambda n: (before.get(n, 0) == after.get(n, 0), -before.get(n, 0), n))
    counts = [(n, before.get(n, 0), after.get(n, 0)) for n in names]
    return [(n, str(b), str(a), "=" if a == b else f"{a - b:+d}") for n, b, a in counts]
