"""Sizes of tiles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ....costmodels.register_tiles import Tile
from ..base.extents import number_of

FLOAT_BYTES = 4
NARROW_LANES = 4
"""Elements of the vectors for dynamic columns that are fewer than a vector of the device has."""


def largest_divisor(extent: int, limit: int) -> int:
    """The largest divisor of `extent` that is at most `limit`."""
    return next(d for d in range(int(number_of(min(extent, limit))), 0, -1) if extent % d == 0)


def shrink_tile(tile: Tile, fewer_rows: Iterable[int], *, is_short: bool, is_narrow: bool) -> Tile:
    """The next smaller tile, for fewer dynamic rows (`is_short`) or columns (`is_narrow`) than the tile has; the tile
    itself if there is none."""
    if is_short:
        tile = replace(tile, rows=max((rows for rows in fewer_rows if rows < tile.rows), default=tile.rows))
    if is_narrow:
        lanes = tile.lanes if tile.vectors > 1 else NARROW_LANES if tile.lanes > NARROW_LANES else 1
        tile = replace(tile, vectors=1, lanes=lanes)
    return tile
