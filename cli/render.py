"""Tables and figures for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from ..engine.summary import GraphSummary

_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def figure(value: float, unit: str = "") -> str:
    """A number with three or four digits and a decimal prefix: 1.23 GFLOP."""
    for scale, prefix in _SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.4g} {prefix}{unit}".rstrip()
    return f"{value:.4g} {unit}".rstrip()


def seconds(value: float) -> str:
    """A duration."""
    if value < 1e-3:
        return f"{value * 1e6:.4g} us"
    return f"{value * 1e3:.4g} ms" if value < 1 else f"{value:.3g} s"


def predicted(summary: GraphSummary) -> str:
    """The predicted cost in its unit."""
    return seconds(summary.predicted) if summary.unit == "s" else figure(summary.predicted, summary.unit)


def change(before: float, after: float) -> str:
    """A relative change."""
    if before == after:
        return "="
    return f"{100 * (after - before) / before:+.1f} %" if before else "new"


def summary_rows(before: GraphSummary, after: GraphSummary) -> list[tuple[str, str, str, str]]:
    """Name, before, after and change of each figure."""
    rows = [
        ("nodes", str(before.nodes), str(after.nodes), change(before.nodes, after.nodes)),
        ("layers", str(before.layers), str(after.layers), change(before.layers, after.layers)),
        ("FLOPs", figure(before.flops), figure(after.flops), change(before.flops, after.flops)),
        (
            "intermediate bytes",
            figure(before.intermediate_bytes, "B"),
            figure(after.intermediate_bytes, "B"),
            change(before.intermediate_bytes, after.intermediate_bytes),
        ),
        (
            "weight bytes",
            figure(before.weight_bytes, "B"),
            figure(after.weight_bytes, "B"),
            change(before.weight_bytes, after.weight_bytes),
        ),
        ("predicted", predicted(before), predicted(after), change(before.predicted, after.predicted)),
    ]
    return rows


def operator_rows(before: Mapping[str, int], after: Mapping[str, int]) -> list[tuple[str, str, str, str]]:
    """Counts by operator, those that changed first."""
    names = sorted({*before, *after}, key=lambda n: (before.get(n, 0) == after.get(n, 0), -before.get(n, 0), n))
    counts = [(n, before.get(n, 0), after.get(n, 0)) for n in names]
    return [(n, str(b), str(a), _delta(b, a)) for n, b, a in counts]


def _delta(before: int, after: int) -> str:
    return "=" if before == after else f"{after - before:+d}"


def table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], *, left: int = 1) -> None:
    """Print a table; the first `left` columns are aligned to the left, the others to the right."""
    from rich.console import Console
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        made.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 110, highlight=False).print(made)


def print_json(content: Any) -> None:
    """Print plain data."""
    print(json.dumps(content, indent=2, default=str))
