"""``eqfuse bench``: how long a compiled model takes, or in turns with ONNX Runtime; the others are in `bench_*.py`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...lowering.running.turns import Middle, Runs
from .. import render
from ..progress import Progress
from .bench_inputs import bench_inputs, original

_REPEAT = 50


def bench(arguments: argparse.Namespace) -> int:
    """Measure, print, and compare where that is asked for."""
    if _is_for_accelerator(arguments.bundle):
        from .bench_dsa import bench_program

        return bench_program(arguments)
    if arguments.trace is not None or arguments.against not in (None, "ort"):
        option = "--trace" if arguments.trace is not None else f"--against {arguments.against}"
        raise UsageError(f"{option}: is for programs of an accelerator (compiled with --target dsa-NAME)")
    if arguments.kernels:
        from .bench_kernels import bench_kernels

        return bench_kernels(arguments)
    if arguments.emulate:
        from .bench_emulate import bench_emulated

        return bench_emulated(arguments)
    if arguments.arm64_root is not None:
        raise UsageError("--arm64-root: is for --emulate --against ort")
    return _bench_here(arguments, arguments.repeat or _REPEAT)


def _is_for_accelerator(bundle: Path) -> bool:
    """What is wrong with a bundle is said by whoever loads it."""
    from ...lowering.bundle.bundle import read_manifest
    from ...lowering.errors import BundleError

    try:
        return read_manifest(bundle).dsa is not None
    except BundleError:
        return False


def _bench_here(arguments: argparse.Namespace, repeat: int) -> int:
    from ...lowering.running.isolated_model import IsolatedModel, crashes_of, times

    with crashes_of(arguments.bundle), Progress(arguments, "measure"):
        model = IsolatedModel(arguments.bundle, arguments.threads)
        inputs = bench_inputs(arguments, model.inputs)
        path = original(arguments, model.manifest) if arguments.against is not None else None
        model.run(inputs)  # says where it crashes, if it does
        runs = times({"eqfuse": model}, inputs, repeat, path)
    figures = _figures(runs)
    if arguments.json:
        render.print_json({"threads": model.threads, "repeat": repeat, **_as_dict(figures)})
    elif not arguments.quiet:
        _print(f"{arguments.bundle}: {repeat} runs, {model.threads} thread(s)", figures)
    return 0


def _figures(runs: Mapping[str, Runs]) -> dict[str, tuple[Middle, Middle]]:
    """Wall and CPU seconds of each; where there are two, also how many times as long the second takes, pair by pair."""
    found = {name: (Middle.of(r.wall), Middle.of(r.cpu)) for name, r in runs.items()}
    if len(runs) == 2:
        own, other = runs.values()
        wall = [b / a for a, b in zip(own.wall, other.wall, strict=True)]
        cpu = [b / max(a, 1e-9) for a, b in zip(own.cpu, other.cpu, strict=True)]
        found["speed-up"] = Middle.of(wall), Middle.of(cpu)
    return found


def _as_dict(figures: Mapping[str, tuple[Middle, Middle]]) -> dict[str, Any]:
    return {name: {"wall": wall.as_dict(), "cpu": cpu.as_dict()} for name, (wall, cpu) in figures.items()}


def _print(title: str, figures: Mapping[str, tuple[Middle, Middle]]) -> None:
    rows = [(name, *map(_text(name), middles)) for name, middles in figures.items()]
    render.table(title, ("", "wall: median (middle half)", "CPU: median (middle half)"), rows, left=1)


def _text(name: str) -> Callable[[Middle], str]:
    def show(found: Middle) -> str:
        if name == "speed-up":
            return f"{found.median:.2f}x ({found.lower:.2f} to {found.upper:.2f})"
        return f"{render.seconds(found.median)} ({render.seconds(found.lower)} to {render.seconds(found.upper)})"

    return show
