"""Where intermediates lie: one arena, in which buffers that are never alive at once share bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .plan import Plan

ALIGNMENT = 64


def align(size: int) -> int:
    """The next multiple of a cache line."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Arena:
    """Byte offset of each intermediate buffer that is no view, and the bytes of the whole."""

    offsets: Mapping[int, int]
    size: int


@dataclass(frozen=True)
class _Life:
    """A buffer of `size` bytes from the step that fills it to the last one that reads it, both included."""

    buffer: int
    size: int
    first: int
    last: int

    def meets(self, other: _Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan_arena(plan: Plan) -> Arena:
    """Greedy by size: the largest first, each at the lowest offset that is free during its whole life.

    As in Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020), section 5.2.
    """
    placed: list[tuple[int, _Life]] = []
    for life in sorted(_lives(plan), key=lambda life: (-life.size, life.first, life.buffer)):
        placed.append((_lowest(life, placed), life))
    return Arena(
        {life.buffer: offset for offset, life in placed},
        max((offset + life.size for offset, life in placed), default=0),
    )


def _lives(plan: Plan) -> list[_Life]:
    storage = plan.storage
    external = {storage[b] for b in (*plan.inputs, *plan.outputs, *plan.weights)}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, step in enumerate(plan.steps):
        first.update(dict.fromkeys(step.outputs, number))
        last.update((storage[b], number) for b in (*step.inputs, *step.outputs))
    return [_Life(b, align(plan.buffers[b].size), first[b], last[b]) for b in first if b not in external]


def _lowest(life: _Life, placed: list[tuple[int, _Life]]) -> int:
    """The start of the first gap of its size between the buffers alive at the same time."""
    offset = 0
    for start, other in sorted((p for p in placed if p[1].meets(life)), key=lambda p: p[0]):
        if start - offset >= life.size:
            break
        offset = max(offset, start + other.size)
    return offset
