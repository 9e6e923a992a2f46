"""``eqfuse optimize``: run it, and report on the result."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..driver.choices import RuleSelection, start_saturation
from ..driver.summary_rows import operator_rows, summary_rows
from ..support import units
from ..support.errors import BUDGET_HIT, UsageError
from ..support.files import check_destination
from . import render
from .arguments import given_options
from .progress import Progress
from .terminal import shown, write

if TYPE_CHECKING:
    from ..driver.measure import Timings
    from ..driver.optimize import Result
    from ..driver.partition import Partitioned

_EXPLAIN_SECONDS = 30.0
"""Seconds in which a report looks for the rules of the nodes that changed."""
_SHOWN_RULES = 10
"""Rules in the table; -v shows all."""


def optimize(arguments: argparse.Namespace) -> int:
    """Optimise, report, and return the exit code, which says whether a budget was hit."""
    if arguments.out is not None and arguments.output is not None:
        raise UsageError(f"two files to write: {arguments.out} and {arguments.output}; give one")
    output: Path | None = arguments.output or arguments.out
    if arguments.report is not None:
        _check_report(arguments.report, arguments.model, output)
    selection = RuleSelection(**given_options(RuleSelection, arguments))
    with start_saturation(selection) as worker:  # it starts during the imports below
        from ..driver.optimize import optimize_model, prepare_verification
        from ..driver.options import MeasureOptions, Options
        from .options import options_of

        options, measure = options_of(Options, arguments), options_of(MeasureOptions, arguments)
        prepare_verification(options)  # before the thread of the progress: a process of one thread can be forked
        with Progress(arguments) as progress:
            explain = _EXPLAIN_SECONDS if arguments.report is not None else 0.0
            result = optimize_model(
                arguments.model, output, options, progress, worker, measure, explain_seconds=explain
            )
            if arguments.report is not None:
                from ..driver.html_report import write_report

                progress("report")
                write_report(arguments.report, shown(arguments.model), result, options)
    if arguments.json:
        render.print_json({"model": str(arguments.model), **_as_dict(result)})
    elif not arguments.quiet:
        _print(arguments.model, result, everything=arguments.verbose > 0)
        if arguments.report is not None:
            write(f"report: {arguments.report}")
    return BUDGET_HIT if result.budget_hit else 0


def _check_report(report: Path, model: Path, output: Path | None) -> None:
    """Raise UsageError if the report cannot be written, or would replace a model."""
    check_destination(report)
    if report.exists() and model.exists() and report.samefile(model):
        raise UsageError(f"{report}: is the input itself; name another file for the report")
    if output is not None and report.resolve() == output.resolve():
        raise UsageError(f"{report}: is the model to write; name another file for the report")


def _print(model: Path, result: Result, *, everything: bool) -> None:
    """Print the changes by figure and by operator, the rules that matched, and how the search ended."""
    render.table(str(model), ("", "before", "after", "change"), list(summary_rows(result.before, result.after)))
    rows = operator_rows(result.before.operators, result.after.operators)
    changed = rows if everything else [row for row in rows if row[3] != "="]
    if changed:
        render.table("layers by operator", ("operator", "before", "after", "change"), list(changed))
    matched = result.saturation.matched
    top = matched if everything else matched[:_SHOWN_RULES]
    if top:
        title = f"rules that matched ({len(top)} of {len(matched)})"
        rules = [(rule.name, str(rule.matches), units.rule_seconds(rule.seconds)) for rule in top]
        render.table(title, ("rule", "matches", "time"), list(rules))
    if result.partition is not None:
        _print_partition(result.partition)
    if result.timings is not None:
        _print_timings(result.timings)
    for line in _closing_lines(result):
        write(line)


def _print_partition(partition: Partitioned) -> None:
    figures = partition.figures()
    sizes = {
        "original": "intermediate_bytes_original",
        "rewritten": "intermediate_bytes_unfused",
        "fused": "intermediate_bytes",
    }
    moved = units.memory(figures["index_map_bytes"])
    rows: list[tuple[str, ...]] = [
        ("operators", f"{figures['operators']:.0f}"),
        ("fused kernels", f"{figures['kernels']:.0f}, and {figures['views']:.0f} views"),
        *([("groups kept whole", f"{partition.as_drawn} of {partition.drawn.count}")] if partition.drawn else []),
        ("values that need no memory", f"{figures['removed_values']:.0f}"),
        *((f"intermediate bytes, {name}", units.memory(figures[key])) for name, key in sizes.items()),
        ("data movement as index maps", f"{figures['index_maps']:.0f} operators, {moved}"),
        ("predicted when compiled", units.seconds(partition.seconds)),
    ]
    if partition.profiled is not None:
        rows.append(("profiled for the plan", str(partition.profiled)))
    render.table(f"partition: {partition.partition.method}", ("", ""), rows, left=1)
    if partition.costs is not None:
        costs = [(name, units.seconds(seconds)) for name, seconds in partition.costs.by_name()]
        render.table("predicted when compiled", ("", ""), list(costs), left=1)
    write(f"certificate: {partition.proof or 'z3 gave no answer within a second; --certify insists'}")


def _print_timings(timings: Timings) -> None:
    """Print how long each candidate takes beside the original, and with which input shapes."""
    from ..driver.measure import ORIGINAL

    clock = {"cpu": "CPU", "wall": "wall-clock"}[timings.clock]
    title = f"{clock} time in ONNX Runtime {timings.runtime} over that of the original, {timings.processor}, "
    rows: list[tuple[str, ...]] = [(ORIGINAL, str(timings.layers), "1", "", _mark(timings, ORIGINAL))]
    for each in timings.candidates:
        ratio = str(each.ratio) if each.ratio is not None else each.problem
        pairs = str(each.ratio.count) if each.ratio is not None else ""
        rows.append((each.name, str(each.layers), ratio, pairs, _mark(timings, each.name)))
    columns = ("candidate", "layers", "ratio (99 % sure)", "pairs", "")
    render.table(title + units.count_text(timings.threads, "thread"), columns, rows, left=1)
    shapes = ", ".join(f"{name}: {list(shape)}" for name, shape in timings.input_shapes.items())
    write(f"timed with {shapes or 'no inputs'}")


def _mark(timings: Timings, name: str) -> str:
    return "chosen" if timings.chosen == name else ""


def _closing_lines(result: Result) -> Iterator[str]:
    """How the search ended, the verdict of verification, the time, and the file."""
    yield from result.before.notes
    saturation = result.saturation
    yield (
        f"saturation: {saturation.stop_reason} after {saturation.iterations} iterations, "
        f"{result.classes} e-classes, {result.enodes} e-nodes"
    )
    yield f"extraction: {result.proof}"
    if result.cut_short:
        yield f"time limit: ended {', '.join(result.cut_short)}; the result is the best that was found before"
    yield from render.trusted_lines(result.trusted)
    if result.unrounded is not None:
        yield f"unrounded: {result.unrounded}"
    if result.verification is None:
        yield "verification: none (--no-verify)"
    else:
        yield f"verification: {result.verification.summary}"
        yield from result.verification.effect_lines
        if result.verification.coverage:
            yield f"branches not covered: {result.verification.coverage}"
    total = sum(result.phases.values())
    slowest = sorted((p for p in result.phases.items() if p[1] >= total / 10), key=lambda phase: -phase[1])
    named = ", ".join(f"{name} {units.seconds(taken)}" for name, taken in slowest)
    yield f"time: {units.seconds(total)}{f' ({named})' if named else ''}"
    yield f"written: {result.path}" if result.path else "written: nothing; -o FILE writes the result"


def _as_dict(result: Result) -> dict[str, Any]:
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
            "rules": [asdict(rule) for rule in saturation.rules if rule.matches],
        },
        "extraction": {
            **{name: getattr(extraction, name) for name in ("status", "cost", "lower_bound", "gap")},
            "acyclicity": asdict(result.acyclicity) if result.acyclicity else None,
        },
        "unrounded": asdict(result.unrounded) if result.unrounded else None,
        "verification": result.verification.as_dict() if result.verification else None,
        "partition": _partition_as_dict(result.partition) if result.partition else None,
        "measurement": result.timings.as_dict() if result.timings else None,
        "seconds": dict(result.phases),
        "budget_hit": result.budget_hit,
        "cut_short": list(result.cut_short),
        "trusted_rules": list(result.trusted),
    }


def _partition_as_dict(partition: Partitioned) -> dict[str, Any]:
    proof = partition.proof
    return {
        "method": partition.partition.method,
        **partition.figures(),
        "costs": asdict(partition.costs) if partition.costs else None,
        "certificate": asdict(proof) if proof else None,
        "profiled": asdict(partition.profiled) if partition.profiled else None,
    }
