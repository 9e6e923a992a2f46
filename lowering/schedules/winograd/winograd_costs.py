"""What a convolution by a minimal filter is estimated to take: products, transforms, and what moves between caches."""

from __future__ import annotations

from ....costmodels.device import Device
from ..tiling.register_tile import UNROLLED_PRODUCTS, Plan
from ..tiling.tiles import FLOAT_BYTES, Tile, register_tiles, tile_cycles
from ..winograd_filters import Filter
from .winograd_function import Tiling
from .winograd_match import Convolution

ROW, COLUMN = 3, 4
"""Iterators of the product: tiles are its rows, output channels its columns."""
TRANSFORM = 1.3
"""Cycles of a transform per cycle of its instructions: some of its values do not fit the registers."""
EXPOSED = 0.4
"""The part of the traffic to a second cache, or of a long stream, that nothing hides: measured on the device `host`."""
SLAB = range(8, 257)
"""Tiles of a slab, where there are as many: fewer would read the weights too often, more fit no second cache."""


def slab_counts(convolution: Convolution, filter: Filter) -> list[int]:
    """The numbers of slabs that differ in the size of these."""
    tiles = Tiling(filter, convolution, 1, 1, (1, 1)).tiles
    return sorted({-(-tiles // min(size, tiles)) for size in SLAB})


def winograd_plans(convolution: Convolution, filter: Filter, slabs: int, device: Device, threads: int) -> list[Plan]:
    """The register tiles of the products whose columns divide the output channels; cycles are of the whole."""
    outputs, rows = convolution.outputs[3], Tiling(filter, convolution, slabs, 1, (1, 1)).slab
    whole = [t for t in register_tiles(rows, outputs, device, window=False) if outputs % t.columns == 0]
    idle = -(-slabs // threads) * threads / slabs
    found = []
    for tile in [t for t in whole if _has_loop(t, convolution.channels)] or whole:
        tiling = tiling_of(convolution, filter, slabs, tile, device)
        found.append(Plan(COLUMN, ROW, tile, idle * estimated_cycles(tiling, tile, device)))
    return found


def _has_loop(tile: Tile, channels: int) -> bool:
    """Whether a loop over channels stays: without one, LLVM loads all weights in front of the loop over the tiles."""
    return channels > UNROLLED_PRODUCTS // (tile.rows * tile.vectors)


def tiling_of(convolution: Convolution, filter: Filter, slabs: int, tile: Tile, device: Device) -> Tiling:
    """The tiling for a register tile."""
    lanes = device.lanes
    while convolution.channels % lanes:
        lanes //= 2
    return Tiling(filter, convolution, slabs, tile.columns, (lanes, tile.lanes))


def weight_cycles(elements: int, device: Device) -> float:
    """To read constants once: between two runs the rest of a model has the caches."""
    return FLOAT_BYTES * elements / device.dram_bandwidth * device.clock


def estimated_cycles(tiling: Tiling, tile: Tile, device: Device) -> float:
    """Cycles on one thread."""
    conv, rows = tiling.convolution, tiling.slab
    channels, outputs = conv.channels, conv.outputs[3]
    products = tiling.filter.products * tile_cycles(tile, rows, outputs, channels, device, scattered=False)
    return tiling.slabs * (products + _transforms(tiling, device)) + _traffic(tiling, device)


def _transforms(tiling: Tiling, device: Device) -> float:
    """Of the inputs and outputs of a slab: arithmetic, loads and stores of vectors, one after the other."""
    conv, filter, rows = tiling.convolution, tiling.filter, tiling.slab
    stored = filter.size**2
    read = filter.products / device.load_ports
    inputs = (
        2 * filter.window * filter.input_operations / device.fma_ports + read + filter.products / device.store_ports
    )
    arithmetic = (filter.window + filter.size) * filter.output_operations / device.fma_ports
    outputs = arithmetic + read + stored / device.store_ports + stored / device.load_ports
    vectors = (conv.channels // tiling.lanes[0], conv.outputs[3] // tiling.lanes[1])
    return TRANSFORM * rows * (vectors[0] * inputs + vectors[1] * outputs)


def _traffic(tiling: Tiling, device: Device) -> float:
    """What V and M of all slabs cost where they do not fit the first cache, and the weights for every slab."""
    conv, place = tiling.convolution, FLOAT_BYTES * tiling.filter.products
    outputs = conv.outputs[3]
    kept = place * tiling.slab * (conv.channels + tiling.columns)
    moved = 2 * place * tiling.slab * (conv.channels + outputs) * tiling.slabs
    between = moved / device.bandwidth(2 * kept) if 2 * kept > device.caches[0].size else 0.0
    weights = place * conv.channels * outputs
    again = (tiling.slabs - 1) * weights / device.bandwidth(2 * weights)
    exposed = EXPOSED if 2 * kept <= device.second_cache else 1.0
    return device.clock * (exposed * between + EXPOSED * again) + weight_cycles(weights // FLOAT_BYTES, device)
