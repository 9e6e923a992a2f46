"""The choice of a register tile by an analytic count of cycles, without a search.

The innermost loops of a product sum hold `rows` x `vectors` accumulators in registers; each step of the reduction loads
`vectors` vectors of one operand, broadcasts `rows` scalars of the other, and does rows*vectors fused multiply-adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from .device import Device

LATENCY = 4
"""Cycles of a fused multiply-add until its accumulator can be used again."""
ADDERS = 1
"""Ports that add vectors of integers beside those that multiply: Intel's since Haswell; AMD has more."""
HELD_PRODUCTS = 4
"""Registers for products that are not added yet, and words that LLVM broadcasts ahead: of 16 registers, tiles of 4 x 2
vectors were the fastest, or as fast as 5 x 2 and 3 x 3 (Xeon, sums of 24 to 512 bytes)."""
MISS = 0.2
"""Cycles that a load costs beyond its port, on average: it prefers large tiles, which load less per product."""
ELEMENT_BITS = 128
"""The most bits of vectors for which a multiplication takes one operand as an element of a vector (fmla by element)."""
STEP_BYTES = 4
"""Bytes of a column of a step: a number of float32, or the bytes whose products an instruction adds up."""
NEAR_COLUMNS = 0.75
"""The part of the first cache that the columns of a tile, such as weights, may take and still be there for the next
rows."""
SCALAR_STORE = 1.5
"""Cycles for taking one element out of a vector and storing it."""
EVICTED_STORE = 10.0
"""Cycles as above, if the line has left the first cache since its last element was stored. On an EPYC with AVX-512, a
transposed convolution to planes of 4 KiB took 8 cycles more for each element by tiles of 32 columns than by 8."""
EVICTED_LOAD = 6.0
"""Cycles for an element whose line has left the first cache since its neighbour was loaded; measured there, too."""
MOST_VECTORS = 6
"""Vectors of a row of a tile; wider ones never fit the registers with enough rows."""


@dataclass(frozen=True)
class Tile:
    """`rows` of broadcast scalars by `vectors` of `lanes` elements."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Elements along the vectorised axis."""
        return self.vectors * self.lanes

    @property
    def label(self) -> str:
        """``2x3x8``."""
        return f"{self.rows}x{self.vectors}x{self.lanes}"

    @property
    def features(self) -> Mapping[str, float]:
        """The numbers by which a learned model judges it."""
        accumulators = self.rows * self.vectors
        return {"rows": self.rows, "vectors": self.vectors, "lanes": self.lanes, "accumulators": accumulators}

    def step_cycles(self, device: Device, *, depth: int = 1, widened: bool = False) -> float:
        """Cycles of a step of the reduction: the scarcest of arithmetic, loads and latency, and loads that miss.

        The columns of all `depth` steps are read again by each tile of rows, from the second cache if the first does
        not hold them. If bytes are `widened`, which each vector of weights takes one instruction for, products are
        added by another.
        """
        products, loads = self.rows * self.vectors, self.rows + self.vectors
        busy = products / device.fma_ports
        if widened:
            busy = max(busy, (2 * products + self.vectors) / (device.fma_ports + ADDERS))
        line = STEP_BYTES * self.columns
        near = device.caches[0].size * NEAR_COLUMNS
        brought = 0.0 if depth * line <= near else line / device.bandwidth(device.second_cache) * device.clock
        return max(busy, loads / device.load_ports, float(LATENCY), brought) + MISS * loads

    def fits(self, device: Device, *, window: bool = False, widened: bool = False) -> bool:
        """Whether accumulators, loaded vectors and broadcasts stay in the vector registers.

        One broadcast is held at a time; with a `window` those of all rows, for the compiler keeps them for the next
        position. NEON multiplies by elements of vectors, of which the compiler loads one for each row. Products of
        bytes that are `widened` are held until they are added.
        """
        broadcasts = self.rows if window or device.vector_bits <= ELEMENT_BITS else 1
        held = self.rows * self.vectors + self.vectors + broadcasts + (HELD_PRODUCTS if widened else 0)
        return held <= device.vector_registers


def register_tiles(
    rows: int, columns: int, device: Device, *, window: bool, widened: bool = False
) -> Iterator[Tile]:
    """All tiles for an output of that many rows and columns."""
    widths = [device.lanes >> shift for shift in range(device.lanes.bit_length())]
    for lanes in [width for width in widths if width <= columns] or [1]:
        for vectors in range(1, min(MOST_VECTORS, columns // lanes) + 1):
            for row_count in range(1, int(min(rows, device.vector_registers)) + 1):
                tile = Tile(row_count, vectors, lanes)
                if tile.fits(device, window=window, widened=widened):
                    yield tile


def tile_cycles(
    tile: Tile,
    rows: int,
    columns: int,
    depth: int,
    device: Device,
    stride: int | None = None,
    *,
    widened: bool = False,
) -> float:
    """Cycles for the whole rows x columns output, which runs along the vectorised axis, or else has its next element
    `stride` bytes away."""
    count = -(-rows // tile.rows) * -(-columns // tile.columns)
    each = 1.0
    if stride is not None:
        each = tile.lanes * (SCALAR_STORE if device.caches[0].holds(tile.columns, stride) else EVICTED_STORE)
    return count * (depth * tile.step_cycles(device, depth=depth, widened=widened) + tile.rows * tile.vectors * each)


@lru_cache(maxsize=1 << 12)
def least_tile_cycles(rows: int, columns: int, depth: int, device: Device) -> float:
    """Cycles of a rows x columns output by the tile that takes the fewest."""
    tiles = register_tiles(rows, columns, device, window=False)
    return min(tile_cycles(tile, rows, columns, depth, device) for tile in tiles)
