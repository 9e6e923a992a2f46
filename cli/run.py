"""``eqfuse run``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import numpy as np

from ..support.errors import UsageError
from ..support.files import check_destination, staged_file
from . import render
from .progress import Progress
from .terminal import write

if TYPE_CHECKING:
    from ..lowering.base.ports import Port

Array = np.ndarray[Any, Any]


def run(arguments: argparse.Namespace) -> int:
    """Run once, and show or write the outputs."""
    from ..lowering.base.ports import random_inputs
    from ..lowering.running.isolated_model import IsolatedModel, name_crashes

    if arguments.output is not None:
        check_destination(arguments.output)
        if arguments.output.suffix not in (".npz", ".npy"):
            raise UsageError(f"--output {arguments.output}: name an .npz or .npy file")
    with name_crashes(arguments.bundle), Progress(arguments, "run"):
        model = IsolatedModel(arguments.bundle, arguments.threads)
        inputs = _read_inputs(arguments.input, model.inputs)
        if arguments.random is not None:
            inputs = {**random_inputs(model.inputs, arguments.random, model.manifest.typical_sizes), **inputs}
        results = model.run(inputs)
    if arguments.output is not None:
        _write(arguments.output, results)
    if arguments.json:
        render.print_json({name: _describe(array) for name, array in results.items()})
    elif not arguments.quiet:
        rows = [(name, *map(str, _describe(array).values())) for name, array in results.items()]
        render.table(str(arguments.bundle), ("output", "type", "shape", "min", "max", "mean"), rows, left=2)
        if arguments.output is not None:
            write(f"written: {arguments.output}")
    return 0


def _read_inputs(texts: Sequence[str], ports: Sequence[Port]) -> dict[str, Any]:
    """The inputs in files: ``name=x.npy`` names one, an .npz names several; others are the unnamed inputs, in order."""
    named: dict[str, Any] = {}
    unnamed: list[Array] = []
    for text in texts:
        name, equals, file = text.partition("=")
        read = _read(Path(file if equals else text))
        if isinstance(read, Mapping):
            named |= read
        elif equals:
            named[name] = read
        else:
            unnamed.append(read)
    free = [port.name for port in ports if port.name not in named]
    if len(unnamed) > len(free):
        raise UsageError(f"--input: {len(unnamed)} files without a name, and {len(free)} inputs are left for them")
    return {**dict(zip(free, unnamed, strict=False)), **named}


def _read(path: Path) -> Array | dict[str, Array]:
    if not path.is_file():
        raise UsageError(f"--input {path}: no such file")
    try:
        content = np.load(path, allow_pickle=False)
        return content if isinstance(content, np.ndarray) else dict(content)
    except (ValueError, OSError, EOFError) as error:
        raise UsageError(f"--input {path}: is no .npy or .npz file of numbers: {error}") from None


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
