"""Where intermediates lie: one arena, in which buffers that are never alive at once share bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .plan import Plan

ALIGNMENT = 64
"""Bytes of a cache line, at multiples of which buffers begin."""


def align(size: int) -> int:
    """The next multiple of a cache line."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Arena:
    """Byte offset of each intermediate buffer that is no view, and the bytes of the whole."""

    offsets: Mapping[int, int]
    size: int


@dataclass(frozen=True)
class Life:
    """A buffer of the arena from the first step that fills it to the last one that reads it, both included."""

    buffer: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether there is a step at which both are alive."""
        return self.first <= other.last and other.first <= self.last


def plan_arena(plan: Plan) -> Arena:
    """The arena of a static plan: the largest buffer first, at the lowest offset that is free during its whole life.

    This is "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020),
    section 5.2.
    """
    sizes = {life: align(plan.buffers[life.buffer].size) for life in lives_of(plan)}
    placed: list[tuple[int, Life]] = []
    for life in sorted(sizes, key=lambda life: (-sizes[life], life.first, life.buffer)):
        placed.append((_lowest(life, placed, sizes), life))
    return Arena(
        {life.buffer: offset for offset, life in placed},
        max((offset + sizes[life] for offset, life in placed), default=0),
    )


def lives_of(plan: Plan) -> list[Life]:
    """The buffers in the arena: those that are computed, and not for the caller."""
    storage = plan.storage
    external = {storage[b] for b in (*plan.inputs, *plan.outputs, *plan.weights)}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, step in enumerate(plan.steps):
        for buffer in step.outputs:
            first.setdefault(buffer, number)
        used = (*step.inputs, *step.outputs, *plan.conditions.get(number, ()))
        last.update((storage[b], number) for b in used)
    return [Life(b, first[b], last[b]) for b in first if b not in external]


def _lowest(life: Life, placed: list[tuple[int, Life]], sizes: Mapping[Life, int]) -> int:
    """The start of the first gap of its size between the buffers alive at the same time."""
    offset = 0
    for start, other in sorted((p for p in placed if p[1].meets(life)), key=lambda p: p[0]):
        if start - offset >= sizes[life]:
            break
        offset = max(offset, start + sizes[other])
    return offset
