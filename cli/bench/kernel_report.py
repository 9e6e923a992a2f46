"""Where the time of a compiled model goes, as tables: kernels beside the roofline of the device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .. import render

if TYPE_CHECKING:
    from ...lowering.running.kernel_times import Breakdown, KernelTime

_NAMED = 5
_COLUMNS = ("kernel", "operators", "schedule", "calls", "us a call", "share", "MMAC", "kB", "roofline us", "times")


def print_breakdown(title: str, found: Breakdown, most: int = 25) -> None:
    """The kernels that take longest, the others as one row, and what is spent in none."""
    ordered = sorted(found.kernels, key=lambda kernel: -kernel.seconds)
    rows = [_row(kernel, found.whole) for kernel in ordered[:most]]
    if rest := ordered[most:]:
        rows.append(_summary(f"{len(rest)} others", rest, found.whole))
    rows.append(_summary("all kernels", ordered, found.whole))
    for name, seconds in (("ONNX Runtime", found.fallbacks), ("between kernels", found.between)):
        if seconds > 0:
            rows.append((name, *[""] * 3, _microseconds(seconds), f"{seconds / found.whole:.1%}", *[""] * 4))
    render.table(f"{title}: {render.seconds(found.whole)}", _COLUMNS, rows, left=3)


def breakdown_as_dict(found: Breakdown) -> dict[str, Any]:
    """Plain data for JSON; all times in seconds."""
    kernels = [
        {**asdict(kernel.facts), "seconds": kernel.seconds, "seconds_per_call": kernel.per_call}
        for kernel in found.kernels
    ]
    return {"whole": found.whole, "fallbacks": found.fallbacks, "between": found.between, "kernels": kernels}


def operators_text(operators: Iterable[str]) -> str:
    """``Conv Clip``; of a long list the first few."""
    names = list(operators)
    more = f" +{len(names) - _NAMED}" if len(names) > _NAMED else ""
    return " ".join(names[:_NAMED]) + more


def _row(kernel: KernelTime, whole: float) -> tuple[str, ...]:
    facts = kernel.facts
    number = "_".join(facts.symbol.split("_")[:2])
    return (
        number, operators_text(facts.operators), facts.rule.partition(" ")[0], str(facts.calls),
        _microseconds(kernel.per_call), f"{kernel.seconds / whole:.1%}", f"{facts.multiply_adds / 1e6:.2f}",
        f"{facts.bytes / 1e3:.0f}", _microseconds(facts.roofline), f"{kernel.distance:.1f}",
    )  # fmt: skip


def _summary(name: str, kernels: list[KernelTime], whole: float) -> tuple[str, ...]:
    """Several kernels, all their calls together."""
    seconds = sum(kernel.seconds for kernel in kernels)
    bound = sum(kernel.facts.roofline * kernel.facts.calls for kernel in kernels)
    products = sum(kernel.facts.multiply_adds * kernel.facts.calls for kernel in kernels)
    moved = sum(kernel.facts.bytes * kernel.facts.calls for kernel in kernels)
    return (
        name, "", "", str(sum(kernel.facts.calls for kernel in kernels)), _microseconds(seconds),
        f"{seconds / whole:.1%}", f"{products / 1e6:.2f}", f"{moved / 1e3:.0f}", _microseconds(bound),
        f"{seconds / bound:.1f}" if bound else "",
    )  # fmt: skip


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"
