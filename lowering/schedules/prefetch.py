"""Weights that are fetched ahead: while one tile of columns is computed, those of the next come nearer.

    for column tile c: for row tile r: for k_o: { C += A * W[c, k_o] }
 => for column tile c: for row tile r: for k_o: { fetch a part of W[c + 1]; C += A * W[c, k_o] }

A model reads its weights once in a run, so they come from far away. The processor's own prefetchers follow a stream
within a page, and know nothing of the next tile while this one is computed; so a product waits for weights and computes
in turns. Fetched ahead, both go on at once. An address behind the last tile is never read: a prefetch cannot fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import ir, s_tir, sym, tirx
from tvm.s_tir import stmt as s_stmt

from ...costmodels.device import Device
from ...costmodels.device_file import CACHE_LINE
from .decisions import decide_number
from .rewriting import with_body, with_loop_body
from .stages import FUNCTION, walk
from .tails import PACKED
from .tiling.tiles import FLOAT_BYTES

FEWEST_BYTES = 1 << 16
"""Weights that are smaller stay near by themselves."""
MOST_LINES = 64
"""Of a step; more would keep it from anything else."""
LINE_CYCLES = 2.0
"""For a line from the second cache to the first, which prefetches share; measured on the device `host`."""
NEAR_SHARE = 0.75
"""Of the first cache, what weights may take that stay there while a tile of columns is computed."""
SLACK = 0.05
"""Of the arithmetic, what is not hidden by waiting for weights."""
_INDEX = "int32"
_SECOND_CACHE = 2
"""Where to, as LLVM counts localities from 0 (nowhere) to 3 (the first cache)."""


def fetch_ahead(schedule: s_tir.Schedule, device: Device) -> s_tir.Schedule:
    """The same schedule with prefetches in its products, where that is decided. Nothing can be scheduled after it."""
    function = schedule.mod[FUNCTION]
    names = frozenset(str(parameter.name) for parameter in function.params)
    rewriting = _Rewriting(names, device)
    body = rewriting.statement(function.body, ())
    return s_tir.Schedule(tvm.IRModule({FUNCTION: function.with_body(body)})) if rewriting.changed else schedule


@dataclass(frozen=True)
class Weights:
    """Constants of a product: `size` bytes in all, `tile` of them for a tile of columns, which `rounds` tiles use."""

    size: int
    tile: int
    rounds: int

    def far_cycles(self, device: Device) -> float:
        """To bring all of them from behind the second cache; 0 where they are few enough to be still there."""
        if self.size < FEWEST_BYTES:
            return 0.0
        return self.size / device.bandwidth(device.second_cache + 1) * device.clock

    def near_cycles(self, device: Device) -> float:
        """To bring them from the second cache to the first as often as they are used, and prefetched ones there."""
        again = self.rounds if self.tile > NEAR_SHARE * device.caches[0].size else 1
        return LINE_CYCLES * (self.size // CACHE_LINE) * (again + 1)


def cycles_with_weights(computing: float, weights: Weights, device: Device) -> float:
    """Cycles of a product: either it waits for its weights and computes in turns, or they are fetched ahead."""
    far = weights.far_cycles(device)
    if not far:
        return computing
    return min(computing + far, SLACK * computing + max(computing, far, weights.near_cycles(device)))


def is_worthwhile(computing: float, weights: Weights, device: Device) -> bool:
    """Whether fetching ahead is faster; not where all the time goes into waiting, which the processor does as well."""
    far = weights.far_cycles(device)
    ahead = SLACK * computing + max(computing, far, weights.near_cycles(device))
    return far > 0.0 and far <= 2 * computing and ahead < computing + far


@dataclass
class _Rewriting:
    """Rebuilds a function with the parameters `names`; `changed` says whether it got prefetches."""

    names: frozenset[str]
    device: Device
    changed: bool = False

    def statement(self, node: Any, loops: Sequence[Any]) -> Any:
        """The statement rebuilt; `loops` are those around it, the outermost first."""
        if isinstance(node, tirx.SeqStmt):
            return tirx.SeqStmt([self.statement(part, loops) for part in node.seq])
        if isinstance(node, s_stmt.SBlockRealize):
            block = with_body(node.block, self.statement(node.block.body, loops))
            return s_stmt.SBlockRealize(node.iter_values, node.predicate, block)
        if not isinstance(node, tirx.For):
            return node
        realize = _product(node) if _is_serial(node) else None
        fetches = [] if realize is None else self._fetches(realize, (*loops, node))
        body = tirx.SeqStmt([*fetches, node.body]) if fetches else self.statement(node.body, (*loops, node))
        return with_loop_body(node, body)

    def _fetches(self, realize: Any, loops: Sequence[Any]) -> list[Any]:
        """What a step of the innermost loop over the reduction fetches of the next tile of weights."""
        weights = self._weights(realize, [loop.loop_var for loop in _inner_loops(loops[-1])])
        if weights is None:
            return []
        buffer, tile = weights
        inside = _loops_inside(tile, loops)
        steps = prod(int(loop.extent) for loop in inside)
        size = FLOAT_BYTES * prod(int(extent) for extent in buffer.shape[1:])
        lines = -(-size // CACHE_LINE // steps)
        if lines > MOST_LINES or steps * lines > 2 * size // CACHE_LINE:
            return []
        usual = self._usual(realize, buffer, inside, loops[-1])
        if not decide_number("prefetch", (0, 1), lambda number: 1.0 + abs(number - usual)):
            return []
        self.changed = True
        per_line = CACHE_LINE // FLOAT_BYTES
        first = _position(inside) * (lines * per_line)
        return [_fetch(buffer, tile + 1, first + line * per_line) for line in range(lines)]

    def _usual(self, realize: Any, buffer: Any, inside: Sequence[Any], step: Any) -> bool:
        """Whether the device model says that it pays."""
        reduced = _reduced_variables(realize)
        rounds = prod(int(loop.extent) for loop in inside if loop.loop_var not in reduced)
        tile = FLOAT_BYTES * prod(int(extent) for extent in buffer.shape[1:])
        products = prod(int(loop.extent) for loop in (*inside, *_inner_loops(step))) // self.device.lanes
        weights = Weights(tile * int(buffer.shape[0]), tile, rounds)
        return is_worthwhile(products * int(buffer.shape[0]) / self.device.fma_ports, weights, self.device)

    def _weights(self, realize: Any, inner: Sequence[Any]) -> tuple[Any, Any] | None:
        """The packed constant that the product reads tile by tile, and the tile that it reads; `inner` loops start."""
        names = [str(name) for name in realize.block.annotations[PACKED]]
        bound = dict(zip((i.var for i in realize.block.iter_vars), realize.iter_values, strict=True))
        for load in (part for part in walk(realize.block.body.value) if isinstance(part, ir.TensorLoad)):
            name = str(load.source.name)
            if name in names and name in self.names:
                tile = _substituted(load.indices[0], bound)
                return load.source, _substituted(tile, {v: tirx.const(0, _INDEX) for v in inner})
        return None


def _is_serial(loop: Any) -> bool:
    return int(loop.kind) == int(tirx.ForKind.SERIAL)


def _product(loop: Any) -> Any | None:
    """The packed product that a loop computes, if all loops inside of it are unrolled or vectors."""
    node = loop.body
    while isinstance(node, tirx.For) and not _is_serial(node):
        node = node.body
    if not isinstance(node, s_stmt.SBlockRealize) or PACKED not in node.block.annotations:
        return None
    reduces = any(int(i.iter_type) == int(tirx.IterVar.CommReduce) for i in node.block.iter_vars)
    return node if reduces and isinstance(node.block.body, tirx.BufferStore) else None


def _substituted(expression: Any, values: Mapping[Any, Any]) -> Any:
    if not values:
        return expression
    (found,) = tirx.IndexMap(list(values), [expression], None).map_indices(list(values.values()))
    return sym.Analyzer().simplify(found)


def _inner_loops(loop: Any) -> list[Any]:
    found, node = [], loop.body
    while isinstance(node, tirx.For):
        found.append(node)
        node = node.body
    return found


def _reduced_variables(realize: Any) -> set[Any]:
    """The loop variables that a reduction of the block runs along."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    reduced = (value for i, value in pairs if int(i.iter_type) == int(tirx.IterVar.CommReduce))
    return {variable for value in reduced for variable in _variables(value)}


def _loops_inside(tile: Any, loops: Sequence[Any]) -> list[Any]:
    """The serial loops inside of the innermost one that decides about the tile."""
    used = set(_variables(tile))
    last = max((n for n, loop in enumerate(loops) if loop.loop_var in used), default=-1)
    return [loop for loop in loops[last + 1 :] if _is_serial(loop)]


def _variables(expression: Any) -> list[Any]:
    return [part for part in walk(expression) if isinstance(part, tirx.Var)]


def _position(loops: Sequence[Any]) -> Any:
    """How many steps of the loops came before, as an expression."""
    found: Any = tirx.const(0, _INDEX)
    for loop in loops:
        found = found * loop.extent + loop.loop_var
    return found


def _fetch(buffer: Any, tile: Any, element: Any) -> Any:
    """A prefetch of the line with an element of a tile, which has no other dimensions for this purpose."""
    rest = len(buffer.shape) - 2
    load = tirx.BufferLoad(buffer, [tile, *(0,) * rest, element])
    address = tirx.call_intrin("handle", "tirx.address_of", load)
    places = (tirx.const(number, "int32") for number in (0, _SECOND_CACHE, 1))
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", address, *places))
