"""Which of several ways to run a network are worth a program, from estimates of their plans.

A program takes much longer to write and to simulate than to plan. So alternatives with many times the steps of others
are not planned, and only plans that may be the fastest become programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ....costmodels.dsa_device import DsaDevice
from ...base.errors import DsaError
from ..network.subgraphs import Layer
from ..program.instructions import Level
from ..schedule.scheduler import Schedule
from ..schedule.variants import Variant
from .emission import Emission
from .generator import Plan, plan_program, running_order
from .residence import activation_room_of_global_buffer
from .weights import WeightEmission

_MOST_STEPS = 8
"""A way with more than this many times the steps of another is not planned: layers are short and wait often."""
_LOADING_SHARE = 0.5
"""Where loading weights takes more than this share of the cycles, it is worth while to load them less often."""
_EXPOSED = 0.3
"""The share of the cycles of the less busy of units, DDR and ports that does not run beside the busiest: measured in
the simulated programs of six networks."""
_CLOSE = 1.003
"""Plans whose estimates exceed the least by up to this factor may lead to the fastest program."""


@dataclass(frozen=True)
class Estimate:
    """Cycles of a plan, each kind by itself: of the units one after another, of DDR, and of the port of one LB.

    `loading` are those of DDR for weights, a part of `memory`.
    """

    computing: float
    loading: float
    memory: float
    port: float

    @property
    def cycles(self) -> float:
        """Cycles of all of them together, which run at once for the most part."""
        busy = self.computing, self.memory, self.port
        return max(busy) + _EXPOSED * (sum(busy) - max(busy))


@dataclass(frozen=True)
class Candidate:
    """A schedule for a variant."""

    variant: Variant
    schedule: Schedule

    @cached_property
    def order(self) -> tuple[tuple[int, Layer], ...]:
        """The steps of its program."""
        return tuple(running_order(self.schedule, self.variant))

    def is_like(self, other: Candidate) -> bool:
        """Whether both lead to the same program."""
        first, second = (replace(c.variant, abreast=False, split_for=Level.LB, room=1.0) for c in (self, other))
        groups = self.schedule.graph.groups == other.schedule.graph.groups
        return first == second and self.order == other.order and groups


def for_splitting(device: DsaDevice, variant: Variant) -> DsaDevice:
    """The device whose LBs instances are made to fit: with all of them or, as section 3.6 suggests, most of the GB."""
    room = device.activation_buffer
    if variant.split_for is Level.GB:
        room = max(room, activation_room_of_global_buffer(device) // device.cores)
    return replace(device, local_buffer=device.weight_buffer + max(1, int(variant.room * room)))


def promising_plans(candidates: Sequence[Candidate], device: DsaDevice) -> list[Plan]:
    """The plans that are worth a program, the one that promises most first.

    Raises DsaError where none can be planned: that of the last.
    """
    distinct = [c for n, c in enumerate(candidates) if not any(c.is_like(other) for other in candidates[:n])]
    plans: list[tuple[Estimate, Plan]] = []
    problem: DsaError | None = None
    for candidate in sorted(distinct, key=lambda each: len(each.order)):
        if plans:
            if len(candidate.order) > _MOST_STEPS * min(len(plan.residence.flow.steps) for _, plan in plans):
                continue
            best = min((guess for guess, _ in plans), key=lambda guess: guess.cycles)
            if candidate.variant.abreast and best.loading <= _LOADING_SHARE * best.cycles:
                continue
        try:
            plan = plan_program(candidate.schedule, candidate.variant)
        except DsaError as error:  # another alternative may fit
            problem = error
            continue
        plans.append((estimate(plan, device), plan))
    if not plans:
        assert problem is not None
        raise problem
    plans.sort(key=lambda each: each[0].cycles)
    return [plan for guess, plan in plans if guess.cycles <= _CLOSE * plans[0][0].cycles]


def estimate(plan: Plan, device: DsaDevice) -> Estimate:
    """The cycles of a plan, from its tiles and the bytes that it moves."""
    steps = plan.residence.flow.steps
    computing = 0.0
    for step, tiled in zip(steps, plan.residence.tiles, strict=True):
        first = next(tiles[0] for tiles in tiled.cores if tiles)
        computing += tiled.count * plan.sharing.cycles(step.layer, first)
    weights = WeightEmission(Emission(device.alignment), device, plan.residence, plan.memory.staging).traffic()
    loading = weights.loaded * device.clock / device.ddr_bandwidth
    far, near = (_handed_on(plan, level) for level in (Level.DDR, Level.GB))
    memory = loading + far * device.clock / device.ddr_bandwidth
    port = device.global_bandwidth / device.cores / device.clock
    return Estimate(computing, loading, memory, (weights.hoisted + (far + near) / device.cores) / port)


def _handed_on(plan: Plan, level: Level) -> int:
    """Bytes that layers hand on through a level: written to it once, and read from it by each step that needs them."""
    flow = plan.residence.flow
    total = 0
    for part, home in plan.residence.homes.items():
        if home is level:
            readers = {read.step for read in flow.readers[part]}
            total += flow.graph.network.bytes(part.value, flow.box(part)) * (1 + len(readers))
    return total
