"""About the cycles of a plan, which tell whether it is worth a program: to write and to simulate one takes much longer.

Steps follow each other. Each takes what its tiles were chosen for, and waits for its weights, which DDR moves ahead of
it as far as the GB has room for them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from ....costmodels.dsa_device import DsaDevice
from ..network.boxes import Box
from ..network.lookups import indexed_table
from ..network.subgraphs import Layer
from ..schedule.scheduler import Schedule
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


def least_loading(schedule: Schedule, steps: Iterable[tuple[int, Layer]], device: DsaDevice) -> float:
    """Cycles for which DDR has to load weights for some steps at the least, before anything of a plan is known.

    As if all of the GB and of the LBs' buffers for weights kept them, and any bytes could give way, those that are
    needed last first (Belady, see weights.py).
    """
    needs = [list(_weights(schedule, *step)) for step in steps]
    next_uses: list[list[float]] = []
    following: dict[_Weights, float] = {}
    for number, needed in reversed(list(enumerate(needs))):
        next_uses.append([following.get(weights, math.inf) for weights in needed])
        following.update(dict.fromkeys(needed, number))
    room = device.global_buffer + device.cores * device.weight_buffer
    held: dict[_Weights, int] = {}
    latest: list[tuple[float, _Weights]] = []
    """Weights that may be held, those first that are needed last; some entries are of earlier uses."""
    loaded = 0
    for needed, following_uses in zip(needs, reversed(next_uses), strict=True):
        for weights, next_use in zip(needed, following_uses, strict=True):
            missing = weights.size - held.get(weights, 0)
            loaded, room = loaded + missing, room - missing
            held[weights], following[weights] = weights.size, next_use
            heappush(latest, (-next_use, weights))
            while room < 0:
                use, last = latest[0]
                if following[last] == -use:
                    freed = min(held[last], -room)
                    held[last], room = held[last] - freed, room + freed
                if following[last] != -use or not held[last]:
                    heappop(latest)
    return loaded * device.clock / device.ddr_bandwidth


class _Weights(NamedTuple):
    """A part of a constant that a layer of an instance needs, and its bytes."""

    value: int
    box: Box
    size: int


def _weights(schedule: Schedule, instance: int, layer: Layer) -> Iterator[_Weights]:
    """The weights of a step; tables stay in DDR."""
    network, needed = schedule.network, schedule.graph.instances[instance].needed
    operands = {v for index in layer for v in network.graph.operators[index].inputs if v is not None}
    for value in sorted(operands) if indexed_table(network, layer) is None else ():
        if value in needed and network.graph.values[value].is_constant:
            yield _Weights(value, needed[value], network.bytes(value, needed[value]))


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
