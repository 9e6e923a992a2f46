"""The estimated cycles of a convolution by a minimal filter: products, transforms, and traffic between caches."""

from __future__ import annotations

from ....costmodels.device import Device
from ..draft import Draft
from ..tiling.register_tile import UNROLLED_PRODUCTS, TilePlan
from ..tiling.tiles import FLOAT_BYTES, Tile, register_tiles, tile_cycles
from .filters import Filter
from .function import WinogradTiling
from .match import FilteredConvolution

ROW, COLUMN = 3, 4
"""Iterators of the product: tiles are its rows, output channels its columns."""
TRANSFORM = 1.3
"""Cycles of a transform per cycle of its instructions: some of its values do not fit the registers."""
EXPOSED = 0.4
"""The part of the traffic to a second cache, or of a long stream, that nothing hides: measured on the device `host`."""
SLAB = range(8, 257)
"""Tiles of a slab, where there are as many: fewer would read the weights too often, more fit no second cache."""


def list_slab_counts(convolution: FilteredConvolution, filter: Filter) -> list[int]:
    """The numbers of slabs that differ in the size of these."""
    tiles = WinogradTiling(filter, convolution, 1, 1, (1, 1)).tiles
    return sorted({-(-tiles // min(size, tiles)) for size in SLAB})


def list_plans(draft: Draft, convolution: FilteredConvolution, filter: Filter, slabs: int) -> list[TilePlan]:
    """The register tiles of the products whose columns divide the output channels; cycles are of the whole.

    Tiles that leave a loop over channels come alone, if there are any: without a loop LLVM loads all weights in front
    of the loop over the tiles.
    """
    device, outputs = draft.device, convolution.outputs[3]
    rows = WinogradTiling(filter, convolution, slabs, 1, (1, 1)).slab
    whole = [t for t in register_tiles(rows, outputs, device, window=False) if outputs % t.columns == 0]
    looped = [t for t in whole if convolution.channels > UNROLLED_PRODUCTS // (t.rows * t.vectors)]
    idle = -(-slabs // draft.threads) * draft.threads / slabs
    tilings = [(tile, find_tiling(convolution, filter, slabs, tile, device)) for tile in looped or whole]
    return [TilePlan(COLUMN, ROW, tile, idle * _estimate_cycles(tiling, tile, device)) for tile, tiling in tilings]


def find_tiling(
    convolution: FilteredConvolution, filter: Filter, slabs: int, tile: Tile, device: Device
) -> WinogradTiling:
    """The tiling for a register tile."""
    lanes = device.lanes
    while convolution.channels % lanes:
        lanes //= 2
    return WinogradTiling(filter, convolution, slabs, tile.columns, (lanes, tile.lanes))


def _estimate_cycles(tiling: WinogradTiling, tile: Tile, device: Device) -> float:
    """Cycles on one thread."""
    channels, outputs = tiling.convolution.channels, tiling.convolution.outputs[3]
    products = tiling.filter.products * tile_cycles(tile, tiling.slab, outputs, channels, device, scattered=False)
    return tiling.slabs * (products + _transform_cycles(tiling, device)) + _traffic_cycles(tiling, device)


def _transform_cycles(tiling: WinogradTiling, device: Device) -> float:
    """Cycles for inputs and outputs of a slab: arithmetic, loads and stores of vectors, one after the other."""
    conv, filter, rows = tiling.convolution, tiling.filter, tiling.slab
    elements = filter.size**2
    loads = filter.products / device.load_ports
    arithmetic = 2 * filter.window * filter.input_operations / device.fma_ports
    inputs = arithmetic + loads + filter.products / device.store_ports
    arithmetic = (filter.window + filter.size) * filter.output_operations / device.fma_ports
    outputs = arithmetic + loads + elements / device.store_ports + elements / device.load_ports
    vectors = (conv.channels // tiling.lanes[0], conv.outputs[3] // tiling.lanes[1])
    return TRANSFORM * rows * (vectors[0] * inputs + vectors[1] * outputs)


def _traffic_cycles(tiling: WinogradTiling, device: Device) -> float:
    """Cycles for V and M of all slabs where they do not fit the first cache, and for the weights in every slab.

    The first slab reads the weights from memory: between two runs the rest of a model has the caches.
    """
    conv, place = tiling.convolution, FLOAT_BYTES * tiling.filter.products
    outputs = conv.outputs[3]
    kept = place * tiling.slab * (conv.channels + tiling.columns)
    moved = 2 * place * tiling.slab * (conv.channels + outputs) * tiling.slabs
    between = moved / device.bandwidth(2 * kept) if 2 * kept > device.caches[0].size else 0.0
    weights = place * conv.channels * outputs
    again = (tiling.slabs - 1) * weights / device.bandwidth(2 * weights)
    exposed = EXPOSED if 2 * kept <= device.second_cache else 1.0
    return device.clock * (exposed * between + EXPOSED * again) + weights / device.dram_bandwidth * device.clock
