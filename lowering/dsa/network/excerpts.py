"""What a network keeps to that is one cluster's part of another one (clusters/excerpts.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .boxes import Box


@dataclass(frozen=True)
class Excerpt:
    """Where the inputs and outputs of a part of a network are in the values of the whole, which are in DDR.

    `frames` has the place of a whole value, in which indices count from the first one of the part: from -2 to 6 for a
    part that begins at index 2 of 8. `maps` are those that lie in memory as feature maps. `stages` has a number for
    each operator: other clusters make what a stage reads while the stages before it run, so these come first.
    """

    stages: tuple[int, ...]
    frames: Mapping[int, Box] = field(default_factory=dict)
    maps: frozenset[int] = frozenset()
