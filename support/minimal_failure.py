"""The search for those of many suspects that make something fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def minimal_failure(fails: Callable[[Sequence[Item]], bool], suspects: Sequence[Item]) -> tuple[Item, ...]:
    """Suspects that fail together and none of which can be left out; all of them together must fail.

    The last one of the shortest prefix that fails is a culprit. With it always added, the next culprit is among those
    before it, until the culprits fail by themselves. If more suspects never turn a failure into a pass, leaving out
    any one of the result makes it pass. Takes about log2(suspects) calls for each culprit.
    """
    culprits: tuple[Item, ...] = ()
    while not culprits or not fails(culprits):
        passing, failing = 0, len(suspects)
        while failing - passing > 1:
            middle = (passing + failing) // 2
            if fails((*culprits, *suspects[:middle])):
                failing = middle
            else:
                passing = middle
        culprits = (suspects[failing - 1], *culprits)
        suspects = suspects[: failing - 1]
    return culprits
