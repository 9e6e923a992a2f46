"""Running a bundle for an accelerator: its programs in the functional simulator, share after share of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from ...bundle.bundle import read_whole_bundle
from ...bundle.isolation import call_isolated, number
from ...bundle.loaded import LoadedModel, fit_input
from ..network.storage import cast_array, plain_array, stored_array
from ..program.instructions import Kernel, Program
from ..simulate.function import simulate_function
from .files import program_folders, read_constants, read_kernels, read_program
from .section import ClusterSection, Section, section_of

Array = np.ndarray[Any, Any]


class _ClusterModel:
    """A program of a bundle, with its constants and kernels."""

    def __init__(self, folder: Path, section: ClusterSection, opset: int) -> None:
        """Read the program. Raises ProgramError and BundleError."""
        self.folder, self.section, self.opset = folder, section, opset
        self.program: Program = read_program(folder)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The functions that compute tiles, by the names of the program's kernels."""
        return read_kernels(self.folder, self.opset)

    @cached_property
    def _constants(self) -> dict[str, Array]:
        return read_constants(self.folder, self.program)

    def execute(self, feeds: Mapping[str, Array], first: int, samples: int) -> dict[str, Array]:
        """Execute the program on its share, which begins with sample `first` of `samples`: outputs by port."""
        contents = dict(self._constants)
        for wire in self.section.inputs:
            array, buffer = feeds[wire.port], self.program.buffers_by_name[wire.buffer]
            if wire.axis is not None:
                rows = array.shape[wire.axis]
                start, stop = (rows * sample // samples for sample in (first, first + self.section.samples))
                array = np.take(array, range(start, stop), wire.axis)
            contents[wire.buffer] = stored_array(wire.order, cast_array(array, buffer.dtype)).reshape(buffer.shape)
        results = simulate_function(self.program, self.kernels, contents)
        return {wire.port: plain_array(wire.order, results[wire.buffer]) for wire in self.section.outputs}


class SimulatedModel(LoadedModel):
    """A bundle whose programs a simulator executes. What clusters do at once, it does one after another."""

    def __init__(self, path: Path) -> None:
        """Load the bundle. Raises BundleError if it is damaged."""
        self.path = path
        self.manifest = read_whole_bundle(path)
        self.section: Section = section_of(self.manifest.dsa, str(path))
        sections = self.section.programs
        folders = program_folders(path, len(sections))
        self.programs = [_ClusterModel(*each, self.section.opset) for each in zip(folders, sections, strict=True)]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the whole batch, with names in and out."""
        self._check_names(inputs)
        feeds = {port.name: fit_input(port, inputs[port.name]) for port in self.inputs}
        return self.run_programs(feeds, self.section.whole_batch)

    def run_programs(self, feeds: Mapping[str, Array], numbers: Sequence[int]) -> dict[str, Array]:
        """Execute programs, by their numbers, each on its share of the samples."""
        ends = [*accumulate((self.programs[number].section.samples for number in numbers), initial=0)]
        shares = [
            self.programs[number].execute(feeds, first, ends[-1]) for number, first in zip(numbers, ends, strict=False)
        ]
        outputs: dict[str, Array] = {}
        for wire in self.section.outputs:
            arrays = [share[wire.port] for share in shares]
            outputs[wire.port] = arrays[0] if wire.axis is None else np.concatenate(arrays, wire.axis)
        return {  # an output may as well be an input
            port.name: (outputs[port.name] if port.name in outputs else feeds[port.name]).astype(np.dtype(port.dtype))
            for port in self.outputs
        }


class IsolatedSimulation(SimulatedModel):
    """Programs that another process simulates: their tile kernels were just compiled for this machine.

    If that crashes or takes longer than `seconds`, CrashError is raised.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        """Load the bundle. Raises BundleError if it is damaged."""
        super().__init__(path)
        self._key = (path, number())
        self._seconds = seconds

    def run_programs(self, feeds: Mapping[str, Array], numbers: Sequence[int]) -> dict[str, Array]:
        """Execute programs, by their numbers, each on its share of the samples."""
        return call_isolated(self._seconds, _run_programs, self._key, dict(feeds), tuple(numbers))


@lru_cache(maxsize=1)
def _model(key: tuple[Path, int]) -> SimulatedModel:
    return SimulatedModel(key[0])


def _run_programs(key: tuple[Path, int], feeds: Mapping[str, Array], numbers: Sequence[int]) -> dict[str, Array]:
    return _model(key).run_programs(feeds, numbers)
