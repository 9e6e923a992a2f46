"""Several cuts of a model timed in turns, and the cut of the fastest part of each: ``Cut, Cut -> Cut``.

A kernel that is fast by itself may be slow behind another one, whose results it finds elsewhere, and what two kernels
save that run as one is less than noise adds to their times. So parts are compared where they stand, in the model:

    cuts {1}{2}{3 4} and {1 2}{3}{4}  =>  regions {1 2} and {3 4}  =>  {1 2}{3 4}, if that is the fastest of each

Operators are of one region if they are of one kernel in some cut, or if equal kernels have them: these have one
schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ...lowering.kernels.messages import Choices
from ...lowering.kernels.variants import Cut
from ...support.directed_graphs import connected_components
from .kernel_choice import Attempt, Workshop, step_seconds

if TYPE_CHECKING:
    from ...lowering.running.kernel_times import CallTime

CLEARLY = 0.99
"""Another cut of a region replaces the first one if it takes at most this share of its time."""

Times = Mapping[str, "CallTime"]


def combine_cuts(workshop: Workshop, cuts: Sequence[Cut]) -> Cut:
    """The cut of the fastest part of each; of the first one where no other is clearly faster.

    Cuts differ in their kernels and in the decisions about these; all other choices are those of the first. Raises
    EqfuseError where one cannot be built, or does not run.
    """
    attempts = [workshop.build(cut) for cut in cuts]
    return merge_fastest(attempts, workshop.time(attempts))


def merge_fastest(attempts: Sequence[Attempt], times: Sequence[Times]) -> Cut:
    """The same of cuts that were built and timed."""
    from ...lowering.tuning.joins import order_kernels

    first, *_ = attempts
    fastest = {region: _fastest(attempts, times, region) for region in list_regions(attempts)}
    kernels = [kernel for region, a in fastest.items() for kernel in a.cut.kernels if region.issuperset(kernel)]
    ordered = order_kernels(first.prepared.graph, kernels)
    if ordered is None:  # parts of different cuts wait for each other
        everything = frozenset(range(len(first.prepared.graph.operators)))
        return _fastest(attempts, times, everything).cut
    return Cut(tuple(ordered), _choices(first.cut.choices, fastest))


def list_regions(attempts: Sequence[Attempt]) -> list[frozenset[int]]:
    """The least sets of operators between which no cut has a kernel, and no two of which share a kernel's code."""
    readers: dict[int, list[int]] = {place: [] for place in range(len(attempts[0].prepared.graph.operators))}
    users: dict[str, int] = {}
    for attempt in attempts:
        for kernel in attempt.cut.kernels:
            for member, other in pairwise(kernel):
                readers[member].append(other)
        for call in attempt.prepared.calls:
            readers[call.members[0]].append(users.setdefault(attempt.prepared.keys[call.symbol], call.members[0]))
    return [frozenset(component) for component in connected_components(readers)]


def _fastest(attempts: Sequence[Attempt], times: Sequence[Times], region: frozenset[int]) -> Attempt:
    seconds = [step_seconds(attempt, each, region) for attempt, each in zip(attempts, times, strict=True)]
    best = min(range(len(attempts)), key=seconds.__getitem__)
    return attempts[best if seconds[best] <= CLEARLY * seconds[0] else 0]


def _choices(first: Choices, fastest: Mapping[frozenset[int], Attempt]) -> Choices:
    """The decisions about the kernels of regions, each from the cut that the region is taken from."""
    decisions = {}
    for region, attempt in fastest.items():
        keys = {attempt.prepared.keys[c.symbol] for c in attempt.prepared.calls if region.issuperset(c.members)}
        decisions.update({key: made for key, made in attempt.cut.choices.decisions.items() if key in keys})
    return Choices(decisions, first.without, first.runtime, first.plain)
