"""Planes of free size with few of a filter's tiles: products are direct there, of weights behind the transformed ones.

    for n, h, w, o, c, i, j: C += X[n, h + i, w + j, c] * W[o, c, i, j]
 => if tiles >= least: (Winograd's form) else: for ...: C += X[...] * W'[first + o // 32 * 9 + i * 3 + j, c, o % 32]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt

from ....costmodels.device import Device
from ....costmodels.register_tiles import Tile, tile_cycles
from ..base.blocks import FUNCTION, BlockInfo
from ..base.draft import Draft
from ..base.rewriting import point, rebuild, with_body
from ..base.winograd_filters import TAPS
from ..tiling.tiles import FLOAT_BYTES
from .function import WinogradTiling

FEW_ROWS = 4
"""Rows of a register tile of the direct products."""
MOST = 32
"""Tiles from which on a filter is always taken: its register tiles are full."""


def least_tiles(
    tiling: WinogradTiling, tile: Tile, cycles_of: Callable[[WinogradTiling], float], device: Device
) -> int:
    """The number of tiles of the filter from which on it is estimated to be faster than direct products.

    `tile` is that of the direct products; `cycles_of` estimates the filter for a tiling of fixed sizes.
    """
    conv, size = tiling.convolution, tiling.filter.size
    channels, outputs = conv.channels, int(conv.outputs[3])
    weights = FLOAT_BYTES * TAPS**2 * channels * outputs
    for count in range(1, MOST):
        fixed = replace(conv, outputs=(1, size, size * count, outputs))
        filtered = cycles_of(replace(tiling, convolution=fixed, slabs=1))
        direct = tile_cycles(tile, size**2 * count, outputs, TAPS**2 * channels, device)
        if filtered < direct + weights / device.dram_bandwidth * device.clock:
            return count
    return MOST


def read_direct_weights(draft: Draft, anchor: BlockInfo, tiling: WinogradTiling) -> Draft:
    """A draft whose sum reads the weights that stand behind the transformed ones."""
    function, columns = draft.function, tiling.columns
    before = function.params[tiling.convolution.weights]
    count = int(before.shape[0]) // columns
    first = count * tiling.filter.products
    shape = (first + count * TAPS**2, before.shape[1], columns)
    packed = tirx.decl_buffer(shape, "float32", str(before.name))

    def place_of(o: Any, c: Any, i: Any, j: Any) -> tuple[Any, ...]:
        return (first + o // columns * TAPS**2 + i * TAPS + j, c, o % columns)

    def load(part: Any) -> Any:
        is_weight = part.source.same_as(before)
        return tirx.BufferLoad(packed, place_of(*part.indices)) if is_weight else part

    def rewrite(node: Any) -> Any:
        is_sum = isinstance(node, s_stmt.SBlockRealize) and str(node.block.name_hint) == anchor_name
        if not is_sum:
            return rebuild(node, rewrite)
        block, store = node.block, node.block.body
        value = tvm_ffi.structural_map(store.value, [(ir.TensorLoad, load)])
        reads = [
            point(packed, place_of(*(r.min for r in region.region))) if region.source.same_as(before) else region
            for region in block.reads
        ]
        body = with_body(block, tirx.BufferStore(store.buffer, value, store.indices), reads=reads)
        return s_stmt.SBlockRealize(node.iter_values, node.predicate, body)

    anchor_name = str(draft.schedule.get(anchor.block).name_hint)
    params = [packed if p.same_as(before) else p for p in function.params]
    changed = tirx.PrimFunc(params, rewrite(function.body), function.ret_type, function.attrs)
    return replace(draft, schedule=s_tir.Schedule(tvm.IRModule({FUNCTION: changed})))
