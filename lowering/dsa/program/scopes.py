"""Levels of the memory hierarchy."""

from __future__ import annotations

from enum import IntEnum


class Scope(IntEnum):
    """Where a tensor lives, the fastest first: the local buffers of cores, a cluster's global buffer, DDR."""

    LB = 0
    GB = 1
    DDR = 2
