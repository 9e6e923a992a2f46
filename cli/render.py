"""Tables and figures for people."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..support.text import printable
from .terminal import write

if TYPE_CHECKING:
    from ..engine.egraph.graph import Selection
    from ..engine.summary import GraphSummary
    from ..engine.verification import Verification
    from ..extract.joint import JointPrices
    from ..lowering.running.turns import Estimate

_UNLIMITED = 10_000
"""Columns where the output is no terminal: a row stays on one line."""
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


def predicted_cost(summary: GraphSummary) -> str:
    """The predicted cost in its unit: ``1.2 ms``."""
    return seconds(summary.predicted) if summary.unit == "s" else figure(summary.predicted, summary.unit)


def cost_name(summary: GraphSummary) -> str:
    """What the cost model predicts."""
    return "predicted latency" if summary.unit == "s" else "predicted cost"


def change(before: float, after: float) -> str:
    """A relative change."""
    if before == after:
        return "="
    return f"{100 * (after - before) / before:+.1f} %" if before else "new"


def count_text(number: int, noun: str) -> str:
    """``1 rule``, ``2 rules``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def rule_seconds(value: float) -> str:
    """The time of a rule; 0 means that it was too short to measure."""
    return seconds(value) if value else "< 1 ms"


def estimate(ratio: Estimate) -> str:
    """A ratio and its limits: ``0.85 (0.84 to 0.86)``."""
    limits = f" ({ratio.lower:.3f} to {ratio.upper:.3f})" if math.isfinite(ratio.upper) else ""
    return f"{ratio.median:.3f}{limits}"


def proof(extraction: Selection) -> str:
    """How good the chosen graph is proven to be."""
    gap = f"within {100 * extraction.gap:.2g} % of the optimum"
    return "proven optimal" if extraction.status == "optimal" else gap


def trusted_lines(files: Sequence[str]) -> list[str]:
    """Which rules nothing checked."""
    return [f"rules: {', '.join(files)} used unchecked (--trust-rules)"] if files else []


def verification_lines(verification: Verification) -> list[str]:
    """How the rewriting changed the numbers."""
    lines = {"numeric effect": verification.numeric_effect, "accuracy": verification.accuracy}
    return [f"{name}: {text}" for name, text in lines.items() if text]


def joint_prices(prices: JointPrices) -> list[tuple[str, float]]:
    """The seconds of each way to rewrite and fuse, by name."""
    return [
        ("original, unfused", prices.original),
        ("rewritten only", prices.rewritten),
        ("fused only", prices.fused),
        ("rewritten, then fused", prices.sequence),
        (f"together, after {prices.rounds} rounds", prices.joint),
        ("lower bound for any rewrite and partition", prices.bound),
    ]


def summary_rows(before: GraphSummary, after: GraphSummary) -> list[tuple[str, str, str, str]]:
    """Name, before, after and change of each figure."""
    rows = [
        (name, str(old), str(new), change(old, new))
        for name, old, new in (("nodes", before.nodes, after.nodes), ("layers", before.layers, after.layers))
    ]
    for name, unit in (("FLOPs", ""), ("intermediate bytes", "B"), ("weight bytes", "B")):
        old, new = (getattr(summary, name.lower().replace(" ", "_")) for summary in (before, after))
        rows.append((name, figure(old, unit), figure(new, unit), change(old, new)))
    prices = change(before.predicted, after.predicted)
    return [*rows, (cost_name(before), predicted_cost(before), predicted_cost(after), prices)]


def operator_rows(before: Mapping[str, int], after: Mapping[str, int]) -> list[tuple[str, str, str, str]]:
    """Counts by operator, those that changed first."""
    names = sorted({*before, *after}, key=lambda n: (before.get(n, 0) == after.get(n, 0), -before.get(n, 0), n))
    counts = [(n, before.get(n, 0), after.get(n, 0)) for n in names]
    return [(n, str(b), str(a), "=" if a == b else f"{a - b:+d}") for n, b, a in counts]


def table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], *, left: int = 1) -> None:
    """Print a table; the first `left` columns are aligned to the left, the others to the right.

    On a terminal it folds to its width; elsewhere a row stays on one line, for `grep` and the like.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=any(columns))
    for index, column in enumerate(columns):
        grid.add_column(column, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(printable(cell).replace("\n", "\\n") for cell in row))
    console = Console(
        width=None if sys.stdout.isatty() else _UNLIMITED, highlight=False, markup=False, emoji=False, soft_wrap=True
    )
    console.print(Text(printable(title), style="bold"))
    console.print(grid, soft_wrap=False)
    console.print()


def report(arguments: argparse.Namespace, content: Mapping[str, Any], line: str) -> None:
    """Print the content as JSON or the line as text, as the options ask for."""
    if arguments.json:
        print_json(content)
    elif not arguments.quiet:
        write(line)


def print_json(content: Any) -> None:
    """Print plain data as JSON of the standard, in ASCII: figures that are not finite become text."""
    write(json.dumps(_plain(content), indent=2, allow_nan=False))


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(name): _plain(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content if content is None or isinstance(content, (str, int, float, bool)) else str(content)
