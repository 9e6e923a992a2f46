"""What ``eqfuse optimize`` prints."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..driver.optimize import Result
from . import render
from .terminal import write

if TYPE_CHECKING:
    from ..driver.partition import Partitioned
    from ..engine.verification import Verification
    from ..extract.joint import JointPrices


def print_report(arguments: argparse.Namespace, result: Result) -> None:
    """The result as JSON, as tables, or not at all, as asked for."""
    if arguments.json:
        render.print_json(as_dict(result))
    elif not arguments.quiet:
        _print_tables(arguments.model, result, everything=arguments.verbose > 0)
        if arguments.report is not None:
            write(f"report: {arguments.report}")


def _print_tables(model: Path, result: Result, *, everything: bool) -> None:
    """What changed by figure and by operator, which rules matched, and how the search ended."""
    render.table(str(model), ("", "before", "after", "change"), list(render.summary_rows(result.before, result.after)))
    rows = render.operator_rows(result.before.operators, result.after.operators)
    shown = rows if everything else [r for r in rows if r[3] != "="]
    if shown:
        render.table("layers by operator", ("operator", "before", "after", "change"), list(shown))
    fired = result.saturation.matched
    top = fired if everything else fired[:10]
    if top:
        title = f"rules that matched ({len(top)} of {len(fired)})"
        rules = [(r.name, str(r.matches), render.seconds(r.seconds) if r.seconds else "< 1 ms") for r in top]
        render.table(title, ("rule", "matches", "time"), list(rules))
    if result.partition is not None:
        _print_partition(result.partition)
    for line in _closing(result):
        write(line)


def _print_partition(partition: Partitioned) -> None:
    """What became of the graph, and what rewriting and fusing each did to the price."""
    figures = partition.figures()
    rows: list[tuple[str, ...]] = [
        ("operators", f"{figures['operators']:.0f}"),
        ("fused kernels", f"{figures['kernels']:.0f}"),
        ("sub-graphs", f"{figures['subgraphs']:.0f}"),
        ("values that need no memory", f"{figures['removed_values']:.0f}"),
        ("intermediate bytes", _bytes(figures)),
        ("data movement as index maps", _index_maps(figures)),
        ("layouts of feature maps", partition.layouts.summary()),
        ("predicted latency", render.seconds(partition.seconds)),
    ]
    if partition.proof is not None:
        rows.append(("certificate", "checked by z3: acyclic, every sub-graph convex"))
    render.table(f"partition: {partition.partition.method}", ("", ""), rows, left=1)
    if partition.prices is not None:
        shown = [(name, render.seconds(seconds)) for name, seconds in _prices(partition.prices)]
        render.table("predicted latency of compiled kernels", ("", ""), list(shown), left=1)


def _bytes(figures: Mapping[str, float]) -> str:
    names = ("intermediate_bytes_original", "intermediate_bytes_unfused", "intermediate_bytes")
    return " -> ".join(render.figure(figures[name], "B") for name in names) + " (original, rewritten, fused)"


def _index_maps(figures: Mapping[str, float]) -> str:
    return f"{figures['index_maps']:.0f} operators, {render.figure(figures['index_map_bytes'], 'B')}"


def _prices(prices: JointPrices) -> list[tuple[str, float]]:
    return [
        ("as it was read, a kernel for each operator", prices.original),
        ("rewritten only", prices.rewritten),
        ("fused only", prices.fused),
        ("rewritten, then fused", prices.sequence),
        (f"together, after {prices.rounds} rounds", prices.joint),
        ("no graph of the rules, however cut, is below", prices.bound),
    ]


def _closing(result: Result) -> list[str]:
    saturation, extraction = result.saturation, result.extraction
    gap = f"within {100 * extraction.gap:.2g} % of the optimum"
    proof = "proven optimal" if extraction.status == "optimal" else gap
    lines = [
        f"saturation: {saturation.stop_reason} after {saturation.iterations} iterations, "
        f"{result.classes} e-classes, {result.enodes} e-nodes",
        f"extraction: {proof}",
        *_cut_short(result),
        *render.trusted_lines(result.trusted),
        *_verified(result.verification),
        "time: " + render.seconds(sum(result.phases.values())) + _slowest(result.phases),
    ]
    return [*lines, f"written: {result.path}"] if result.path else lines


def _cut_short(result: Result) -> list[str]:
    phases = ", ".join(result.cut_short)
    return [f"time limit: ended {phases}; the result is the best that was found before"] if phases else []


def _verified(verification: Verification | None) -> list[str]:
    if verification is None:
        return ["verification: none (--no-verify)"]
    lines = [f"verification: {verification.summary}"]
    if verification.numeric_effect:
        lines.append(f"numeric effect: {verification.numeric_effect}")
    if verification.accuracy:
        lines.append(f"accuracy: {verification.accuracy}")
    if verification.coverage:
        lines.append(f"seen from one side only: {verification.coverage}")
    return lines


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
        "partition": _partition_dict(result.partition) if result.partition else None,
        "seconds": dict(result.phases),
        "budget_hit": result.budget_hit,
        "cut_short": list(result.cut_short),
        "trusted_rules": list(result.trusted),
    }


def _partition_dict(partition: Partitioned) -> dict[str, Any]:
    proof = partition.proof
    return {
        "method": partition.partition.method,
        **partition.figures(),
        "prices": asdict(partition.prices) if partition.prices else None,
        "certificate": {"groups": proof.groups, "edges": proof.edges, "convex": proof.convex} if proof else None,
    }
