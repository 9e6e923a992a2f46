"""The models that are judged, with ordinary inputs: exports of architectures, and networks of this repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.interface import inputs_of

from ..architectures import EXPORTERS, Input
from ..architectures.exporting import Export
from ..networks import AGO

Array = NDArray[Any]
SHIPPED = ("mobilenet_v2_56", "mnasnet_56", "squeezenet_56", "shufflenet_v2_56", "bert_tiny")
"""Small networks of `networks/`."""
_TYPES = 2
"""Integers below it are tokens and their types."""


@dataclass(frozen=True)
class Subject:
    """A model in a file, its inputs, and the types of those that differ from the usual ones."""

    name: str
    path: Path
    inputs: tuple[Input, ...]
    types: Mapping[str, np.dtype[Any]] = field(default_factory=dict)

    def draw(self, seed: int) -> dict[str, Array]:
        """Ordinary inputs, by name."""
        generator = np.random.default_rng(seed)
        drawn = {each.name: _draw(each, generator) for each in self.inputs}
        return {name: array.astype(self.types.get(name, array.dtype)) for name, array in drawn.items()}


def _draw(entry: Input, generator: np.random.Generator) -> Array:
    if entry.kind == "integers":
        return generator.integers(0, entry.high, entry.shape)
    if entry.kind == "ones":
        return np.ones(entry.shape, np.int64)
    drawn = generator.random(entry.shape) if entry.kind == "uniform" else generator.standard_normal(entry.shape)
    return drawn.astype(np.float32)


def exported_subject(export: Export) -> Subject:
    """An architecture in the form it was exported in. An exporter drops inputs that no output depends on, and one that
    is not PyTorch's has names of its own for them."""
    ports = {port.name: port for port in inputs_of(read(export.path))}
    inputs = export.architecture.inputs
    if export.architecture.library in EXPORTERS:
        inputs = tuple(replace(entry, name=name) for entry, name in zip(inputs, ports, strict=True))
    types = {name: np.dtype(port.dtype) for name, port in ports.items()}
    return Subject(export.name, export.path, tuple(each for each in inputs if each.name in ports), types)


def shipped_subjects(names: Sequence[str], folder: Path) -> list[Subject]:
    """Networks that this repository builds, written to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_shipped(name, folder / f"{name}.onnx") for name in names]


def _shipped(name: str, path: Path) -> Subject:
    if not path.exists():
        path.write_bytes(AGO[name].build().SerializeToString())
    ports: Mapping[str, Any] = {port.name: port for port in inputs_of(read(path))}
    inputs = (
        Input(name, port.static_shape, "normal" if np.dtype(port.dtype).kind == "f" else "integers", _TYPES)
        for name, port in ports.items()
    )
    return Subject(name, path, tuple(inputs))
