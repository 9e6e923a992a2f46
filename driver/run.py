"""One run of a bundle, on inputs from files or random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..lowering.base.ports import Port, random_inputs
from ..lowering.running.isolated_model import IsolatedModel, name_crashes
from ..support.errors import UsageError

Array = np.ndarray[Any, Any]


def run_bundle(bundle: Path, files: Sequence[str], seed: int | None, threads: int | None) -> Mapping[str, Array]:
    """The outputs by name, from a run in a separate process.

    `files` are ``x.npy``, ``name=x.npy`` or ``all.npz``; with a seed, the other inputs are random numbers. Raises
    UsageError for files that do not fit the inputs, and CrashError if a kernel ends the process.
    """
    with name_crashes(bundle):
        model = IsolatedModel(bundle, threads)
        inputs = _read_inputs(files, model.inputs)
        if seed is not None:
            inputs = {**random_inputs(model.inputs, seed, model.manifest.typical_sizes), **inputs}
        return model.run(inputs)


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
    except OSError as error:
        raise UsageError(f"--input {path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, BadZipFile):
        raise UsageError(f"--input {path}: is no .npy or .npz file of numbers") from None
