"""Weights that are fetched ahead: while one tile of columns is computed, those of the next come nearer.

    for column tile c: for row tile r: for k_o: { C += A * W[c, k_o] }
 => for column tile c: for row tile r: for k_o: { fetch a part of W[c + 1]; C += A * W[c, k_o] }

A model reads its weights once in a run, so they come from far away. The processor's own prefetchers follow a stream
within a page, and know nothing of the next tile while this one is computed; so a product waits for weights and computes
in turns. Fetched ahead, both go on at once. An address behind the last tile is never read: a prefetch cannot fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import ir, sym, tirx
from tvm.s_tir import stmt as s_stmt

from ....costmodels.device import Device
from ....costmodels.device_file import CACHE_LINE
from ....costmodels.register_tiles import NEAR_COLUMNS
from ..base.blocks import REDUCTION, element_bytes, walk
from ..base.draft import Draft
from ..base.extents import estimate_extent
from ..base.nodes import Buffer, Expression, Statement, Variable
from ..base.rewriting import rebuild, with_loop_body
from ..base.tiled import Tiled
from .tails import PACKED

FEWEST_BYTES = 1 << 16
"""Weights that are smaller stay near by themselves."""
MOST_LINES = 64
"""Cache lines that a step may fetch; more would keep it from anything else."""
LINE_CYCLES = 2.0
"""Cycles for a line from the second cache to the first, which prefetches share; measured on the device `host`."""
SLACK = 0.05
"""The part of the arithmetic that waiting for weights does not hide."""
_INDEX = "int32"
_SECOND_CACHE = 2
"""Where to fetch to, as LLVM counts localities from 0 (nowhere) to 3 (the first cache)."""


@dataclass(frozen=True)
class Weights:
    """Constants of a product: `size` bytes in all, `tile` of them for a tile of columns, which `rounds` tiles use."""

    size: int
    tile: int
    rounds: int

    def far_cycles(self, device: Device) -> float:
        """Cycles to bring all of them from behind the second cache; 0 if they are few enough to be still there."""
        if self.size < FEWEST_BYTES:
            return 0.0
        return self.size / device.bandwidth(device.second_cache + 1) * device.clock

    def ahead_cycles(self, computing: float, device: Device) -> float:
        """Cycles of a product that fetches them ahead: once to the second cache, and to the first for each use."""
        again = self.rounds if self.tile > NEAR_COLUMNS * device.caches[0].size else 1
        near = LINE_CYCLES * (self.size // CACHE_LINE) * (again + 1)
        return SLACK * computing + max(computing, self.far_cycles(device), near)


def cycles_with_weights(computing: float, weights: Weights, device: Device) -> float:
    """Cycles of a product: either it waits for its weights and computes in turns, or they are fetched ahead."""
    far = weights.far_cycles(device)
    return min(computing + far, weights.ahead_cycles(computing, device)) if far else computing


def is_worthwhile(computing: float, weights: Weights, device: Device) -> bool:
    """Whether fetching ahead is faster; not if all the time goes into waiting, which the processor does as well."""
    far = weights.far_cycles(device)
    return 0.0 < far <= 2 * computing and weights.ahead_cycles(computing, device) < computing + far


def fetch_ahead(tiled: Tiled) -> Tiled:
    """The pass: products get prefetches if that is decided. Nothing can be scheduled after it."""
    if not tiled.fetches_ahead:
        return tiled
    draft = tiled.draft
    rewriter = _PrefetchInserter(draft)
    body = rewriter.rewrite(draft.function.body, ())
    return replace(tiled, draft=draft.with_body(body)) if rewriter.changed else tiled


@dataclass
class _PrefetchInserter:
    """Rebuilds a function with prefetches of its parameters; `changed` says whether it got any."""

    draft: Draft
    changed: bool = False

    def rewrite(self, node: Statement, loops: Sequence[Statement]) -> Statement:
        """The statement rebuilt; `loops` are those around it, the outermost first."""
        if not isinstance(node, tirx.For):
            return rebuild(node, lambda part: self.rewrite(part, loops))
        loops = (*loops, node)
        realize = _find_packed_product(node)
        fetches = [] if realize is None else self._fetches(realize, loops)
        body = tirx.SeqStmt([*fetches, node.body]) if fetches else self.rewrite(node.body, loops)
        return with_loop_body(node, body)

    def _fetches(self, realize: Statement, loops: Sequence[Statement]) -> list[Statement]:
        """The prefetches of the next tile of weights in a step of the innermost loop over the reduction."""
        inner = _inner_loops(loops[-1])
        weights = self._weights(realize, [loop.loop_var for loop in inner])
        if weights is None:
            return []
        buffer, tile = weights
        used = set(_variables(tile))
        outermost = max((n for n, loop in enumerate(loops) if loop.loop_var in used), default=-1)
        inside = [loop for loop in loops[outermost + 1 :] if _is_serial(loop)]
        steps = self._iterations(inside)
        element = element_bytes(buffer)
        size = element * prod(int(extent) for extent in buffer.shape[1:])
        lines = -(-size // CACHE_LINE // steps)
        if lines > MOST_LINES or steps * lines > 2 * size // CACHE_LINE:
            return []
        reduced = _reduced_variables(realize)
        rounds = self._iterations(loop for loop in inside if loop.loop_var not in reduced)
        tiles, device = int(buffer.shape[0]), self.draft.device
        computing = self._iterations((*inside, *inner)) // device.lanes * tiles / device.fma_ports
        usual = is_worthwhile(computing, Weights(size * tiles, size, rounds), device)
        if not self.draft.trace.decide_flag("prefetch", usual):
            return []
        self.changed = True
        step: Any = tirx.const(0, _INDEX)
        for loop in inside:
            step = step * loop.extent + loop.loop_var
        per_line = CACHE_LINE // element
        first = step * (lines * per_line)
        return [_fetch(buffer, tile + 1, first + line * per_line) for line in range(lines)]

    def _iterations(self, loops: Iterable[Statement]) -> int:
        return prod(estimate_extent(loop.extent, self.draft.function) for loop in loops)

    def _weights(self, realize: Statement, inner: Sequence[Any]) -> tuple[Buffer, Expression] | None:
        """The packed constant that the product reads tile by tile, and the tile as the `inner` loops start."""
        parameters = {str(parameter.name) for parameter in self.draft.function.params}
        names = parameters & {str(name) for name in realize.block.annotations[PACKED]}
        bound = dict(zip((i.var for i in realize.block.iter_vars), realize.iter_values, strict=True))
        for load in (part for part in walk(realize.block.body.value) if isinstance(part, ir.TensorLoad)):
            if str(load.source.name) in names:
                tile = _substitute(load.indices[0], bound)
                return load.source, _substitute(tile, {v: tirx.const(0, _INDEX) for v in inner})
        return None


def _is_serial(loop: Statement) -> bool:
    return int(loop.kind) == int(tirx.ForKind.SERIAL)


def _find_packed_product(loop: Statement) -> Any | None:
    """The packed product that a serial loop computes, if all loops inside of it are unrolled or vectors."""
    node = loop.body
    while isinstance(node, tirx.For) and not _is_serial(node):
        node = node.body
    is_packed = isinstance(node, s_stmt.SBlockRealize) and PACKED in node.block.annotations
    if not _is_serial(loop) or not is_packed:
        return None
    reduces = any(int(i.iter_type) == REDUCTION for i in node.block.iter_vars)
    return node if reduces and isinstance(node.block.body, tirx.BufferStore) else None


def _substitute(expression: Expression, values: Mapping[Any, Any]) -> Expression:
    if not values:
        return expression
    (result,) = tirx.IndexMap(list(values), [expression], None).map_indices(list(values.values()))
    return sym.Analyzer().simplify(result)


def _inner_loops(loop: Statement) -> list[Any]:
    loops, node = [], loop.body
    while isinstance(node, tirx.For):
        loops.append(node)
        node = node.body
    return loops


def _reduced_variables(realize: Statement) -> set[Variable]:
    """The loop variables that a reduction of the block runs along."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    reduced = (value for i, value in pairs if int(i.iter_type) == REDUCTION)
    return {variable for value in reduced for variable in _variables(value)}


def _variables(expression: Expression) -> list[Variable]:
    return [part for part in walk(expression) if isinstance(part, tirx.Var)]


def _fetch(buffer: Buffer, tile: Expression, element: Expression) -> Statement:
    """A prefetch of the line with an element of a tile, whose dimensions count as one here."""
    load = tirx.BufferLoad(buffer, [tile, *(0,) * (len(buffer.shape) - 2), element])
    address = tirx.call_intrin("handle", "tirx.address_of", load)
    read, locality, data = (tirx.const(number, "int32") for number in (0, _SECOND_CACHE, 1))
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", address, read, locality, data))
