"""Running a bundle for an accelerator: its program in the functional simulator, share after share of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...bundle.bundle import read_whole_bundle
from ...bundle.isolation import call_isolated, number
from ...bundle.loaded import LoadedModel, fit_input
from ..network.storage import cast_array, plain_array, stored_array
from ..program.instructions import Kernel, Program
from ..simulate.function import simulate_function
from .files import read_constants, read_kernels, read_program
from .section import Section, section_of

Array = np.ndarray[Any, Any]


class SimulatedModel(LoadedModel):
    """A bundle whose program a simulator executes. What clusters do at once, it does one after another."""

    def __init__(self, path: Path) -> None:
        """Load the bundle. Raises BundleError if it is damaged."""
        self.path = path
        self.manifest = read_whole_bundle(path)
        self.section: Section = section_of(self.manifest.dsa, str(path))
        self.program: Program = read_program(path)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The functions that compute tiles, by the names of the program's kernels."""
        return read_kernels(self.path, self.section.opset)

    @cached_property
    def _constants(self) -> dict[str, Array]:
        return read_constants(self.path, self.program)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the whole batch, with names in and out."""
        self._check_names(inputs)
        feeds = {port.name: fit_input(port, inputs[port.name]) for port in self.inputs}
        allocation = self.section.allocation
        return self.run_programs(feeds, allocation.iterations * allocation.clusters)

    def run_programs(self, feeds: Mapping[str, Array], count: int) -> dict[str, Array]:
        """Execute the program `count` times, each time on its share of the samples."""
        shares = [self._execute(feeds, number, count) for number in range(count)]
        outputs: dict[str, Array] = {}
        for wire in self.section.outputs:
            arrays = [plain_array(wire.order, share[wire.buffer]) for share in shares]
            outputs[wire.port] = arrays[0] if wire.axis is None else np.concatenate(arrays, wire.axis)
        return {  # an output may as well be an input
            port.name: (outputs[port.name] if port.name in outputs else feeds[port.name]).astype(np.dtype(port.dtype))
            for port in self.outputs
        }

    def _execute(self, feeds: Mapping[str, Array], number: int, count: int) -> dict[str, Array]:
        """Execute the program on share `number` of `count`."""
        contents = dict(self._constants)
        for wire in self.section.inputs:
            array, buffer = feeds[wire.port], self.program.buffers_by_name[wire.buffer]
            if wire.axis is not None:
                size = array.shape[wire.axis] // count
                array = np.take(array, range(number * size, (number + 1) * size), wire.axis)
            contents[wire.buffer] = stored_array(wire.order, cast_array(array, buffer.dtype)).reshape(buffer.shape)
        return simulate_function(self.program, self.kernels, contents)


class IsolatedSimulation(SimulatedModel):
    """A program that another process simulates: its tile kernels were just compiled for this machine.

    If that crashes or takes longer than `seconds`, CrashError is raised.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        """Load the bundle. Raises BundleError if it is damaged."""
        super().__init__(path)
        self._key = (path, number())
        self._seconds = seconds

    def run_programs(self, feeds: Mapping[str, Array], count: int) -> dict[str, Array]:
        """Execute the program `count` times, each time on its share of the samples."""
        return call_isolated(self._seconds, _run_programs, self._key, dict(feeds), count)


@lru_cache(maxsize=1)
def _model(key: tuple[Path, int]) -> SimulatedModel:
    return SimulatedModel(key[0])


def _run_programs(key: tuple[Path, int], feeds: Mapping[str, Array], count: int) -> dict[str, Array]:
    return _model(key).run_programs(feeds, count)
