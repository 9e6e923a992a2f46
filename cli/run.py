"""``eqfuse run``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import numpy as np

from ..errors import UsageError
from ..support.files import check_destination, staged_file
from . import render
from .progress import Progress
from .terminal import write

if TYPE_CHECKING:
    from ..lowering.interface import Port

Array = np.ndarray[Any, Any]


def run(arguments: argparse.Namespace) -> int:
    """Run once, and show or write what comes out."""
    from ..lowering.interface import random_inputs
    from ..lowering.running.isolated_model import IsolatedModel, name_crashes

    if arguments.output is not None:
        _check_output(arguments.output)
    with name_crashes(arguments.bundle), Progress(arguments, "run"):
        model = IsolatedModel(arguments.bundle, arguments.threads)
        given = _given(arguments.input, model.inputs)
        if arguments.random is not None:
            given = {**random_inputs(model.inputs, arguments.random), **given}
        results = model.run(given)
    if arguments.output is not None:
        _write(arguments.output, results)
    if arguments.json:
        render.print_json({name: _described(array) for name, array in results.items()})
    elif not arguments.quiet:
        rows = [(name, *map(str, _described(array).values())) for name, array in results.items()]
        render.table(str(arguments.bundle), ("output", "type", "shape", "min", "max", "mean"), rows, left=2)
        if arguments.output is not None:
            write(f"written: {arguments.output}")
    return 0


def _given(texts: Sequence[str], ports: Sequence[Port]) -> dict[str, Any]:
    """``x.npy`` is the input that no other text names, in order; ``name=x.npy`` is that one; an .npz holds several."""
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


def _check_output(path: Path) -> None:
    check_destination(path)
    if path.suffix not in (".npz", ".npy"):
        raise UsageError(f"--output {path}: name an .npz or .npy file")


def _write(path: Path, results: Mapping[str, Array]) -> None:
    if path.suffix == ".npy" and len(results) != 1:
        raise UsageError(f"--output {path}: there are {len(results)} outputs; name an .npz file")
    with staged_file(path) as staged:
        if path.suffix == ".npy":
            np.save(staged, next(iter(results.values())))
        else:
            _write_archive(staged, results)


def _write_archive(path: Path, results: Mapping[str, Array]) -> None:
    """What numpy.savez writes, which takes no array that is called like one of its parameters."""
    with ZipFile(path, "w") as archive:
        for name, array in results.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _described(array: Array) -> dict[str, Any]:
    numbers = array.astype(np.float64) if array.size else np.zeros(1)
    figures = {name: float(f"{getattr(numbers, name)():.6g}") for name in ("min", "max", "mean")}
    return {"type": array.dtype.name, "shape": list(array.shape), **figures}
