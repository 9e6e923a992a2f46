"""``eqfuse run``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from ..driver.run import run_bundle
from ..support.errors import UsageError
from ..support.files import check_destination, staged_file
from . import render
from .progress import Progress
from .terminal import write

Array = np.ndarray[Any, Any]


def run(arguments: argparse.Namespace) -> int:
    """Run once, and show or write the outputs."""
    if arguments.output is not None:
        check_destination(arguments.output)
        if arguments.output.suffix not in (".npz", ".npy"):
            raise UsageError(f"--output {arguments.output}: name an .npz or .npy file")
    with Progress(arguments, "run"):
        results = run_bundle(arguments.bundle, arguments.input, arguments.random, arguments.threads)
    if arguments.output is not None:
        _write(arguments.output, results)
    if arguments.json:
        render.print_json({"outputs": {name: _describe(array) for name, array in results.items()}})
    elif not arguments.quiet:
        rows = [(name, *map(str, _describe(array).values())) for name, array in results.items()]
        render.table(str(arguments.bundle), ("output", "type", "shape", "min", "max", "mean"), rows, left=2)
        if arguments.output is not None:
            write(f"written: {arguments.output}")
    return 0


def _write(path: Path, results: Mapping[str, Array]) -> None:
    if path.suffix == ".npy" and len(results) != 1:
        raise UsageError(f"--output {path}: there are {len(results)} outputs; name an .npz file")
    with staged_file(path) as staged:
        if path.suffix == ".npy":
            np.save(staged, next(iter(results.values())))
        else:
            _write_archive(staged, results)


def _write_archive(path: Path, results: Mapping[str, Array]) -> None:
    """Write the file that numpy.savez would; it refuses arrays that have the name of one of its parameters."""
    with ZipFile(path, "w") as archive:
        for name, array in results.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _describe(array: Array) -> dict[str, Any]:
    numbers = array.astype(np.float64) if array.size else np.zeros(1)
    figures = {name: float(f"{getattr(numbers, name)():.6g}") for name in ("min", "max", "mean")}
    return {"type": array.dtype.name, "shape": list(array.shape), **figures}
