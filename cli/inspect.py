"""``eqfuse inspect``, ``diff`` and ``verify``: looking at models and comparing them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..driver.inspect import Group, Inspection, PartitionReport, diff_models, inspect_model, verify_models
from ..driver.options import CostOptions, InspectOptions, VerifyOptions
from ..driver.summary_rows import cost_name, operator_rows, predicted_cost, summary_rows
from ..support import units
from ..support.errors import EqfuseError, VerificationError
from . import render
from .options import options_of
from .progress import Progress
from .terminal import write, write_error

if TYPE_CHECKING:
    from ..driver.inspect import OutputReport, Verification
    from ..driver.node_changes import NodeChange

_LARGEST = 10
"""Groups in the table of groups."""
_SHOWN_NODES = 30
"""Nodes in the table of differences; -v shows all."""
_NAMED_OPERATORS = 4
"""Operators of a group that the table names."""


def inspect(arguments: argparse.Namespace) -> int:
    """Show inputs, outputs, operators and cost, and the partition if the model has one or one is asked for; of several
    models the figures side by side."""
    options = options_of(InspectOptions, arguments)
    with Progress(arguments, "inspect") as progress:
        inspected = {}
        for path in arguments.models:
            progress("inspect", str(path))
            inspected[path] = inspect_model(path, options)
    contents = [{"model": str(path), **each.as_dict()} for path, each in inspected.items()]
    if arguments.json:
        render.print_json(contents[0] if len(contents) == 1 else {"models": contents})
    elif not arguments.quiet:
        if len(inspected) > 1:
            _print_side_by_side(inspected)
            return 0
        for path, inspection in inspected.items():
            _print_inspection(path, inspection)
            if inspection.partition is not None:
                _print_partition(path, inspection.partition)
    return 0


def _print_side_by_side(inspected: Mapping[Path, Inspection]) -> None:
    """Print a column of figures for each model, and one of the layers of each operator."""
    summaries = [each.summary for each in inspected.values()]
    figures: list[tuple[str, ...]] = [
        ("nodes", *(str(each.nodes) for each in summaries)),
        ("layers", *(str(each.layers) for each in summaries)),
        ("FLOPs", *(units.figure(each.flops) for each in summaries)),
        ("intermediate bytes", *(units.memory(each.intermediate_bytes) for each in summaries)),
        ("weight bytes", *(units.memory(each.weight_bytes) for each in summaries)),
        (cost_name(summaries[0]), *map(predicted_cost, summaries)),
    ]
    found = [each.partition.partitioned if each.partition is not None else None for each in inspected.values()]
    if any(found):
        figures += [
            ("kernels of the partition", *("-" if each is None else str(each.kernels) for each in found)),
            (
                "predicted when compiled",
                *("-" if each is None else units.seconds(each.predicted_seconds) for each in found),
            ),
        ]
    columns = ("", *map(str, inspected))
    render.table(units.count_text(len(inspected), "model"), columns, figures)
    names = sorted({name for each in summaries for name in each.operators})
    names.sort(key=lambda name: -max(each.operators.get(name, 0) for each in summaries))
    rows = [(name, *(str(each.operators.get(name, 0)) for each in summaries)) for name in names]
    render.table("layers by operator", ("operator", *columns[1:]), list(rows))
    for path, each in inspected.items():
        for line in each.summary.notes:
            write(f"{path}: {line}")


def _print_inspection(path: Path, inspection: Inspection) -> None:
    summary = inspection.summary
    stored = f"{units.figure(summary.intermediate_bytes, 'B')}, {units.figure(summary.weight_bytes, 'B')}"
    rows: list[tuple[str, ...]] = [
        ("opsets", ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in inspection.opsets.items())),
        ("IR version, producer", f"{inspection.ir_version}, {inspection.producer or '-'}"),
        *((f"input {name}", text) for name, text in inspection.inputs.items()),
        *((f"output {name}", text) for name, text in inspection.outputs.items()),
        ("nodes, layers", f"{summary.nodes}, {summary.layers}"),
        ("FLOPs", units.figure(summary.flops)),
        ("intermediate, weight bytes", stored),
        (cost_name(summary), predicted_cost(summary)),
    ]
    render.table(str(path), ("", ""), rows, left=2)
    operators: list[tuple[str, ...]] = [(name, str(count)) for name, count in summary.operators.items()]
    render.table("layers by operator", ("operator", "count"), operators)
    for line in summary.notes:
        write(line)


def _print_partition(path: Path, report: PartitionReport) -> None:
    before, after = report.unfused, report.partitioned
    rows: list[tuple[str, ...]] = []
    for name in ("groups", "kernels", "intermediate values"):
        count, new = (getattr(figures, name.replace(" ", "_")) for figures in (before, after))
        rows.append((name, str(count), str(new), units.change(count, new)))
    size = [units.memory(f.intermediate_bytes) for f in (before, after)]
    rows.append(("intermediate bytes", *size, units.change(before.intermediate_bytes, after.intermediate_bytes)))
    latency = [units.seconds(f.predicted_seconds) for f in (before, after)]
    rows.append(("predicted when compiled", *latency, units.change(before.predicted_seconds, after.predicted_seconds)))
    render.table(f"partition of {path}: {report.method}", ("", "unfused", "partition", "change"), rows)
    largest = sorted(report.groups, key=lambda group: (-len(group.operators), group.number))[:_LARGEST]
    title = f"largest groups ({len(largest)} of {len(report.groups)})"
    columns = ("group", "", "operators", "kernels", "predicted")
    render.table(title, columns, [_group_row(group) for group in largest], left=2)
    if report.checked_by is not None:
        write(f"certificate: {len(report.groups)} groups, checked by {report.checked_by}")


def _group_row(group: Group) -> tuple[str, ...]:
    count, more = len(group.operators), len(group.types) - _NAMED_OPERATORS
    types = ", ".join(group.types[:_NAMED_OPERATORS]) + (f" and {more} more" if more > 0 else "")
    return str(group.number), types, str(count), str(group.kernels), units.seconds(group.predicted_seconds)


def diff(arguments: argparse.Namespace) -> int:
    """Show two models side by side."""
    difference = diff_models(arguments.model, arguments.candidate, options_of(CostOptions, arguments))
    before, after = difference.before, difference.after
    if arguments.json:
        nodes = [asdict(change) for change in difference.nodes]
        render.print_json({"before": before.as_dict(), "after": after.as_dict(), "nodes": nodes})
    elif not arguments.quiet:
        title = f"{arguments.model} and {arguments.candidate}"
        render.table(title, ("", "first", "second", "change"), list(summary_rows(before, after)))
        changed = [row for row in operator_rows(before.operators, after.operators) if row[3] != "="]
        if changed:
            render.table("layers by operator", ("operator", "first", "second", "change"), list(changed))
        _print_nodes(difference.nodes, _SHOWN_NODES if not arguments.verbose else None)
        for line in before.notes:
            write(line)
    return 0


def _print_nodes(nodes: Sequence[NodeChange], most: int | None) -> None:
    """Print the nodes in which two models differ; a node without a name is named by its value."""
    shown = nodes[:most]
    if shown:
        more = "; -v shows all" if len(shown) < len(nodes) else ""
        title = f"layers that differ ({len(shown)} of {len(nodes)}{more})"
        rows = [(each.node or each.value, each.operator, str(each)) for each in shown]
        render.table(title, ("layer", "operator", "change"), list(rows), left=3)


def verify(arguments: argparse.Namespace) -> int:
    """Compare two models by running them; exit code 0 says that they compute the same."""
    with Progress(arguments, "verify"):
        verification = verify_models(arguments.model, arguments.candidate, options_of(VerifyOptions, arguments))
    if arguments.json:
        render.print_json(verification.as_dict())
    elif not arguments.quiet:
        _print_verification(f"{arguments.model} and {arguments.candidate}", verification)
    if verification.status in ("not verifiable", "unverified"):
        write_error(f"{arguments.candidate}: was not verified: {verification.reason}")
    if verification.status == "not verifiable":
        return EqfuseError.exit_code
    return VerificationError.exit_code if verification.status in ("failed", "unverified") else 0


_COLUMNS = (
    "output", "equal", "identical", "max ulp", "max abs", "max rel", "original error", "result error",
)  # fmt: skip


def _print_verification(title: str, verification: Verification) -> None:
    """A row for each output, how the second model was made, how the numbers changed, and the verdict."""
    render.table(title, _COLUMNS, [_output_row(report) for report in verification.outputs])
    if constant := [report.name for report in verification.outputs if not report.depends_on_inputs]:
        write(f"the same for all inputs that were tried: {', '.join(constant)}")
    if verification.provenance:
        write(verification.provenance)
    for line in verification.effect_lines:
        write(line)
    if verification.unmeasured:
        write(f"accuracy: not measured, no float64 run: {verification.unmeasured}")
    for line in verification.one_sided:
        write(f"branches not covered: {line}")
    write(verification.summary)


def _output_row(report: OutputReport) -> tuple[str, ...]:
    effect = report.effect
    return (
        report.name,
        "yes" if report.passed else "NO",
        "-" if effect.share is None else units.percentage(effect.share),
        "-" if effect.max_ulp is None else units.ulps(effect.max_ulp),
        f"{report.max_abs:.3g}",
        f"{report.max_rel:.3g}",
        f"{effect.original_error.largest:.3g}" if effect.original_error else "-",
        f"{effect.result_error.largest:.3g}" if effect.result_error else "-",
    )
