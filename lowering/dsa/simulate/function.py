"""Runs a program on real bytes: DDR, GB and LB are byte arrays, and kernels compute on views of them.

A memory starts with every bit set (NaN in any floating-point format), so what is read before it is written shows in the
result, as do bytes that are overwritten too early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..program.instructions import (
    INITIAL,
    Buffer,
    Compute,
    IndexedTransfer,
    Kernel,
    Memory,
    Movement,
    Operand,
    Program,
    ProgramError,
    Region,
    Role,
    Transfer,
    describe,
)
from .timing import Timeline


def simulate_function(
    program: Program,
    kernels: Mapping[str, Kernel],
    contents: Mapping[str, np.ndarray],
    timeline: Timeline | None = None,
) -> dict[str, np.ndarray]:
    """The values of the output buffers, by name.

    `contents` are the values of the input and constant buffers. Instructions run in program order; with a `timeline`
    each reads its operands when it starts and writes its results when it ends there, so that a missing wait gives
    other numbers. Raises ProgramError for a kernel or content that is missing or has another type or shape.
    """
    machine = _Machine(program, kernels)
    machine.fill(contents)
    if timeline is None:
        for index in range(len(program.instructions)):
            machine.run(index)
    else:
        machine.replay(timeline)
    outputs = (buffer for buffer in program.buffers if buffer.role is Role.OUTPUT)
    return {buffer.name: machine.value(buffer).copy() for buffer in outputs}


@dataclass
class _Machine:
    program: Program
    kernels: Mapping[str, Kernel]
    memories: dict[Memory, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ends: dict[Memory, int] = {}
        for buffer in self.program.buffers:
            ends[buffer.memory] = max(ends.get(buffer.memory, 0), buffer.address + buffer.size)
        for region in self.program.regions():
            ends[region.memory] = max(ends.get(region.memory, 0), region.end)
        self.memories = {memory: np.full(end, 0xFF, np.uint8) for memory, end in ends.items()}

    def fill(self, contents: Mapping[str, np.ndarray]) -> None:
        """Inputs and constants."""
        for buffer in self.program.buffers:
            if buffer.role not in INITIAL:
                continue
            if (given := contents.get(buffer.name)) is None:
                raise ProgramError(f"{buffer.role.value} {buffer.name!r}: no content given")
            if given.dtype != np.dtype(buffer.dtype) or given.shape != buffer.shape:
                wanted, actual = f"{buffer.dtype}{list(buffer.shape)}", f"{given.dtype}{list(given.shape)}"
                raise ProgramError(f"{buffer.role.value} {buffer.name!r}: needs {wanted}, not {actual}")
            self.value(buffer)[...] = given

    def value(self, buffer: Buffer) -> np.ndarray:
        """A view of a buffer's value."""
        return self.view(buffer.value)

    def view(self, operand: Operand) -> np.ndarray:
        """A view of the operand's bytes, as its type and shape."""
        region, dtype, leading = operand.region, np.dtype(operand.dtype), operand.leading
        if leading is None or operand.size != region.size:
            raise ProgramError(f"{region} is no {operand.dtype}{list(operand.shape)}")
        planes, rows = leading
        strides = (
            *_strides(operand.shape[:planes], region.plane_stride),
            *_strides(operand.shape[planes:rows], region.stride),
            *_strides(operand.shape[rows:], dtype.itemsize),
        )
        return np.ndarray(operand.shape, dtype, self.memories[region.memory].data, region.address, strides)

    def rows(self, region: Region) -> np.ndarray:
        """A view of a region's bytes: planes of rows."""
        shape, strides = (region.planes, region.rows, region.row_bytes), (region.plane_stride, region.stride, 1)
        return np.ndarray(shape, np.uint8, self.memories[region.memory].data, region.address, strides)

    def run(self, index: int) -> None:
        """One instruction, on the memories themselves."""
        match self.program.instructions[index]:
            case (Transfer() | IndexedTransfer()) as movement:
                self._write(movement, self._read(index, movement))
            case Compute() as compute:
                kernel = self._kernel(index, compute)
                inputs = [self.view(each) for each in compute.inputs]
                if compute.in_place:
                    inputs = [view.copy() for view in inputs]
                kernel(inputs, [self.view(each) for each in compute.outputs])

    def _kernel(self, index: int, compute: Compute) -> Kernel:
        if compute.kernel not in self.kernels:
            instruction = describe(index, compute)
            raise ProgramError(f"{instruction}: no kernel {compute.kernel!r} among the {len(self.kernels)} given")
        return self.kernels[compute.kernel]

    def _read(self, index: int, movement: Movement) -> np.ndarray:
        """The bytes that a transfer moves."""
        if isinstance(movement, Transfer):
            return self.rows(movement.source).copy()
        table = self.rows(movement.table).reshape(-1, movement.row_bytes)
        indices = self.view(movement.indices)
        wrong = indices[(indices < -len(table)) | (indices >= len(table))]
        if wrong.size:
            problem = f"index {wrong[0]} is out of range for the {len(table)} rows of {movement.table}"
            raise ProgramError(f"{describe(index, movement)}: {problem}")
        return np.asarray(table[indices.reshape(-1)])

    def _write(self, movement: Movement, moved: np.ndarray) -> None:
        for target in movement.writes:
            rows = self.rows(target)
            rows[...] = moved.reshape(rows.shape)

    def replay(self, timeline: Timeline) -> None:
        """All instructions, each reading at its start and writing at its end; ends come before starts of the same
        cycle.
        """
        results: dict[int, Callable[[], None]] = {}
        for index, ends in _moments(timeline):
            if ends:
                results.pop(index)()
            else:
                results[index] = self._begin(index)

    def _begin(self, index: int) -> Callable[[], None]:
        """Takes what the instruction reads; the result writes what it writes."""
        match self.program.instructions[index]:
            case (Transfer() | IndexedTransfer()) as movement:
                moved = self._read(index, movement)
                return lambda: self._write(movement, moved)
            case Compute() as compute:
                outputs = [self.view(each).copy() for each in compute.outputs]
                self._kernel(index, compute)([self.view(each).copy() for each in compute.inputs], outputs)

                def store() -> None:
                    for operand, value in zip(compute.outputs, outputs, strict=True):
                        self.view(operand)[...] = value

                return store
            case _:
                return lambda: None


def _strides(shape: Sequence[int], innermost: int) -> Iterator[int]:
    """Bytes from one index to the next of each extent, the last one `innermost`."""
    steps = [innermost]
    for extent in reversed(shape[1:]):
        steps.append(steps[-1] * extent)
    return reversed(steps[: len(shape)])


def _moments(timeline: Timeline) -> list[tuple[int, bool]]:
    """Starts and ends by time. What takes no time ends before what waits for it starts: program order breaks ties."""
    moments = []
    for index, (start, end) in enumerate(zip(timeline.starts, timeline.ends, strict=True)):
        moments.append((start, 1 if end > start else 0, 2 * index, index, False))
        moments.append((end, 0, 2 * index + 1, index, True))
    return [(index, ends) for _, _, _, index, ends in sorted(moments)]
