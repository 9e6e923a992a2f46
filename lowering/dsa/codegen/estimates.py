"""About the cycles of a plan, which tell whether it is worth a program: to write and to simulate one takes much longer.

Steps follow each other. Each takes what its tiles were chosen for, and waits for its weights, which DDR moves ahead of
it as far as the GB has room for them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

from ....costmodels.dsa_device import DsaDevice
from ..schedule.variants import Variant
from .emission import Emission
from .generator import Plan
from .weights import WeightEmission


@dataclass(frozen=True)
class Estimate:
    """Cycles of a plan, and those of DDR for weights; `moving`: for these and for what waits there or comes ahead, so
    that no program of the plan takes less."""

    cycles: float
    loading: float
    moving: float


@dataclass(frozen=True)
class Promise:
    """A plan that is worth a program."""

    plan: Plan
    estimate: Estimate

    @property
    def variant(self) -> Variant:
        """The way to run a network that it is of."""
        return self.plan.variant


def estimate(plan: Plan, device: DsaDevice) -> Estimate:
    """The cycles of a plan, from its tiles and the bytes that it moves."""
    tiles, staging = plan.residence.tiles, plan.memory.staging
    weights = WeightEmission(Emission(device.alignment), device, plan.residence, staging)
    loaded = weights.loaded_by_step()
    waiting = _moved_to_wait(plan)
    ahead = device.global_buffer - staging
    of_byte = device.clock / device.ddr_bandwidth
    until = list(accumulate(loaded))
    """Bytes of weights loaded for a step and those before it."""
    ends = [0.0]
    arrived = 0.0
    for number, tiled in enumerate(tiles):
        freeing = bisect_left(until, until[number] - ahead)  # its weights make room for these
        arrived = max(arrived, ends[freeing]) + (loaded[number] + waiting[number]) * of_byte
        ends.append(max(ends[-1], arrived) + tiled.cycles)
    return Estimate(ends[-1], sum(loaded) * of_byte, (sum(loaded) + sum(waiting)) * of_byte)


def _moved_to_wait(plan: Plan) -> list[int]:
    """By step, bytes of parts that come back to the GB for it, both ways, and of inputs that come there for it."""
    flow = plan.residence.flow
    moved = [0] * len(flow.steps)
    for part, stays in plan.residence.waiting.items():
        for stay in stays[1:]:
            moved[stay.first] += 2 * flow.graph.network.bytes(part.value, flow.box(part))
    for part, stream in plan.residence.streams.items():
        moved[stream.stay.first] += flow.graph.network.bytes(part.value, stream.box)
    return moved
