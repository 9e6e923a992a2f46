"""Programs of one cluster at places of a device with several: ``programs -> one program of all clusters``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec

from .instructions import (
    Barrier,
    Buffer,
    Compute,
    Engine,
    IndexedTransfer,
    Instruction,
    Level,
    Memory,
    Operand,
    Program,
    Region,
    ScopeCounts,
    Transfer,
)


def buffer_in(cluster: int, name: str) -> str:
    """The name of a cluster's buffer in a program of several."""
    return f"{cluster}:{name}"


class Placement:
    """Where a program of one cluster is: in a `cluster`, with its part of DDR from an address on."""

    def __init__(self, cluster: int, ddr_address: int = 0) -> None:
        self.cluster, self.ddr_address = cluster, ddr_address
        self.memory = cache(self._memory)
        self.engine = cache(self._engine)
        self.name = cache(self._name)

    def _memory(self, memory: Memory) -> Memory:
        return memory if memory.level is Level.DDR else Memory(memory.level, self.cluster, memory.core)

    def _engine(self, engine: Engine) -> Engine:
        return Engine(self.cluster, engine.core, engine.unit, engine.channel)

    def _name(self, name: str) -> str:
        return buffer_in(self.cluster, name)

    def buffer(self, buffer: Buffer) -> Buffer:
        """A buffer of the program."""
        address = self._address(buffer.memory, buffer.address)
        name, memory = self.name(buffer.name), self.memory(buffer.memory)
        return msgspec.structs.replace(buffer, name=name, memory=memory, address=address)

    def region(self, region: Region) -> Region:
        """A region of the program."""
        address = self._address(region.memory, region.address)
        name, memory = self.name(region.buffer), self.memory(region.memory)
        return msgspec.structs.replace(region, buffer=name, memory=memory, address=address)

    def instruction(self, instruction: Instruction, first: int) -> Instruction:
        """An instruction of the program, which begins with instruction number `first`."""
        waits = tuple(first + wait for wait in instruction.waits)
        match instruction:
            case Transfer():
                source, targets = self.region(instruction.source), tuple(map(self.region, instruction.targets))
                engine = self.engine(instruction.engine)
                return msgspec.structs.replace(instruction, engine=engine, source=source, targets=targets, waits=waits)
            case IndexedTransfer():
                table, target = self.region(instruction.table), self.region(instruction.target)
                engine, indices = self.engine(instruction.engine), self._operand(instruction.indices)
                return msgspec.structs.replace(
                    instruction, engine=engine, table=table, indices=indices, target=target, waits=waits
                )
            case Compute():
                inputs, outputs = (
                    tuple(map(self._operand, each)) for each in (instruction.inputs, instruction.outputs)
                )
                return msgspec.structs.replace(
                    instruction, cluster=self.cluster, inputs=inputs, outputs=outputs, waits=waits
                )
            case Barrier():
                engines = tuple(map(self.engine, instruction.engines))
                return msgspec.structs.replace(instruction, engines=engines, waits=waits)

    def _operand(self, operand: Operand) -> Operand:
        return msgspec.structs.replace(operand, region=self.region(operand.region))

    def _address(self, memory: Memory, address: int) -> int:
        return address + self.ddr_address if memory.level is Level.DDR else address


def side_by_side(programs: Sequence[Program], ddr_share: int) -> Program:
    """One program in each cluster, from the first on, each with its `ddr_share` bytes of DDR."""
    buffers: list[Buffer] = []
    instructions: list[Instruction] = []
    for cluster, program in enumerate(programs):
        placement, first = Placement(cluster, cluster * ddr_share), len(instructions)
        buffers += map(placement.buffer, program.buffers)
        instructions += [placement.instruction(each, first) for each in program.instructions]
    scopes = [program.scopes for program in programs]
    return Program(
        programs[0].name,
        programs[0].device,
        sum(program.batch for program in programs),
        tuple(buffers),
        tuple(instructions),
        ScopeCounts(*(sum(getattr(each, level) for each in scopes) for level in ("ddr", "gb", "lb"))),
    )
