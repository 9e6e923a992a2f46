"""Leaving out what a result does not need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def minimal(items: Sequence[Item], suffices: Callable[[Sequence[Item]], bool]) -> tuple[Item, ...]:
    """Items that suffice together and of which none can be left out, where all of them suffice.

    Blocks are left out first, then halves of them, down to single items, the last ones first.
    """
    kept = list(items)
    size = len(kept)
    while size:
        end = len(kept)
        while end > 0:
            start = max(end - size, 0)
            rest = kept[:start] + kept[end:]
            if suffices(rest):
                kept = rest
            end = start
        size //= 2
    return tuple(kept)
