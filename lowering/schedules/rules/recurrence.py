"""The recurrence of an RNN, GRU or LSTM: register tiles that hold all gates of some units.

    for s: for units: for rows of the batch: {
        A[rows, gates, units] = Z[t, rows, gates, units]                              (registers)
        for k: unrolled rows, gates: vectorised units: A += H[rows, k] * R[units tile, k, gates, units]
        vectorised units: states = gates of A }

The weights stand in memory in the order in which a step reads them; they are all that it reads but for the states,
which stay in the first cache. The products with the inputs are another stage, which `contraction` schedules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import stmt as s_stmt

from ....costmodels.device import WIDE, Device
from ....costmodels.register_tiles import MOST_VECTORS, Tile
from ....ir.operators.recurrent import RecurrentCell, read_cell
from ...compute.recurrence import RECURRENCE, RecurrenceBuffers, make_block
from ...compute.recurrent_tiling import Pass, RecurrenceTiling, RecurrentWeights, StateWords, list_passes
from ..base.blocks import FUNCTION, parameter_index
from ..base.draft import CONSTANTS, Draft
from ..base.extents import estimate_extent
from ..base.rewriting import with_body
from ..base.tiled import Tiled
from ..tiling.register_tile import PARALLEL_CYCLES

GATE_CYCLES = 16.0
"""Cycles of the activation of a gate of one vector of units."""
MOST_ROWS = 8
"""Sequences of a tile: more take more registers than there are."""


@dataclass(frozen=True)
class RecurrencePlan:
    """A tiling, and the estimated cycles of a step of all directions."""

    tiling: RecurrenceTiling
    cycles: float

    @property
    def label(self) -> str:
        """``2x16 v4,8``: rows by lanes, and the vectors of the gates of each pass."""
        vectors = ",".join(str(each.gates * each.vectors) for each in self.tiling.passes)
        return f"{self.tiling.rows}x{self.tiling.lanes} v{vectors}"

    @property
    def features(self) -> Mapping[str, float]:
        """The numbers that a learned model judges it by."""
        vectors = sum(each.gates * each.vectors for each in self.tiling.passes)
        return {"rows": self.tiling.rows, "lanes": self.tiling.lanes, "vectors": vectors}


def recurrence(draft: Draft) -> Iterator[Tiled]:
    """The rule: matches a function that is nothing but a recurrence."""
    function = draft.function
    nest = function.body.block.body
    if not isinstance(nest, s_stmt.SBlockRealize) or RECURRENCE not in nest.block.annotations:
        return
    block = nest.block
    attribute = str(block.annotations[RECURRENCE])
    *arguments, reads, writes = json.loads(attribute)
    cell = read_cell(*arguments)
    read = dict(zip(reads, (region.source for region in block.reads), strict=True))
    written = dict(zip(writes, (region.source for region in block.writes), strict=True))
    used = {name: buffer for name, buffer in written.items() if parameter_index(function, buffer) is not None}
    buffers = RecurrenceBuffers(read, used)
    steps, batch = (estimate_extent(extent, function) for extent in (buffers.steps, buffers.batch))
    plans = list(list_plans(cell, batch, buffers.dtype, draft.device, is_rounded=buffers.is_rounded))
    plan = draft.trace.decide("tile", plans, lambda plan: plan.cycles)
    tiling = replace(plan.tiling, shared=_choose_shared(cell, plan, draft, steps))
    index = parameter_index(function, read["r"])
    weights = RecurrentWeights(0 if index is None else index, cell.hidden, tiling)
    params = list(function.params)
    repack: tuple[RecurrentWeights, ...] = ()
    indices = {int(i) for i in (function.attrs or {}).get(CONSTANTS, ())}
    if index is not None and index in indices:
        shape = weights.packed_shape(tuple(map(int, read["r"].shape)))
        read["r"] = params[index] = tirx.decl_buffer(shape, str(read["r"].dtype), str(read["r"].name))
        repack = (weights,)
    scheduled = make_block(cell, RecurrenceBuffers(read, used), tiling, str(block.name_hint), attribute, weights)
    root = with_body(function.body.block, scheduled, alloc_buffers=[])
    realized = s_stmt.SBlockRealize(function.body.iter_values, function.body.predicate, root)
    whole = tirx.PrimFunc(params, realized, function.ret_type, function.attrs)
    finished = replace(draft, schedule=s_tir.Schedule(tvm.IRModule({FUNCTION: whole})))
    yield Tiled(finished, "recurrence", repack, tails="none")


def list_plans(
    cell: RecurrentCell, batch: int, dtype: str, device: Device, *, is_rounded: bool = False
) -> Iterator[RecurrencePlan]:
    """Every tiling that fits the registers, with the best number of vectors for each pass."""
    size = 4 if dtype == "float32" else 8
    words = _choose_words(device) if is_rounded else None
    widest = max(1, device.vector_bits // (8 * size))
    widths = [widest >> shift for shift in range(widest.bit_length())]
    for lanes in [width for width in widths if width <= cell.hidden] or [1]:
        for rows in range(1, min(batch, MOST_ROWS) + 1):
            best = [_best_pass(each, cell, batch, rows, lanes, size, words, device) for each in list_passes(cell)]
            passes = [each for each in best if each is not None]
            if len(passes) == len(best):
                tiling = RecurrenceTiling(tuple(each for each, _ in passes), rows, lanes, words=words)
                yield RecurrencePlan(tiling, len(cell.reverse) * sum(cycles for _, cycles in passes))


def _choose_words(device: Device) -> StateWords:
    """How the device multiplies rounded states: by its instruction for bytes, or for numbers of 16 bits."""
    product = device.integer_product
    if product is None or "int8" not in product.weights:
        return StateWords()
    if product.widened:
        return StateWords(product.length, WIDE)
    return StateWords(product.length) if "uint8" in product.data else StateWords(product.length, "int8", 128)


def _best_pass(
    each: Pass, cell: RecurrentCell, batch: int, rows: int, lanes: int, size: int, words: StateWords | None,
    device: Device,
) -> tuple[Pass, float] | None:  # fmt: skip
    """The vectors of a tile, and the cycles of a step for one direction; None if no tile fits the registers.

    The first rows read the weights of a tile from the cache that holds the weights of all units, the next rows from
    the one that holds those of a tile. Of tiles that wait for weights alike, the one that computes least is taken.
    """

    def reading(weights: int, kept: int) -> float:
        return device.clock * weights / device.bandwidth(kept)

    product_of_bytes = None if words is None else device.integer_product
    share = 1.0 if product_of_bytes is None else product_of_bytes.steps
    size = size if words is None else 1
    all_weights = size * cell.gates * cell.hidden**2
    options = []
    for vectors in range(1, min(MOST_VECTORS + 2, cell.hidden // lanes) + 1):
        tile = Tile(rows, each.gates * vectors, lanes)
        if rows * tile.vectors + min(rows, tile.vectors) + 1 <= device.vector_registers or rows * vectors == 1:
            units, again = -(-cell.hidden // (vectors * lanes)), -(-batch // rows) - 1
            weights = size * cell.hidden * tile.columns
            product, gates = share * cell.hidden * tile.step_cycles(device), rows * tile.vectors * GATE_CYCLES
            first, later = (max(product, reading(weights, kept)) for kept in (all_weights, weights))
            cycles = units * (first + again * later + (again + 1) * gates)
            options.append((cycles, units * (again + 1) * product, replace(each, vectors=vectors)))
    best = min(options, key=lambda option: option[:2], default=None)
    return None if best is None else (best[2], best[0])


def _choose_shared(cell: RecurrentCell, plan: RecurrencePlan, draft: Draft, steps: int) -> str:
    """The work that threads share: directions, which meet at the end only, or the units of each step, which meet in
    each."""
    if draft.threads == 1:
        return ""
    if len(cell.reverse) > 1 and steps * plan.cycles >= PARALLEL_CYCLES:
        return "directions"
    return "units" if plan.cycles / len(cell.reverse) >= PARALLEL_CYCLES else ""
