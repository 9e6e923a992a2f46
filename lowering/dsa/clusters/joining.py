"""The programs of clusters that run a network together, as one program: ``programs, shared values -> Program``.

Values that clusters hand to each other are in DDR, where each has one buffer. What reads a part of such a value waits
for the last instruction of each engine, of whatever cluster, that writes to the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import msgspec
import numpy as np

from ...base.errors import DsaError
from ..network.alignment import round_up
from ..program.happens_before import predecessors
from ..program.instructions import (
    DDR,
    Buffer,
    Compute,
    Engine,
    Instruction,
    Program,
    Region,
    Role,
    ScopeCounts,
)
from ..program.placement import Placement


@dataclass(frozen=True)
class SharedValue:
    """A value in DDR that belongs to no cluster alone: its buffer's name in the whole program, and its role there."""

    name: str
    role: Role


@dataclass(frozen=True)
class Joined:
    """A cluster's program, and the shared values that some of its buffers are, by the names of these. `kernels` has new
    names of its kernels."""

    program: Program
    shared: Mapping[str, SharedValue]
    kernels: Mapping[str, str]


def join(members: Sequence[Joined], alignment: int) -> Program:
    """One program of clusters, from the first on. Raises DsaError if they wait for each other in a circle."""
    return _Joining(members, alignment).result()


class _SharedPlacement(Placement):
    """A program's place, some of whose buffers are shared."""

    def __init__(self, cluster: int, ddr_address: int, shared: Mapping[str, Buffer], member: Joined) -> None:
        super().__init__(cluster, ddr_address)
        self.shared, self.local, self.kernels = shared, member.program.buffers_by_name, member.kernels

    def region(self, region: Region) -> Region:
        """A region of the program."""
        buffer = self.shared.get(region.buffer)
        if buffer is None:
            return super().region(region)
        address = region.address - self.local[region.buffer].address + buffer.address
        return msgspec.structs.replace(region, buffer=buffer.name, address=address)

    def instruction(self, instruction: Instruction, first: int) -> Instruction:
        """An instruction of the program, which begins with instruction number `first`."""
        placed = super().instruction(instruction, first)
        if isinstance(placed, Compute):
            return msgspec.structs.replace(placed, kernel=self.kernels[placed.kernel])
        return placed


@dataclass
class _Joining:
    members: Sequence[Joined]
    alignment: int
    buffers: dict[str, Buffer] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    ddr_end: int = 0

    def result(self) -> Program:
        for member in self.members:
            for buffer in member.program.buffers:
                if buffer.name in member.shared:
                    self._share(buffer, member.shared[buffer.name])
        for cluster, member in enumerate(self.members):
            self._place(cluster, member)
        first = self.members[0].program
        scopes = [member.program.scopes for member in self.members]
        program = Program(
            first.name, first.device, first.batch, tuple(self.buffers.values()), tuple(self.instructions),
            ScopeCounts(*(sum(getattr(each, level) for each in scopes) for level in ("ddr", "gb", "lb"))),
        )  # fmt: skip
        return _in_order(program, _exchanges(program))

    def _share(self, buffer: Buffer, value: SharedValue) -> None:
        if value.name in self.buffers:
            known = self.buffers[value.name]
            assert (known.shape, known.dtype) == (buffer.shape, buffer.dtype)
            return
        placed = msgspec.structs.replace(buffer, name=value.name, address=self.ddr_end, role=value.role)
        self.buffers[value.name] = placed
        self.ddr_end = round_up(placed.address + placed.size, self.alignment)

    def _place(self, cluster: int, member: Joined) -> None:
        shared = {name: self.buffers[value.name] for name, value in member.shared.items()}
        first = len(self.instructions)
        placement = _SharedPlacement(cluster, self.ddr_end, shared, member)
        for buffer in member.program.buffers:
            if buffer.name not in shared:
                placed = placement.buffer(buffer)
                self.buffers[placed.name] = placed
                if placed.memory is DDR:
                    self.ddr_end = max(self.ddr_end, round_up(placed.address + placed.size, self.alignment))
        self.instructions += [placement.instruction(each, first) for each in member.program.instructions]


def _exchanges(program: Program) -> Iterator[tuple[int, int]]:
    """Pairs of instructions: one that reads what clusters share, and one that it waits for."""
    shared = {b.name for b in program.buffers if b.memory is DDR and b.role is Role.INTERMEDIATE}
    writes: dict[str, list[tuple[int, int, int, Engine]]] = {}
    for index, instruction in enumerate(program.instructions):
        for region in instruction.writes:
            if region.memory is DDR and region.buffer in shared:
                writes.setdefault(region.buffer, []).append((region.address, region.end, index, instruction.engines[0]))
    columns = {name: _Writes(each) for name, each in writes.items()}
    for index, instruction in enumerate(program.instructions):
        for region in instruction.reads:
            if region.memory is DDR and region.buffer in columns:
                for writer in columns[region.buffer].last_of_each_engine(region):
                    yield index, writer


class _Writes:
    """Instructions that write to a buffer: the bytes of each, its number and its engine."""

    def __init__(self, writes: Sequence[tuple[int, int, int, Engine]]) -> None:
        engines = list(dict.fromkeys(engine for *_, engine in writes))
        self.starts, self.ends, self.numbers = (np.array([each[n] for each in writes]) for n in range(3))
        self.engines = np.array([engines.index(engine) for *_, engine in writes])
        self.count = len(engines)

    def last_of_each_engine(self, region: Region) -> Iterator[int]:
        """Of those that write from the first to the last byte of a region."""
        found = (self.starts < region.end) & (self.ends > region.address)
        last = np.full(self.count, -1)
        np.maximum.at(last, self.engines[found], self.numbers[found])
        return (int(number) for number in last if number >= 0)


def _in_order(program: Program, exchanges: Iterator[tuple[int, int]]) -> Program:
    """The program with more waits, its instructions in an order in which they can run; clusters take turns."""
    more: dict[int, set[int]] = {}
    for index, writer in exchanges:
        more.setdefault(index, set()).add(writer)
    before = [{*each, *more.get(index, ())} for index, each in enumerate(predecessors(program))]
    followers: list[list[int]] = [[] for _ in before]
    for index, earlier in enumerate(before):
        for each in earlier:
            followers[each].append(index)
    pending = [len(each) for each in before]
    ready = [index for index, count in enumerate(pending) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for follower in followers[index]:
            pending[follower] -= 1
            if not pending[follower]:
                heappush(ready, follower)
    if len(order) < len(before):
        raise DsaError("clusters wait for each other's results in a circle")
    place = {old: new for new, old in enumerate(order)}
    instructions = []
    for old in order:
        instruction = program.instructions[old]
        waits = tuple(sorted(place[wait] for wait in {*instruction.waits, *more.get(old, ())}))
        instructions.append(msgspec.structs.replace(instruction, waits=waits))
    return msgspec.structs.replace(program, instructions=tuple(instructions))
