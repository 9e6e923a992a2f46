"""Kernels of bundles of one model for different numbers of threads, beside the roofline and beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eqfuse.cli import render
from eqfuse.cli.bench import operators_text, print_breakdown
from eqfuse.driver.bench import breakdown_as_dict
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.running.kernel_times import Breakdown, KernelTime, kernel_times

MOST = 15
"""Rows of the kernels that do not scale."""


def print_kernels(name: str, bundles: Mapping[int, Path]) -> dict[str, Any]:
    """Print where the time goes in each bundle, by its number of threads, and kernels that threads do not speed up."""
    found = {threads: _timed(bundle, threads) for threads, bundle in bundles.items()}
    for threads, breakdown in found.items():
        print_breakdown(f"{name}, {threads} thread(s)", breakdown)
    if 1 in found:
        for threads in sorted(set(found) - {1}):
            _print_scaling(name, found[1], found[threads], threads)
    return {str(threads): breakdown_as_dict(breakdown) for threads, breakdown in found.items()}


def _timed(bundle: Path, threads: int) -> Breakdown:
    return kernel_times(bundle, random_inputs(read_manifest(bundle).inputs, 0), threads)


def _print_scaling(name: str, single: Breakdown, several: Breakdown, threads: int) -> None:
    """Kernels by the time that they take beyond their part of the time on one thread."""
    alone = {kernel.facts.symbol: kernel for kernel in single.kernels}
    both = [(alone[k.facts.symbol], k) for k in several.kernels if k.facts.symbol in alone]
    ordered = sorted(both, key=lambda pair: pair[0].seconds / threads - pair[1].seconds)[:MOST]
    rows = [_scaling_row(one, more, threads) for one, more in ordered]
    whole = single.whole / several.whole
    title = f"{name}: {threads} threads are {whole:.2f} times as fast; what loses most"
    columns = ("kernel", "operators", "schedule", "calls", "1 thread us", f"{threads} threads us", "scaling", "lost us")
    render.table(title, columns, rows, left=3)


def _scaling_row(one: KernelTime, more: KernelTime, threads: int) -> tuple[str, ...]:
    facts = more.facts
    return (
        "_".join(facts.symbol.split("_")[:2]), operators_text(facts.operators), facts.rule.partition(" ")[0],
        str(facts.calls), f"{one.seconds * 1e6:.1f}", f"{more.seconds * 1e6:.1f}",
        f"{one.seconds / more.seconds:.2f}", f"{(more.seconds - one.seconds / threads) * 1e6:.1f}",
    )  # fmt: skip
