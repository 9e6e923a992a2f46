"""``eqfuse bench``: the tables of each kind of measurement (driver/bench.py)."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..driver.bench import (
    Breakdown,
    Counts,
    Emulation,
    Estimation,
    KernelLatency,
    KernelTime,
    Latency,
    Middle,
    ServiceReport,
    Simulation,
    bench_model,
)
from ..driver.compiler.outcome import memory_text, program_rows, trial_lines
from ..driver.options import BenchOptions
from ..support import units
from . import render
from .options import options_of
from .progress import Progress
from .terminal import write

_SHOWN_KERNELS, _SHOWN_EMULATED = 25, 20
"""Kernels in the tables of --kernels and --emulate; -v and --json show all."""
_SHOWN_LEVELS = 2
"""Levels of caches in the table of --emulate; --json has all."""
_SHOWN_OPERATORS = 5
"""Operators of a kernel that its row names."""


def bench(arguments: argparse.Namespace) -> int:
    """Measure a bundle and print the result."""
    with Progress(arguments, "emulate" if arguments.emulate else "measure"):
        report = bench_model(arguments.bundle, options_of(BenchOptions, arguments))
    if arguments.json:
        render.print_json(report.as_dict())
    elif not arguments.quiet:
        if isinstance(report, Latency):
            _print_latency(arguments, report)
        elif isinstance(report, ServiceReport):
            _print_service(arguments, report)
        elif isinstance(report, KernelLatency):
            clock = {"cpu": "CPU", "wall": "wall-clock"}[report.clock]
            title = f"{arguments.bundle}: {report.repeat} runs, {report.threads} thread(s), median {clock} time"
            print_breakdown(title, report.breakdown, None if arguments.verbose else _SHOWN_KERNELS)
            for line in trial_lines(report.trials):
                write(line.strip())
        elif isinstance(report, Emulation):
            _print_emulation(arguments, report)
        elif isinstance(report, Estimation):
            _print_estimation(arguments, report)
        else:
            _print_simulation(arguments, report)
    return 0


# --- the model on this machine


def _print_latency(arguments: argparse.Namespace, latency: Latency) -> None:
    rows: list[tuple[str, ...]] = []
    for name, timing in latency.timings.items():
        show = _ratio_text if name == "speed-up" else _seconds_text
        p99 = "" if timing.p99 is None else units.seconds(timing.p99)
        rows.append((name, show(timing.wall), p99, show(timing.cpu)))
    title = f"{arguments.bundle}: {latency.repeat} runs, {latency.threads} thread(s), median (interquartile range)"
    columns = ("", "wall-clock time", "p99", "CPU time")
    render.table(title, columns, rows, left=1)


def _print_service(arguments: argparse.Namespace, report: ServiceReport) -> None:
    rows: list[tuple[str, ...]] = [
        (
            name, f"{each.rate.median:,.1f} ({each.rate.lower:,.1f} to {each.rate.upper:,.1f})",
            units.seconds(each.p50), units.seconds(each.p99),
        )
        for name, each in report.throughputs.items()
    ]  # fmt: skip
    if report.gain is not None:
        rows.append(("eqfuse / ONNX Runtime", _ratio_text(report.gain), "", ""))
    title = (
        f"{arguments.bundle}: {report.clients} client(s), {report.threads} thread(s) a call, {report.slices} slices, "
        "median (interquartile range)"
    )
    render.table(title, ("", "calls a second", "p50", "p99"), rows, left=1)


def _seconds_text(middle: Middle) -> str:
    return units.seconds_range(middle.median, middle.lower, middle.upper)


def _ratio_text(middle: Middle) -> str:
    return f"{middle.median:.2f}x ({middle.lower:.2f} to {middle.upper:.2f})"


# --- its kernels


def print_breakdown(title: str, breakdown: Breakdown, most: int | None = _SHOWN_KERNELS) -> None:
    """Print the kernels that take longest, the others as one row, and the time spent between kernels."""
    columns = (
        "kernel",
        "operators",
        "schedule",
        "calls",
        "us a call",
        "share",
        "MMAC",
        "kB",
        "predicted us",
        "roofline us",
        "times",
    )
    ordered = sorted(breakdown.kernels, key=lambda kernel: -kernel.seconds)
    rows = [_kernel_row(kernel, breakdown.whole) for kernel in ordered[:most]]
    if rest := ordered[len(rows) :]:
        rows.append(_sum_row(f"{len(rest)} others", rest, breakdown.whole))
    rows.append(_sum_row("all kernels", ordered, breakdown.whole))
    loops = [(f"C loops: {name.split('_', 2)[-1]}", seconds) for name, seconds in breakdown.loops.items()]
    for name, seconds in (*loops, ("ONNX Runtime", breakdown.fallbacks), ("between kernels", breakdown.between)):
        if seconds > 0:
            rows.append((name, *[""] * 3, _microseconds(seconds), f"{seconds / breakdown.whole:.1%}", *[""] * 5))
    render.table(f"{title}: {units.seconds(breakdown.whole)}", columns, rows, left=3)
    if breakdown.correlation is not None:
        write(f"rank correlation of predicted and measured times: {breakdown.correlation:.2f}")


def operators_text(operators: Iterable[str]) -> str:
    """``Conv Clip``; of a long list the first few."""
    names = list(operators)
    more = f" +{len(names) - _SHOWN_OPERATORS}" if len(names) > _SHOWN_OPERATORS else ""
    return " ".join(names[:_SHOWN_OPERATORS]) + more


def _kernel_row(kernel: KernelTime, whole: float) -> tuple[str, ...]:
    facts = kernel.facts
    number = "_".join(facts.symbol.split("_")[:2])
    return (
        number, operators_text(facts.operators), facts.rule.partition(" ")[0], str(facts.calls),
        _microseconds(kernel.per_call), f"{kernel.seconds / whole:.1%}", f"{facts.multiply_adds / 1e6:.2f}",
        f"{facts.bytes / 1e3:.0f}", "" if facts.predicted is None else _microseconds(facts.predicted),
        _microseconds(facts.roofline), f"{kernel.distance:.1f}",
    )  # fmt: skip


def _sum_row(name: str, kernels: Sequence[KernelTime], whole: float) -> tuple[str, ...]:
    """Several kernels, all their calls together."""
    seconds = sum(kernel.seconds for kernel in kernels)
    bound = sum(kernel.facts.roofline * kernel.facts.calls for kernel in kernels)
    products = sum(kernel.facts.multiply_adds * kernel.facts.calls for kernel in kernels)
    moved = sum(kernel.facts.bytes * kernel.facts.calls for kernel in kernels)
    predicted = sum((kernel.facts.predicted or 0.0) * kernel.facts.calls for kernel in kernels)
    return (
        name, "", "", str(sum(kernel.facts.calls for kernel in kernels)), _microseconds(seconds),
        f"{seconds / whole:.1%}", f"{products / 1e6:.2f}", f"{moved / 1e3:.0f}", _microseconds(predicted),
        _microseconds(bound), f"{seconds / bound:.1f}" if bound else "",
    )  # fmt: skip


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


# --- the model on an emulated board


def _print_emulation(arguments: argparse.Namespace, emulation: Emulation) -> None:
    misses = tuple(f"{level} misses" for level in emulation.levels[:_SHOWN_LEVELS])
    columns = ("instructions", "fmla", "loads", "stores", "other", *misses)
    title = f"{arguments.bundle}: one inference on an emulated {emulation.target}, one core"
    rows = _emulated_rows(emulation, everything=arguments.verbose > 0)
    render.table(title, ("kernel", "operators", "calls", *columns, "cycles (estimate)"), rows, left=2)
    if emulation.runtime is not None:
        own, other = _count_columns(emulation.counts.inference), _count_columns(emulation.runtime.counts)
        comparison = [
            ("eqfuse", *map(units.figure, own)),
            (f"ONNX Runtime {emulation.runtime.version}", *map(units.figure, other)),
            ("eqfuse / ONNX Runtime", *(f"{a / b:.2f}x" if b else "" for a, b in zip(own, other, strict=True))),
        ]
        render.table("one inference", ("", *columns), comparison, left=1)
    clock = emulation.device.clock
    seconds = units.seconds(emulation.cycles / clock)
    estimate = f"{units.figure(emulation.cycles)} cycles, {seconds} at {clock / 1e9:g} GHz"
    write(f"estimate: {estimate}, from instructions and misses alone: no pipeline is simulated")


def _emulated_rows(emulation: Emulation, *, everything: bool) -> list[tuple[str, ...]]:
    """The first kernels, the others together, the code between kernels, and the sum."""
    kernels = emulation.kernels
    count = len(kernels) if everything or len(kernels) <= _SHOWN_EMULATED + 1 else _SHOWN_EMULATED
    rows = [_count_row(k.kernel, k.operators, str(k.calls), k.counts, k.cycles) for k in kernels[:count]]
    if others := kernels[count:]:
        calls, cycles = sum(k.calls for k in others), sum(k.cycles for k in others)
        counts = emulation.counts_of(others)
        rows.append(_count_row(f"{len(others)} other kernels (-v)", (), str(calls), counts, cycles))
    whole = emulation.counts
    rows.append(_count_row("between kernels", (), "", whole.outside, emulation.cycles_between))
    rows.append(_count_row("model", (), str(len(whole.calls)), whole.inference, emulation.cycles))
    return rows


def _count_row(name: str, operators: Sequence[str], calls: str, counts: Counts, cycles: float) -> tuple[str, ...]:
    types = ", ".join(op if n == 1 else f"{n} {op}" for op, n in Counter(operators).items())
    return (name, types, calls, *map(units.figure, _count_columns(counts)), units.figure(cycles))


def _count_columns(counts: Counts) -> tuple[int, ...]:
    rest = counts.instructions - counts.fused - counts.loads - counts.stores
    return (counts.instructions, counts.fused, counts.loads, counts.stores, rest, *counts.misses[:_SHOWN_LEVELS])


# --- a program for an accelerator


def _print_simulation(arguments: argparse.Namespace, simulation: Simulation) -> None:
    title = f"{arguments.bundle}: {simulation.section.device.name}, simulated"
    render.table(title, ("", ""), program_rows(simulation.section), left=2)
    figures = [_cluster_figures(each["cluster"]) for each in simulation.variants.values()]
    names = dict.fromkeys(name for each in figures for name in each)
    rows = [(name, *(each.get(name, "-") for each in figures)) for name in names]
    render.table("one iteration", ("", *simulation.variants), rows, left=1)
    for name, speed_up in simulation.speed_ups().items():
        write(f"speed-up over {name}: {speed_up:.2f}x")
    if arguments.trace is not None:
        write(f"written: {arguments.trace}")


def _cluster_figures(cluster: Mapping[str, Any]) -> dict[str, str]:
    rows = {"cycles": f"{cluster['cycles']:,.0f}", "time": units.seconds(cluster["seconds"])}
    rows |= {f"tensors in {level.upper()}": str(count) for level, count in cluster["scopes"].items()}
    rows |= {f"{path}, bytes": f"{count:,}" for path, count in cluster["traffic"].items()}
    for access in ("read", "written"):
        rows |= {f"{level}, bytes {access}": f"{each[access]:,}" for level, each in cluster["levels"].items()}
    rows |= {f"{unit} occupied": f"{share:.1%}" for unit, share in cluster["occupied"].items()}
    bound = dict(cluster["lower_bound"])
    ratio, cycles = bound.pop("ratio"), bound.pop("cycles")
    rows |= {f"lower bound, {name}": f"{each:,.0f} cycles" for name, each in bound.items()}
    scheduled = cluster["scheduled_bound"]
    rows |= {f"{unit} with these kernels": f"{each:,.0f} cycles" for unit, each in scheduled.items()}
    return rows | {"lower bound": f"{cycles:,.0f} cycles", "lower bound / cycles": f"{ratio:.3f}"}


# --- a program for an Ethos-U


def _print_estimation(arguments: argparse.Namespace, report: Estimation) -> None:
    section, figures = report.section, report.variants.values()
    setting = f"{section.system}, {section.memory_mode}"
    title = f"{arguments.bundle}: {section.device}, {setting}, estimated by Vela {section.vela}"
    rows: list[tuple[str, ...]] = [
        ("cycles", *(f"{each.cycles:,}" for each in figures)),
        ("SRAM at most", *(f"{each.sram:,} bytes" for each in figures)),
        ("memory", *(memory_text(each) for each in figures)),
        ("operators on the NPU", *(str(each.npu_operators) for each in figures)),
        ("chosen", *(each.choice for each in figures)),
    ]
    render.table(title, ("", *report.variants), rows, left=1)
    if report.speed_up is not None:
        write(f"speed-up over vela: {report.speed_up:.2f}x")
