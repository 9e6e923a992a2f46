"""Sizes of tiles."""

from __future__ import annotations

from ..extents import number_of

FLOAT_BYTES = 4


def largest_divisor(extent: int, limit: int) -> int:
    """The largest divisor of `extent` that is at most `limit`."""
    return next(d for d in range(int(number_of(min(extent, limit))), 0, -1) if extent % d == 0)
