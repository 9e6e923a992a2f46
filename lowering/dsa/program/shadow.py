"""The state of the bytes of one memory while a program is checked: who wrote them last, for which buffer, and who
read them.

Bytes that no instruction tells apart share a cell: cells end where a region begins or ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .instructions import Region

NOBODY = -2
INITIALLY = -1
"""The writer of inputs and constants."""


Cells = slice | np.ndarray
"""The numbers of the cells of a region."""


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `end` that `writer` last wrote as a part of the buffer numbered `buffer`."""

    start: int
    end: int
    writer: int
    buffer: int


class Shadow:
    """`regions`: all that are read, written or initially there; `readers`: how many engines touch the memory."""

    def __init__(self, regions: Iterable[Region], readers: int) -> None:
        distinct = {rows_of(region): region for region in regions}.values()
        edges = [edge for region in distinct if region.rows == 1 for edge in (region.address, region.end)]
        strided = [region.starts + end for region in distinct if region.rows > 1 for end in (0, region.row_bytes)]
        self._bounds = np.unique(np.concatenate([np.array(edges, np.int64), *strided]))
        self._cell = {bound: cell for cell, bound in enumerate(self._bounds.tolist())}
        self._owner = np.full(len(self._bounds), _owner(NOBODY, 0), np.int64)
        self._readers = np.full((len(self._bounds), readers), -1, np.int32)
        self._cells: dict[Rows, Cells] = {}

    def owners(self, cells: Cells) -> list[tuple[int, int]]:
        """The writers and buffers of `pieces`, in any order."""
        owners = self._owner[cells]
        first = int(owners[0])
        if len(owners) == 1 or bool((owners == first).all()):
            return [_pair(first)]
        return [_pair(owner) for owner in set(owners.tolist())]

    def pieces(self, region: Region) -> Iterator[Piece]:
        """What the region holds: for each writer and buffer, the first run of bytes."""
        cells = self._numbers(region)
        owners = self._owner[cells]
        new = (owners[1:] != owners[:-1]) | (cells[1:] != cells[:-1] + 1)
        firsts = [0, *(np.flatnonzero(new) + 1).tolist()]
        lasts = [first - 1 for first in (*firsts[1:], len(cells))]
        seen: set[int] = set()
        for first, last in zip(firsts, lasts, strict=True):
            owner = int(owners[first])
            if owner not in seen:
                seen.add(owner)
                yield Piece(int(self._bounds[cells[first]]), int(self._bounds[cells[last] + 1]), *_pair(owner))

    def readers(self, cells: Cells) -> list[int]:
        """Per engine, the last instruction that read these bytes since they were written."""
        rows = self._readers[cells]
        latest = rows[0] if len(rows) == 1 else rows.max(axis=0)
        return [each for each in latest.tolist() if each >= 0]

    def read(self, cells: Cells, index: int, engine: int) -> None:
        """Instruction `index` on an engine of this memory reads them."""
        self._readers[cells, engine] = index

    def write(self, cells: Cells, index: int, buffer: int) -> None:
        """Instruction `index` (or INITIALLY) writes them."""
        self._owner[cells] = _owner(index, buffer)
        self._readers[cells] = -1

    def _numbers(self, region: Region) -> np.ndarray:
        cells = self.cells(region)
        return np.arange(cells.start, cells.stop) if isinstance(cells, slice) else cells

    def cells(self, region: Region) -> Cells:
        """Those of a region, by which the other methods know its bytes."""
        place = rows_of(region)
        cells = self._cells.get(place)
        if cells is None:
            cells = self._cells[place] = self._find(region)
        return cells

    def _find(self, region: Region) -> Cells:
        if region.rows == 1:
            return slice(self._cell[region.address], self._cell[region.end])
        firsts = np.searchsorted(self._bounds, region.starts)
        lasts = np.searchsorted(self._bounds, region.starts + region.row_bytes)
        return np.concatenate([np.arange(first, last) for first, last in zip(firsts, lasts, strict=True)])


def _owner(writer: int, buffer: int) -> int:
    """Both in one number."""
    return writer << 32 | buffer


def _pair(owner: int) -> tuple[int, int]:
    """The writer and the buffer of an owner."""
    return owner >> 32, owner & 0xFFFFFFFF


class Rows(NamedTuple):
    """Where a region is in its memory, whatever its buffer."""

    address: int
    row_bytes: int
    rows: int
    stride: int


def rows_of(region: Region) -> Rows:
    """Where a region is."""
    return Rows(region.address, region.row_bytes, region.rows, region.stride)
