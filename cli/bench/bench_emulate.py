"""``eqfuse bench --emulate``: what a model compiled for Arm executes on an emulated board, kernel by kernel."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...lowering.arm.counts import SINGLES, Counts, KernelCounts, ModelCounts, by_kernel, estimate_cycles, total
from .. import render
from ..progress import Progress
from ..terminal import write
from .bench_inputs import bench_inputs, original

if TYPE_CHECKING:
    from ...costmodels.device import Device
    from ...lowering.arm.peer import Arm64Root
    from ...lowering.bundle.emulated_model import EmulatedModel

_SHOWN, _LEVELS = 20, 2
"""Kernels and levels of caches in the table; -v shows all kernels, --json everything."""


@dataclass(frozen=True)
class Peer:
    """ONNX Runtime of that version on the same board: the counts of one inference."""

    version: str
    counts: Counts


@dataclass(frozen=True)
class Emulation:
    """One inference of a compiled model on the board of a device, and what it is compared with."""

    target: str
    device: Device
    counts: ModelCounts
    kernels: tuple[KernelCounts, ...]
    peer: Peer | None

    @cached_property
    def cycles(self) -> float:
        """The estimate for kernels and what runs between them."""
        return sum(kernel.cycles for kernel in self.kernels) + estimate_cycles(self.counts.outside, self.device).cycles

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The simulated caches by name: L1D, L2, ..."""
        return tuple("L1D" if cache.level == 1 else f"L{cache.level}" for cache in self.device.caches)


def bench_emulated(arguments: argparse.Namespace) -> int:
    """Count one inference, print, and compare where that is asked for."""
    _check_options(arguments)
    from ...lowering.bundle.emulated_model import opened

    root = _root(arguments)
    with Progress(arguments, "emulate"), opened(arguments.bundle) as model:
        found = _measured(arguments, model, root)
    if arguments.json:
        render.print_json(_as_dict(found))
    elif not arguments.quiet:
        _print(arguments, found)
    return 0


def _check_options(arguments: argparse.Namespace) -> None:
    for name in ("repeat", "threads"):
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name}: has no meaning with --emulate, which counts one inference on one core")
    if arguments.against is not None and arguments.arm64_root is None:
        raise UsageError(
            "--against ort: with --emulate it needs ONNX Runtime for arm64; "
            "`benchmarks/arm64_root.sh FOLDER` gets it, then add --arm64-root FOLDER"
        )
    if arguments.arm64_root is not None and arguments.against is None:
        raise UsageError("--arm64-root: is for --against ort, which was not asked for")


def _root(arguments: argparse.Namespace) -> Arm64Root | None:
    from ...lowering.arm.peer import Arm64Root

    return Arm64Root.at(arguments.arm64_root) if arguments.arm64_root is not None else None


def _measured(arguments: argparse.Namespace, model: EmulatedModel, root: Arm64Root | None) -> Emulation:
    target, inputs = model.target, bench_inputs(arguments, model.inputs)
    path = original(arguments, model.manifest) if root is not None else None  # raises before the work
    counts = model.count(inputs)
    kernels = by_kernel(counts, model.plan, target.device)
    peer = Peer(root.version, root.count(path, inputs, target.device)) if root and path else None
    return Emulation(target.name, target.device, counts, kernels, peer)


def _as_dict(found: Emulation) -> dict[str, Any]:
    def plain(counts: Counts) -> dict[str, Any]:
        singles = {name: getattr(counts, name) for name in SINGLES}
        return {**singles, "misses": dict(zip(found.levels, counts.misses, strict=False))}

    said: dict[str, Any] = {
        "target": found.target,
        "inference": plain(found.counts.inference),
        "between_kernels": plain(found.counts.outside),
        "estimated_cycles": found.cycles,
        "estimated_seconds": found.cycles / found.device.clock,
        "kernels": [
            {
                "kernel": kernel.kernel,
                "operators": kernel.operators,
                "calls": kernel.calls,
                **plain(kernel.counts),
                "estimated_cycles": kernel.cycles,
            }
            for kernel in found.kernels
        ],
    }
    if found.peer is not None:
        said["onnxruntime"] = {"version": found.peer.version, "inference": plain(found.peer.counts)}
    return said


def _print(arguments: argparse.Namespace, found: Emulation) -> None:
    misses = tuple(f"{level} misses" for level in found.levels[:_LEVELS])
    columns = ("instructions", "fmla", "loads", "stores", "other", *misses)
    title = f"{arguments.bundle}: one inference on an emulated {found.target}, one core"
    rows = _rows(found, None if arguments.verbose else _SHOWN)
    render.table(title, ("kernel", "operators", "calls", *columns, "cycles (estimate)"), rows, left=2)
    if found.peer is not None:
        render.table("one inference", ("", *columns), _comparison(found.counts.inference, found.peer), left=1)
    write(_estimate(found))


def _rows(found: Emulation, shown: int | None) -> list[tuple[str, ...]]:
    """The first kernels, the others together, what runs between them, and the sum."""
    kernels = found.kernels
    first, others = (kernels, ()) if shown is None or len(kernels) <= shown + 1 else (kernels[:shown], kernels[shown:])
    rows = [_row(k.kernel, k.operators, k.calls, k.counts, k.cycles) for k in first]
    if others:
        calls, cycles = sum(k.calls for k in others), sum(k.cycles for k in others)
        rows.append(_row(f"{len(others)} other kernels (-v)", (), calls, total(k.counts for k in others), cycles))
    counts, outside = found.counts, found.counts.outside
    rows.append(_row("between kernels", (), None, outside, estimate_cycles(outside, found.device).cycles))
    rows.append(_row("model", (), len(counts.calls), counts.inference, found.cycles))
    return rows


def _row(name: str, operators: Sequence[str], calls: int | None, counts: Counts, cycles: float) -> tuple[str, ...]:
    calls_text = "" if calls is None else str(calls)
    return (name, _operators(operators), calls_text, *_figures(counts), render.figure(cycles))


def _operators(operators: Sequence[str]) -> str:
    """``Conv, 2 Mul``, in the order of first appearance."""
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in Counter(operators).items())


def _classes(counts: Counts) -> tuple[int, ...]:
    rest = counts.instructions - counts.fused - counts.loads - counts.stores
    return (counts.instructions, counts.fused, counts.loads, counts.stores, rest, *counts.misses[:_LEVELS])


def _figures(counts: Counts) -> tuple[str, ...]:
    return tuple(map(render.figure, _classes(counts)))


def _comparison(own: Counts, peer: Peer) -> list[tuple[str, ...]]:
    mine, theirs = _classes(own), _classes(peer.counts)
    ratios = (f"{a / b:.2f}x" if b else "" for a, b in zip(mine, theirs, strict=True))
    return [
        ("eqfuse", *map(render.figure, mine)),
        (f"ONNX Runtime {peer.version}", *map(render.figure, theirs)),
        ("eqfuse / ONNX Runtime", *ratios),
    ]


def _estimate(found: Emulation) -> str:
    clock = found.device.clock
    taken = f"{render.figure(found.cycles)} cycles, {render.seconds(found.cycles / clock)} at {clock / 1e9:g} GHz"
    return f"estimate: {taken}, from instructions and misses alone: no pipeline is simulated"
