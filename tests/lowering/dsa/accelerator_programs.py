"""Small accelerators and programs for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from eqfuse.costmodels.dsa_device import ComputeUnit, DsaDevice
from eqfuse.costmodels.systolic import Product
from eqfuse.lowering.dsa.program.instructions import (
    DDR,
    Buffer,
    Compute,
    Engine,
    Instruction,
    Kernel,
    Memory,
    Operand,
    Program,
    Region,
    Role,
    ScopeCounts,
    Transfer,
    TransferKind,
    Unit,
    Work,
    global_buffer,
    local_buffer,
)

UNITS = (
    ComputeUnit("MME", "matrix", "core", 4, 8),
    ComputeUnit("VME", "vector_mac", "core", 16, 1),
    ComputeUnit("vector", "vector", "core", 16, 1),
)
DEVICE = DsaDevice(
    name="small",
    clusters=2,
    cores=2,
    clock=1e9,
    local_buffer=4096,
    weight_buffer=1024,
    global_buffer=16384,
    ddr_capacity=65536,
    ddr_bandwidth=16e9,
    global_bandwidth=64e9,
    local_bandwidth=64e9,
    dma_latency=100e-9,
    hoist_latency=10e-9,
    alignment=16,
    units=UNITS,
)
"""16 bytes a cycle from DDR, 64 from a GB, of which 32 to each LB."""

CLUSTER_DEVICE = dataclasses.replace(
    DEVICE, name="engine of the cluster", units=(ComputeUnit("GEMM", "matrix", "cluster", 4, 8), UNITS[2])
)


@dataclass
class Builder:
    """A program in the making; `add` returns the number of the instruction."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)

    def buffer(
        self, name: str, memory: Memory, address: int, shape: Sequence[int], role: Role = Role.INTERMEDIATE
    ) -> None:
        size = int(np.prod(shape)) * 4
        self.buffers[name] = Buffer(name, memory, address, size, "float32", tuple(shape), role)

    def region(self, name: str, offset: int = 0, size: int | None = None) -> Region:
        buffer = self.buffers[name]
        return Region(name, buffer.memory, buffer.address + offset, buffer.size if size is None else size)

    def operand(self, name: str) -> Operand:
        return Operand(self.region(name), "float32", self.buffers[name].shape)

    def add(self, instruction: Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def move(
        self,
        engine: Engine,
        source: Region,
        *targets: Region,
        waits: Sequence[int] = (),
        kind: TransferKind = TransferKind.DMA,
    ) -> int:
        return self.add(Transfer(engine, source, targets, kind, tuple(waits), f"{kind.value} {source.buffer}"))

    def program(self, batch: int = 1) -> Program:
        buffers, instructions = tuple(self.buffers.values()), tuple(self.instructions)
        return Program("test", DEVICE.name, batch, buffers, instructions, ScopeCounts(ddr=4, gb=2, lb=6))


def cluster_dma(cluster: int, channel: int = 0) -> Engine:
    return Engine(cluster, None, Unit.DMA, channel)


def core_dma(cluster: int, core: int) -> Engine:
    return Engine(cluster, core, Unit.DMA)


def unit(cluster: int, core: int, kind: Unit) -> Engine:
    return Engine(cluster, core, kind)


BATCH, INNER, OUTER = 16, 8, 12


def layer_program() -> Program:
    """relu(x w) for 16 samples: each cluster takes 8, each core 4; the weights are hoisted to both cores at once."""
    builder = Builder()
    builder.buffer("x", DDR, 0, (BATCH, INNER), Role.INPUT)
    builder.buffer("w", DDR, 1024, (INNER, OUTER), Role.CONSTANT)
    builder.buffer("y", DDR, 2048, (BATCH, OUTER), Role.OUTPUT)
    for cluster in range(2):
        _cluster(builder, cluster)
    return builder.program(BATCH)


def _cluster(builder: Builder, cluster: int) -> None:
    gb, samples = global_buffer(cluster), BATCH // 2
    builder.buffer(f"x{cluster}", gb, 0, (samples, INNER))
    builder.buffer(f"w{cluster}", gb, 1024, (INNER, OUTER))
    builder.buffer(f"y{cluster}", gb, 2048, (samples, OUTER))
    for core in range(2):
        builder.buffer(f"w{cluster}{core}", local_buffer(cluster, core), 0, (INNER, OUTER))
    size = builder.buffers[f"x{cluster}"].size
    channel = cluster_dma(cluster)
    weights = builder.move(channel, builder.region("w"), builder.region(f"w{cluster}"))
    inputs = builder.move(channel, builder.region("x", cluster * size, size), builder.region(f"x{cluster}"))
    everywhere = [builder.region(f"w{cluster}{core}") for core in range(2)]
    hoisting = cluster_dma(cluster, 1)
    hoist = builder.move(hoisting, builder.region(f"w{cluster}"), *everywhere, waits=[weights], kind=TransferKind.HOIST)
    ends = [_core(builder, cluster, core, inputs, hoist) for core in range(2)]
    out = builder.buffers[f"y{cluster}"].size
    builder.move(channel, builder.region(f"y{cluster}"), builder.region("y", cluster * out, out), waits=ends)


def _core(builder: Builder, cluster: int, core: int, inputs: int, hoist: int) -> int:
    """The last instruction of a core: its part of the result in the GB."""
    place, name, samples = local_buffer(cluster, core), f"{cluster}{core}", BATCH // 4
    builder.buffer(f"x{name}", place, 512, (samples, INNER))
    builder.buffer(f"p{name}", place, 1024, (samples, OUTER))
    builder.buffer(f"y{name}", place, 1024, (samples, OUTER))
    size, out = builder.buffers[f"x{name}"].size, builder.buffers[f"y{name}"].size
    channel = core_dma(cluster, core)
    source = builder.region(f"x{cluster}", core * size, size)
    copy = builder.move(channel, source, builder.region(f"x{name}"), waits=[inputs], kind=TransferKind.COPY)
    operands = builder.operand(f"x{name}"), builder.operand(f"w{name}")
    work = Work(Unit.MME, products=(Product(samples, OUTER, INNER),))
    result = builder.operand(f"p{name}")
    product = builder.add(
        Compute(cluster, core, "matmul", operands, (result,), (work,), waits=(copy, hoist), label="matmul")
    )
    relu = Work(Unit.VECTOR, samples * OUTER)
    ends = builder.operand(f"y{name}")
    last = builder.add(
        Compute(cluster, core, "relu", (result,), (ends,), (relu,), in_place=True, waits=(product,), label="relu")
    )
    target = builder.region(f"y{cluster}", core * out, out)
    return builder.move(channel, builder.region(f"y{name}"), target, waits=[last], kind=TransferKind.COPY)


def matmul(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    np.matmul(inputs[0], inputs[1], out=outputs[0])


def relu(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    np.maximum(inputs[0], 0, out=outputs[0])


KERNELS: Mapping[str, Kernel] = {"matmul": matmul, "relu": relu}


def contents() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "x": random.standard_normal((BATCH, INNER)).astype(np.float32),
        "w": random.standard_normal((INNER, OUTER)).astype(np.float32),
    }


def expected() -> np.ndarray:
    given = contents()
    return np.asarray(np.maximum(given["x"] @ given["w"], 0))


def moved_to(program: Program, name: str, address: int) -> Program:
    """The program with a buffer at another address, in the buffer and in all that reads or writes it."""
    offset = address - program.buffers_by_name[name].address

    def region(each: Region) -> Region:
        return replace(each, address=each.address + offset) if each.buffer == name else each

    def operand(each: Operand) -> Operand:
        return replace(each, region=region(each.region))

    def instruction(each: Instruction) -> Instruction:
        match each:
            case Transfer():
                return replace(each, source=region(each.source), targets=tuple(map(region, each.targets)))
            case Compute():
                return replace(each, inputs=tuple(map(operand, each.inputs)), outputs=tuple(map(operand, each.outputs)))
        return each

    buffers = tuple(replace(each, address=address) if each.name == name else each for each in program.buffers)
    return replace(program, buffers=buffers, instructions=tuple(map(instruction, program.instructions)))


def changed(program: Program, index: int, instruction: Instruction) -> Program:
    """The program with another instruction in one place."""
    instructions = (*program.instructions[:index], instruction, *program.instructions[index + 1 :])
    return replace(program, instructions=instructions)
