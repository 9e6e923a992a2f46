"""What the emulated board counted, per kernel call and for the model, and what that may take in cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from ...costmodels.device import Device
from ...support.processes.program import ToolError
from ..plan.plan import Call, Plan


@dataclass(frozen=True)
class Counts:
    """Executed instructions by class, and misses of each simulated data cache from the first level outwards.

    `fused` are vector fused multiply-adds; `multiply_adds` is what the fused multiply-adds compute, scalar ones
    included; `vector` every other SIMD or floating-point instruction; `stack` the loads and stores of vector registers
    relative to the stack pointer, mostly spills.
    """

    instructions: int = 0
    fused: int = 0
    multiply_adds: int = 0
    vector: int = 0
    loads: int = 0
    stores: int = 0
    branches: int = 0
    other: int = 0
    stack: int = 0
    misses: tuple[int, ...] = ()

    def __add__(self, more: Counts) -> Counts:
        singles = {name: getattr(self, name) + getattr(more, name) for name in SINGLES}
        longest = max(len(self.misses), len(more.misses))
        mine, theirs = (c.misses + (0,) * (longest - len(c.misses)) for c in (self, more))
        return Counts(misses=tuple(a + b for a, b in zip(mine, theirs, strict=True)), **singles)


SINGLES = tuple(field.name for field in fields(Counts) if field.name != "misses")


@dataclass(frozen=True)
class CallCounts:
    """The counts of one call of a kernel, with all functions that it called."""

    kernel: str
    counts: Counts


@dataclass(frozen=True)
class ModelCounts:
    """One inference: each call in order, and what ran between the kernels (`outside`)."""

    calls: tuple[CallCounts, ...]
    outside: Counts

    @property
    def model(self) -> Counts:
        """The kernels together, without `outside`."""
        return total(call.counts for call in self.calls)

    @property
    def inference(self) -> Counts:
        """The counts of all that one inference executes."""
        return self.model + self.outside


@dataclass(frozen=True)
class KernelCounts:
    """All calls of one kernel in an inference: the operators that it computes, its counts, its estimated cycles."""

    kernel: str
    operators: tuple[str, ...]
    calls: int
    counts: Counts
    cycles: float


@dataclass(frozen=True)
class CycleEstimate:
    """An ESTIMATE of the cycles on one core: no pipeline is simulated.

    `issue`: the busiest of front end, vector pipes, load and store ports, if nothing ever waits. `memory`: the lines
    that missed, moved at the device file's bandwidths. Out-of-order cores overlap the two, so `cycles` is the larger.
    """

    issue: float
    memory: float

    @property
    def cycles(self) -> float:
        """The cycles of the larger of the two."""
        return max(self.issue, self.memory)


def total(counts: Iterable[Counts]) -> Counts:
    """The sum, count by count."""
    return sum(counts, Counts())


def parse_report(text: str) -> dict[int, Counts]:
    """The plugin's report: counts by region. Raises ToolError if the report is none."""
    lines = [line.split() for line in text.splitlines()]
    if not lines or tuple(lines[0][: len(SINGLES) + 1]) != ("region", *SINGLES):
        raise ToolError("qemu-aarch64: the counting plugin left no report; does this QEMU take plugins?")
    regions = {}
    for line in lines[1:]:
        region, *numbers = map(int, line)
        singles = dict(zip(SINGLES, numbers, strict=False))
        regions[region] = Counts(misses=tuple(numbers[len(SINGLES) :]), **singles)
    return regions


def by_call(regions: Mapping[int, Counts], plan: Plan) -> ModelCounts:
    """Regions as the generated C marks them: 0 outside, steps from 1. Raises ToolError if no step was marked."""
    if not any(regions.get(number + 1) for number in range(len(plan.steps))):
        raise ToolError("example: marks no kernels; build it for emulation")
    calls = []
    outside = regions.get(0, Counts())
    for number, step in enumerate(plan.steps):
        counts = regions.get(number + 1, Counts())
        if isinstance(step, Call):
            calls.append(CallCounts(step.kernel, counts))
        else:
            outside += counts
    return ModelCounts(tuple(calls), outside)


def estimate_cycles(counts: Counts, device: Device) -> CycleEstimate:
    """Cycles of one call, or of several calls one after the other when added up call by call."""
    issue = max(
        counts.instructions / device.issue_width,
        (counts.fused + counts.vector) / device.fma_ports,
        counts.loads / device.load_ports,
        counts.stores / device.store_ports,
    )
    rates = [cache.bandwidth for cache in device.caches[1:]] + [device.dram_bandwidth]
    seconds = sum(
        misses * cache.line / rate for misses, cache, rate in zip(counts.misses, device.caches, rates, strict=False)
    )
    return CycleEstimate(issue, seconds * device.clock)


def by_kernel(counts: ModelCounts, plan: Plan, device: Device) -> tuple[KernelCounts, ...]:
    """The calls of each distinct kernel together, the kernel that executes most instructions first."""
    operators = {call.kernel: call.operators for call in reversed(plan.calls)}
    kernels = []
    for name in plan.kernels:
        calls = [call.counts for call in counts.calls if call.kernel == name]
        cycles = sum(estimate_cycles(call, device).cycles for call in calls)
        kernels.append(KernelCounts(name, operators[name], len(calls), total(calls), cycles))
    return tuple(sorted(kernels, key=lambda kernel: -kernel.counts.instructions))
