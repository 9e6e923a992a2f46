"""Which of several ways to run a network are worth a program, from estimates of their plans.

A program takes much longer to write and to simulate than to plan. So alternatives with many times the steps of others
are not planned, and only plans that may be the fastest become programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ....costmodels.dsa_device import DsaDevice
from ..errors import DsaError
from ..network.subgraphs import Layer
from ..program.instructions import Level
from ..schedule.scheduler import Schedule
from ..schedule.variants import Variant
from .generator import Plan, plan, running_order
from .residence import STAGING_SHARE
from .weight_emission import weight_traffic

_STEPS = 8
"""So many times the steps of another way are too many: short layers on parts of cores, and as many waits."""
_LOADING = 0.5
"""Of the cycles, what loading weights takes where it is worth while to load them less often."""
_EXPOSED = 0.3
"""Of what the less busy of units, DDR and ports take, what does not run beside the busiest: as it was in the simulated
programs of six networks."""
_CLOSE = 1.003
"""Estimates that exceed the least by no more than this may be of the fastest program."""


@dataclass(frozen=True)
class Estimate:
    """Cycles of a plan by themselves: of the units one after another, of DDR, and of the port of one LB."""

    computing: float
    loading: float
    """Weights, part of `memory`."""
    memory: float
    port: float

    @property
    def cycles(self) -> float:
        """Of all of them together, which run at once for the most part."""
        busy = self.computing, self.memory, self.port
        return max(busy) + _EXPOSED * (sum(busy) - max(busy))


@dataclass(frozen=True)
class Candidate:
    """A schedule for a variant."""

    variant: Variant
    schedule: Schedule

    @cached_property
    def order(self) -> tuple[tuple[int, Layer], ...]:
        """Its steps."""
        return tuple(running_order(self.schedule, self.variant))

    def is_like(self, other: Candidate) -> bool:
        """Whether both lead to the same program."""
        same = replace(self.variant, abreast=False, split_for=Level.LB, room=1.0)
        return (
            same == replace(other.variant, abreast=False, split_for=Level.LB, room=1.0)
            and self.order == other.order
            and self.schedule.graph.groups == other.schedule.graph.groups
        )


def for_splitting(device: DsaDevice, variant: Variant) -> DsaDevice:
    """What instances are made to fit: the LBs, or, as section 3.6 suggests, most of the GB in their stead."""
    room = device.activation_buffer
    if variant.split_for is Level.GB:
        share = (device.global_buffer - device.global_buffer // STAGING_SHARE) // device.cores
        room = max(room, share)
    return replace(device, local_buffer=device.weight_buffer + max(1, int(variant.room * room)))


def promising(candidates: Sequence[Candidate], device: DsaDevice) -> list[Plan]:
    """The plans that are worth a program, the one that promises most first.

    Raises DsaError where none can be planned: that of the last.
    """
    distinct = [c for n, c in enumerate(candidates) if not any(c.is_like(other) for other in candidates[:n])]
    found: list[tuple[Estimate, Plan]] = []
    problem: DsaError | None = None
    for candidate in sorted(distinct, key=lambda each: len(each.order)):
        if not _is_worth_planning(candidate, found):
            continue
        try:
            made = plan(candidate.schedule, candidate.variant)
        except DsaError as error:  # another alternative may fit
            problem = error
            continue
        found.append((estimate(made, device), made))
    if not found:
        assert problem is not None
        raise problem
    found.sort(key=lambda each: each[0].cycles)
    return [made for guess, made in found if guess.cycles <= _CLOSE * found[0][0].cycles]


def _is_worth_planning(candidate: Candidate, found: Sequence[tuple[Estimate, Plan]]) -> bool:
    if not found:
        return True
    if len(candidate.order) > _STEPS * min(len(made.residence.flow.steps) for _, made in found):
        return False
    best = min((guess for guess, _ in found), key=lambda guess: guess.cycles)
    return not candidate.variant.abreast or best.loading > _LOADING * best.cycles


def estimate(made: Plan, device: DsaDevice) -> Estimate:
    """From the tiles of a plan and what it moves."""
    port = device.global_bandwidth / device.cores / device.clock
    weights = weight_traffic(made.residence, device, made.places.staging)
    loading = weights.loaded * device.clock / device.ddr_bandwidth
    far, near = (_moved(made, level) for level in (Level.DDR, Level.GB))
    memory = loading + far * device.clock / device.ddr_bandwidth
    return Estimate(_computing(made), loading, memory, (weights.hoisted + (far + near) / device.cores) / port)


def _computing(made: Plan) -> float:
    """Cycles of the largest of each step's tiles, as often as there are tiles."""
    found = 0.0
    for step, tiled in zip(made.residence.flow.steps, made.residence.tiles, strict=True):
        first = next(tiles[0] for tiles in tiled.cores if tiles)
        found += tiled.count * made.sharing.cycles(step.layer, first)
    return found


def _moved(made: Plan, level: Level) -> int:
    """Bytes written to a level and read from it, of what layers hand on."""
    flow = made.residence.flow
    found = 0
    for part, home in made.residence.homes.items():
        if home is level:
            readers = {read.step for read in flow.readers[part]}
            found += flow.graph.network.bytes(part[1], flow.box(part)) * (1 + len(readers))
    return found
