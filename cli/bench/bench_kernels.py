"""``eqfuse bench --kernels``: where the time of a compiled model goes, kernel by kernel."""

from __future__ import annotations

import argparse

from ...errors import UsageError
from .. import render
from ..progress import Progress
from .bench_inputs import bench_inputs
from .kernel_report import breakdown_as_dict, print_breakdown

_REPEAT, _SHOWN = 30, 25
"""Runs, and kernels in the table; -v and --json show all kernels."""
_CLOCKS = {"cpu": "CPU", "wall": "wall-clock"}
"""What times one thread, and what times several, whose CPU time has their waiting in it."""


def bench_kernels(arguments: argparse.Namespace) -> int:
    """Time every kernel where it stands, and print."""
    _check_options(arguments)
    from ...lowering.bundle.isolation import NO_LIMIT, isolated
    from ...lowering.running.isolated_model import IsolatedModel, crashes_of
    from ...lowering.running.kernel_times import kernel_times

    repeat = arguments.repeat or _REPEAT
    with crashes_of(arguments.bundle), Progress(arguments, "measure"):
        model = IsolatedModel(arguments.bundle, arguments.threads)
        inputs, threads = bench_inputs(arguments, model.inputs), model.threads
        model.run(inputs)  # says where it crashes, if it does
        found = isolated(NO_LIMIT, kernel_times, arguments.bundle, inputs, threads, repeat)
    clock = "cpu" if threads == 1 else "wall"
    if arguments.json:
        render.print_json({"threads": threads, "repeat": repeat, "clock": clock, **breakdown_as_dict(found)})
    elif not arguments.quiet:
        title = f"{arguments.bundle}: {repeat} runs, {threads} thread(s), median {_CLOCKS[clock]} time"
        print_breakdown(title, found, len(found.kernels) if arguments.verbose else _SHOWN)
    return 0


def _check_options(arguments: argparse.Namespace) -> None:
    if arguments.emulate:
        raise UsageError("--kernels: has no meaning with --emulate, which shows every kernel anyway")
    if arguments.against is not None:
        raise UsageError("--kernels: cannot be had with --against, for ONNX Runtime has kernels of its own")
    if arguments.arm64_root is not None:
        raise UsageError("--arm64-root: is for --emulate --against ort")
