"""Tails without guards: the last tile of a loop that its tile does not divide is moved back, to overlap the one before.

    for o in 4: for i in 16: where(o*16 + i < 56): Y[o*16 + i]    =>    for o in 4: for i in 16: Y[min(o*16, 40) + i]

Elements of the overlap are computed twice, with the same result, by whole vectors, without branches. It holds where
outputs do not share memory with inputs, and where a reduction starts and ends inside of the tile: every rule here puts
its loops there. A tile is never larger than its axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt
from tvm_ffi import structural_equal

from .stages import FUNCTION, REDUCTION

MASKED_EXTENT, MASKED_TILE = "eqfuse.masked_extent", "eqfuse.masked_tile"
"""Annotations of a block of partial results whose tile does not divide the extent: `rfactor` loses the guard."""


PACKED = "eqfuse.packed"
"""Annotation of a block: the names of the buffers that are packed by tiles, the last of which may overlap (Repack)."""


@dataclass(frozen=True)
class _Tail:
    """`index` * `tile` + (an offset below tile) must stay below `extent`."""

    index: Any
    tile: int
    extent: int


def overlap_tails(schedule: s_tir.Schedule) -> s_tir.Schedule:
    """The same schedule with every guarded tile moved back; loops whose guard has another form keep it."""
    function = schedule.mod[FUNCTION]
    body = _rewrite(function.body)
    return s_tir.Schedule(tvm.IRModule({FUNCTION: function.with_body(body)}))


def _rewrite(node: Any) -> Any:
    if isinstance(node, tirx.For):
        body = _rewrite(node.body)
        return tirx.For(node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding, node.annotations)
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt([_rewrite(part) for part in node.seq])
    if isinstance(node, s_stmt.SBlockRealize):
        return _realize(node)
    return node


def _realize(node: Any) -> Any:
    guards = _conjuncts(node.predicate)
    found = [tail for guard in guards if (tail := _tail(guard)) is not None]
    old = node.block
    block = s_stmt.SBlock(
        old.iter_vars, old.reads, old.writes, old.name_hint, _rewrite(old.body), old.init, old.alloc_buffers,
        old.match_buffers, old.annotations,
    )  # fmt: skip
    if MASKED_EXTENT in old.annotations and any(i.iter_type == REDUCTION for i in old.iter_vars):
        return _masked(node)
    moved = [[_move_back(value, tail) for value in node.iter_values] for tail in found]
    if not found or len(found) < len(guards) or any(all(v is None for v in values) for values in moved):
        return s_stmt.SBlockRealize(node.iter_values, node.predicate, block)
    values = [next((n for n in new if n is not None), v) for v, *new in zip(node.iter_values, *moved, strict=True)]
    if PACKED in old.annotations:
        return _by_tiles(block, node.iter_values, values, found)
    return s_stmt.SBlockRealize(values, tirx.const(True, "bool"), block)


def _by_tiles(block: Any, before: Any, values: list[Any], tails: list[_Tail]) -> Any:
    """The block, its packed operands read by the number of the tile and the place in it, not by a place in the axis.

    C[v] += X[k] * W[v // 96, k, v % 96] at v = min(o*96, 905) + i    =>    C[v] += X[k] * W[o, k, i]
    """
    packed = {str(name) for name in block.annotations[PACKED]}
    variables, places, body = list(block.iter_vars), list(values), block.body
    for variable, value in zip(block.iter_vars, before, strict=True):
        tail = next((t for t in tails if _move_back(value, t) is not None), None)
        if tail is None:
            continue
        inside = [t for t in _terms(value) if not (t.factor == tail.tile and structural_equal(t.index, tail.index))]
        offset = sum((t.index * t.factor for t in inside), start=tirx.const(0, "int32"))
        number, place = (_axis(f"{variable.var.name}_{part}", tail) for part in ("tile", "place"))
        variables += [number, place]
        places += [tail.index, offset]
        body = _replaced(body, packed, variable.var, (tail.tile, number.var, place.var))
    made = s_stmt.SBlock(
        variables, block.reads, block.writes, block.name_hint, body, block.init, block.alloc_buffers,
        block.match_buffers, block.annotations,
    )  # fmt: skip
    return s_stmt.SBlockRealize(places, tirx.const(True, "bool"), made)


def _axis(name: str, tail: _Tail) -> Any:
    return tirx.IterVar(ir.Range(0, tail.extent), tirx.Var(name, "int32"), tirx.IterVar.DataPar)


def _replaced(body: Any, packed: set[str], variable: Any, tile: tuple[int, Any, Any]) -> Any:
    """The store with `variable` // and % the size of a tile replaced in the indices of packed buffers."""
    size, number, place = tile

    def index(expression: Any) -> Any:
        is_cut = isinstance(expression, tirx.FloorDiv | tirx.FloorMod) and isinstance(expression.b, tirx.IntImm)
        if not is_cut or not expression.a.same_as(variable) or int(expression.b) != size:
            return expression
        return number if isinstance(expression, tirx.FloorDiv) else place

    def rewritten(part: Any) -> Any:
        if isinstance(part, ir.TensorLoad) and str(part.source.name) in packed:
            return tirx.BufferLoad(part.source, [index(i) for i in part.indices])
        if isinstance(part, _BINARY):
            return type(part)(rewritten(part.a), rewritten(part.b))
        return part

    return tirx.BufferStore(body.buffer, rewritten(body.value), body.indices)


def _conjuncts(predicate: Any) -> list[Any]:
    if isinstance(predicate, tirx.And):
        return [*_conjuncts(predicate.a), *_conjuncts(predicate.b)]
    return [] if isinstance(predicate, tirx.IntImm) else [predicate]


def _tail(guard: Any) -> _Tail | None:
    """The guard `tile index * tile + offset < extent` that splitting a loop leaves, if one tile fits the extent."""
    if not isinstance(guard, tirx.LT) or not isinstance(guard.b, tirx.IntImm):
        return None
    start = max(_terms(guard.a), key=lambda term: term.factor)
    tile, extent = start.factor, int(guard.b)
    return _Tail(start.index, tile, extent) if 1 < tile <= extent else None


@dataclass(frozen=True)
class _Term:
    """`index` * `factor`, of a sum of such."""

    index: Any
    factor: int


def _terms(expression: Any, factor: int = 1) -> list[_Term]:
    if isinstance(expression, tirx.Add):
        return [*_terms(expression.a, factor), *_terms(expression.b, factor)]
    if isinstance(expression, tirx.Mul) and isinstance(expression.b, tirx.IntImm):
        return _terms(expression.a, factor * int(expression.b))
    return [_Term(expression, factor)]


def _move_back(expression: Any, tail: _Tail) -> Any | None:
    """The sum with the tile's start at most where the last full tile starts; None if it has not that start."""
    terms = _terms(expression)
    start = next((t for t in terms if t.factor == tail.tile and structural_equal(t.index, tail.index)), None)
    if start is None:
        return None
    moved = tirx.min(start.index * tail.tile, tail.extent - tail.tile)
    for term in terms:
        if term is not start:
            moved = moved + (term.index * term.factor if term.factor > 1 else term.index)
    return moved


def _masked(node: Any) -> Any:
    """The block that adds a tile to partial results: its last tile moved back, and masked.

    for o in 13: for i in 16: S[i] = S[i] + X[o*16 + i]
     => for o in 13: for i in 16: m = min(o*16, 181) + i; S[i] = select(m >= o*16, S[i] + X[m], S[i])

    Raises RuntimeError for an expression it cannot rewrite: without the mask the block would be wrong.
    """
    block = node.block
    (step,) = [i.var for i in block.iter_vars if i.iter_type == REDUCTION]
    tail = _Tail(step, int(block.annotations[MASKED_TILE]), int(block.annotations[MASKED_EXTENT]))
    rewriter = _Masked(tail)
    value = rewriter.rewrite(block.body.value)
    if value is None or rewriter.moved is None or block.init is not None:
        raise RuntimeError(f"block {block.name_hint}: a tail that cannot be masked")
    store = block.body
    kept = tirx.BufferLoad(store.buffer, list(store.indices))
    chosen = tirx.Select(rewriter.moved >= step * tail.tile, value, kept)
    body = tirx.BufferStore(store.buffer, chosen, store.indices)
    masked = s_stmt.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, body, None, block.alloc_buffers,
        block.match_buffers, block.annotations,
    )  # fmt: skip
    return s_stmt.SBlockRealize(node.iter_values, tirx.const(True, "bool"), masked)


_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)


@dataclass
class _Masked:
    """Moves the indices of an expression back; `moved` is the index it found last."""

    tail: _Tail
    moved: Any = None

    def rewrite(self, expression: Any) -> Any | None:
        """The expression with all indices moved; None if it has parts that are not known here."""
        if isinstance(expression, ir.TensorLoad):
            return tirx.BufferLoad(expression.source, [self._index(i) for i in expression.indices])
        if isinstance(expression, _BINARY):
            left, right = self.rewrite(expression.a), self.rewrite(expression.b)
            return None if left is None or right is None else type(expression)(left, right)
        return expression if isinstance(expression, tirx.FloatImm | tirx.IntImm) else None

    def _index(self, index: Any) -> Any:
        moved = _move_back(index, self.tail)
        if moved is None:
            return index
        self.moved = moved
        return moved
