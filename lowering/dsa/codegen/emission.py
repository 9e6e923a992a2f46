"""Instructions one after another, each with the waits that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from ..network.boxes import Box, shape_of, size
from ..program.instructions import (
    Barrier,
    Buffer,
    Compute,
    Engine,
    Instruction,
    Memory,
    Operand,
    Role,
    Transfer,
    TransferKind,
    Unit,
    Work,
)
from .hazards import Contents, Last, Space, latest
from .layout import operand, region, regions_of_both

View = tuple[Contents, Box]
"""A part of what a buffer holds."""


@dataclass
class Emission:
    """A program that grows. Buffers are known from when they are first written."""

    alignment: int
    instructions: list[Instruction] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    spaces: dict[Memory, Space] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    engines: set[Engine] = field(default_factory=set)
    end: int = 0
    """Of what is in DDR."""

    def buffer(
        self, name: str, memory: Memory, address: int, held: Box, dtype: str, role: Role = Role.INTERMEDIATE
    ) -> Contents:
        """A new buffer for the part `held` of a value; it takes its bytes from whoever had them."""
        count = self.names[name] = self.names.get(name, 0) + 1
        unique = name if count == 1 else f"{name}#{count}"
        amount = max(1, size(held)) * np.dtype(dtype).itemsize
        aligned = -(-amount // self.alignment) * self.alignment
        made = Buffer(unique, memory, address, aligned, dtype, shape_of(held), role)
        self.buffers.append(made)
        return self.spaces.setdefault(memory, Space(memory)).take(made, held)

    def ddr(self, size: int) -> int:
        """The address of so many bytes more in DDR."""
        address = self.end
        self.end += -(-size // self.alignment) * self.alignment
        return address

    def copy(
        self, engine: Engine, source: View, targets: Sequence[View], kind: TransferKind, label: str = ""
    ) -> None:
        """Move a part of a value, in as few transfers as its layout allows."""
        box = source[1]
        for piece in regions_of_both(source[0].box, targets[0][0].box, box):
            views = [(contents, piece) for contents, _ in targets]
            transfer = Transfer(
                engine, region(source[0].buffer, source[0].box, piece, _width(source[0])),
                tuple(region(c.buffer, c.box, piece, _width(c)) for c, _ in views), kind, (), label,
            )  # fmt: skip
            self.add(transfer, [(source[0], piece)], views)

    def compute(
        self, core: int, kernel: str, inputs: Sequence[tuple[Operand, View]], outputs: Sequence[View],
        work: tuple[Work, ...], label: str,
    ) -> None:  # fmt: skip
        """Run a kernel."""
        instruction = Compute(
            0, core, kernel, tuple(each for each, _ in inputs), tuple(as_operand(view) for view in outputs), work,
            label=label,
        )  # fmt: skip
        self.add(instruction, [view for _, view in inputs], outputs)

    def barrier(self) -> None:
        """All engines so far wait for each other."""
        found = tuple(sorted(self.engines, key=lambda engine: engine.order))
        if found:
            self.instructions.append(Barrier(found))

    def add(self, instruction: Instruction, reads: Sequence[View], writes: Sequence[View]) -> None:
        """Append an instruction that waits for what is in its way."""
        index, own = len(self.instructions), instruction.engines
        waits: Last = {}
        for contents, box in reads:
            for engine, other in contents.before_read(box):
                latest(waits, engine, other)
        for contents, box in writes:
            for engine, other in contents.before_write(box):
                latest(waits, engine, other)
        found = sorted(other for engine, other in waits.items() if engine not in own)
        for contents, box in reads:
            contents.reads[box, own[0]] = index
        for contents, box in writes:
            contents.writes[box, own[0]] = index
        self.engines.update(own)
        self.instructions.append(replace(instruction, waits=tuple(found)))


def as_operand(view: View) -> Operand:
    """A part of a buffer as a tensor."""
    contents, box = view
    return operand(contents.buffer, contents.box, box, _width(contents))


def _width(contents: Contents) -> int:
    return int(np.dtype(contents.buffer.dtype).itemsize)


def core_channel(core: int, channel: int) -> Engine:
    """A DMA channel of a core."""
    return Engine(0, core, Unit.DMA, channel)


def cluster_channel(channel: int) -> Engine:
    """A DMA channel of the cluster."""
    return Engine(0, None, Unit.DMA, channel)
