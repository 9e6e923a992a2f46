"""Running a bundle for an accelerator: its program in the functional simulator, share after share of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...bundle.bundle import whole
from ...bundle.isolation import isolated, number
from ...bundle.loaded import LoadedModel, fitting
from ..network.storage import cast_array, plain_array, stored_array
from ..program.instructions import Buffer, Kernel, Program
from ..simulate.function import simulate_function
from .files import read_constants, read_kernels, read_program
from .section import Section, Wire, section_of

Array = np.ndarray[Any, Any]


class SimulatedModel(LoadedModel):
    """A bundle whose program a simulator executes. What clusters do at once, it does one after another."""

    def __init__(self, path: Path) -> None:
        """Load the bundle. Raises BundleError where it is damaged."""
        self.path = path
        self.manifest = whole(path)
        self.section: Section = section_of(self.manifest.dsa, str(path))
        self.program: Program = read_program(path)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """What tiles compute."""
        return read_kernels(self.path, self.section.opset)

    @cached_property
    def _constants(self) -> dict[str, Array]:
        return read_constants(self.path, self.program)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The whole batch, with names in and out."""
        self._check_names(inputs)
        given = {port.name: fitting(port, inputs[port.name]) for port in self.inputs}
        allocation = self.section.allocation
        return self.run_programs(given, allocation.iterations * allocation.clusters)

    def run_programs(self, given: Mapping[str, Array], count: int) -> dict[str, Array]:
        """As many samples as that many executions of the program take, each its share."""
        shares = [self._execute(self._share(given, number, count)) for number in range(count)]
        types = {port.name: np.dtype(port.dtype) for port in self.outputs}
        joined = {
            wire.port: _joined([plain_array(wire.order, share[wire.buffer]) for share in shares], wire)
            for wire in self.section.outputs
        }
        return {
            port.name: (joined[port.name] if port.name in joined else given[port.name]).astype(types[port.name])
            for port in self.outputs
        }

    def _share(self, given: Mapping[str, Array], number: int, count: int) -> dict[str, Array]:
        buffers = self.program.buffers_by_name
        return {
            wire.buffer: _prepared(_cut(given[wire.port], wire, number, count), wire, buffers[wire.buffer])
            for wire in self.section.inputs
        }

    def _execute(self, given: Mapping[str, Array]) -> dict[str, Array]:
        return simulate_function(self.program, self.kernels, {**self._constants, **given})


class IsolatedSimulation(SimulatedModel):
    """A program that another process simulates: what its tiles compute was just compiled for this machine.

    Where that crashes or takes longer than `seconds`, CrashError is raised.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        """Load the bundle. Raises BundleError where it is damaged."""
        super().__init__(path)
        self._key = (path, number())
        self._seconds = seconds

    def run_programs(self, given: Mapping[str, Array], count: int) -> dict[str, Array]:
        """As many samples as that many executions of the program take, each its share."""
        return isolated(self._seconds, _run_programs, self._key, dict(given), count)


@lru_cache(maxsize=1)
def _model(key: tuple[Path, int]) -> SimulatedModel:
    path, _ = key
    return SimulatedModel(path)


def _run_programs(key: tuple[Path, int], given: Mapping[str, Array], count: int) -> dict[str, Array]:
    return _model(key).run_programs(given, count)


def _cut(array: Array, wire: Wire, number: int, count: int) -> Array:
    if wire.axis is None:
        return array
    size = array.shape[wire.axis] // count
    return np.take(array, range(number * size, (number + 1) * size), wire.axis)


def _prepared(array: Array, wire: Wire, buffer: Buffer) -> Array:
    return stored_array(wire.order, cast_array(array, buffer.dtype)).reshape(buffer.shape)


def _joined(arrays: list[Array], wire: Wire) -> Array:
    return arrays[0] if wire.axis is None else np.concatenate(arrays, wire.axis)
