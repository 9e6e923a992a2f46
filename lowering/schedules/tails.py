"""Tails without guards: the last tile of a loop that its tile does not divide is moved back, to overlap the one before.

    for o in 4: for i in 16: where(o*16 + i < 56): Y[o*16 + i]    =>    for o in 4: for i in 16: Y[min(o*16, 40) + i]

Elements of the overlap are computed twice, with the same result, by whole vectors, without branches. It holds where
outputs do not share memory with inputs, and where a reduction starts and ends inside of the tile: every rule here puts
its loops there. A tile is never larger than its axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.s_tir import stmt as s_stmt
from tvm_ffi import structural_equal

from .rewriting import with_body, with_loop_body
from .stages import FUNCTION, REDUCTION, Stage, is_parameter, stages

MASKED_EXTENT, MASKED_TILE = "eqfuse.masked_extent", "eqfuse.masked_tile"
"""Annotations of a block of partial results whose tile does not divide the extent: `rfactor` loses the guard."""


PACKED = "eqfuse.packed"
"""Annotation of a block: the names of the buffers that are packed by tiles, the last of which may overlap (Repack)."""


_SCOPES = ("global", "local", "warp")
"""All of them memory like any other on a processor."""


@dataclass(frozen=True)
class _Tail:
    """`index` * `tile` + (an offset below tile) must stay below `extent`; all in steps of a number of elements.

    TVM divides a guard by what all its terms have in common: (o * 5 + v) * 4 + i < 196 becomes o * 5 + v < 49.
    """

    index: Any
    tile: int
    extent: int

    def same_loop(self, term: _Term) -> bool:
        """Whether a term is the start of its tiles, in elements."""
        return term.factor % self.tile == 0 and bool(structural_equal(term.index, self.index))


def overlap_tails(schedule: s_tir.Schedule) -> s_tir.Schedule:
    """The same schedule with every guarded tile moved back; loops whose guard has another form keep it.

    Raises RuntimeError where one block would move with a loop and another not: they would work on different elements.
    """
    function, rewriter = schedule.mod[FUNCTION], _Rewriter()
    body = rewriter.rewrite(function.body)
    if rewriter.moved and _keep_apart(schedule):
        function, rewriter = schedule.mod[FUNCTION], _Rewriter()
        body = rewriter.rewrite(function.body)
    guarded = [term.index for guard in rewriter.kept for term in _compared(guard)]
    if any(structural_equal(tail.index, index) for tail in rewriter.moved for index in guarded):
        raise RuntimeError("a tail that moves in one block and is guarded in another")
    return s_tir.Schedule(tvm.IRModule({FUNCTION: function.with_body(body)}))


def _keep_apart(schedule: s_tir.Schedule) -> bool:
    """Gives what is computed element by element from another intermediate result another storage scope than that has.

    In the same scope TVM may compute it in place, and the last tile, which overlaps the one before, from results.
    Whether there is any.
    """
    internal = {s.write.name: s for s in stages(schedule) if not is_parameter(schedule.mod[FUNCTION], s.write.buffer)}
    changed = False
    for current in internal.values():
        sources = [internal[r.name] for r in current.reads if r.name in internal and r.shape == current.write.shape]
        taken = {_scope(schedule, source) for source in sources}
        if not current.reduced and _scope(schedule, current) in taken:
            schedule.set_scope(current.block, 0, next(scope for scope in _SCOPES if scope not in taken))
            changed = True
    return changed


def _scope(schedule: s_tir.Schedule, current: Stage) -> str:
    return str(schedule.get(current.block).writes[0].source.scope())


@dataclass
class _Rewriter:
    """Moves tails below a statement, whose loops outside have these `extents`."""

    extents: dict[Any, int] = field(default_factory=dict)
    moved: list[_Tail] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    def rewrite(self, node: Any) -> Any:
        """The statement with its tails moved."""
        if isinstance(node, tirx.For):
            self.extents[node.loop_var] = int(node.extent)
            return with_loop_body(node, self.rewrite(node.body))
        if isinstance(node, tirx.SeqStmt):
            return tirx.SeqStmt([self.rewrite(part) for part in node.seq])
        if isinstance(node, s_stmt.SBlockRealize):
            return self._realize(node)
        return node

    def _realize(self, node: Any) -> Any:
        old = node.block
        block = with_body(old, self.rewrite(old.body))
        tails, kept, values = [], [], list(node.iter_values)
        for guard in _conjuncts(node.predicate):
            tail = self._tail(guard)
            moved = [] if tail is None else [_move_back(value, tail) for value in values]
            if tail is None or all(value is None for value in moved):
                kept.append(guard)
                continue
            tails.append(tail)
            values = [old if new is None else new for old, new in zip(values, moved, strict=True)]
        self.moved += tails
        self.kept += kept
        predicate = tirx.all(*kept) if kept else tirx.const(True, "bool")
        if tails and PACKED in old.annotations:
            return _by_tiles(block, node.iter_values, values, tails, predicate)
        realized = s_stmt.SBlockRealize(values, predicate, block)
        is_masked = MASKED_EXTENT in old.annotations and any(i.iter_type == REDUCTION for i in old.iter_vars)
        return _masked(realized) if is_masked else realized

    def _tail(self, guard: Any) -> _Tail | None:
        """The guard `tile index * tile + offset < extent` that splitting a loop leaves, if one tile fits the extent."""
        if not isinstance(guard, tirx.LT) or not isinstance(guard.b, tirx.IntImm):
            return None
        start, *offsets = sorted(_terms(guard.a), key=lambda term: -term.factor)
        tile, extent = start.factor, int(guard.b)
        if not all(offset.index in self.extents for offset in offsets):
            return None
        longest = sum((self.extents[offset.index] - 1) * offset.factor for offset in offsets)
        return _Tail(start.index, tile, extent) if 1 < tile <= extent and longest < tile else None


def _compared(guard: Any) -> list[_Term]:
    """The terms of what is compared with a constant."""
    return _terms(guard.a) if isinstance(guard, tirx.LT) else []


def _by_tiles(block: Any, before: Any, values: list[Any], tails: list[_Tail], predicate: Any) -> Any:
    """The block, its packed operands read by the number of the tile and the place in it, not by a place in the axis.

    C[v] += X[k] * W[v // 96, k, v % 96] at v = min(o*96, 905) + i    =>    C[v] += X[k] * W[o, k, i]
    """
    packed = {str(name) for name in block.annotations[PACKED]}
    variables, places, body = list(block.iter_vars), list(values), block.body
    for variable, value in zip(block.iter_vars, before, strict=True):
        tail = next((t for t in tails if _move_back(value, t) is not None), None)
        if tail is None:
            continue
        (start,) = [term for term in _terms(value) if tail.same_loop(term)]
        inside = [term for term in _terms(value) if not tail.same_loop(term)]
        offset = sum((t.index * t.factor for t in inside), start=tirx.const(0, "int32"))
        number, place = (_axis(f"{variable.var.name}_{part}", tail) for part in ("tile", "place"))
        variables += [number, place]
        places += [tail.index, offset]
        body = _replaced(body, packed, variable.var, (start.factor, number.var, place.var))
    return s_stmt.SBlockRealize(places, predicate, with_body(block, body, iter_vars=variables))


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
    start = next((term for term in terms if tail.same_loop(term)), None)
    if start is None:
        return None
    last = (tail.extent - tail.tile) * (start.factor // tail.tile)
    moved = tirx.min(start.index * start.factor, last)
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
    if value is None or rewriter.moved is None or block.init is not None or _conjuncts(node.predicate):
        raise RuntimeError(f"block {block.name_hint}: a tail that cannot be masked")
    store = block.body
    kept = tirx.BufferLoad(store.buffer, list(store.indices))
    chosen = tirx.Select(rewriter.moved >= step * tail.tile, value, kept)
    body = tirx.BufferStore(store.buffer, chosen, store.indices)
    return s_stmt.SBlockRealize(node.iter_values, tirx.const(True, "bool"), with_body(block, body))


_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)


@dataclass
class _Masked:
    """Moves the indices of an expression back; `moved` is the index it found last."""

    tail: _Tail
    moved: Any = None
    bound: list[Any] = field(default_factory=list)

    def rewrite(self, expression: Any) -> Any | None:
        """The expression with all indices moved; None if it has parts that are not known here."""
        if isinstance(expression, ir.TensorLoad):
            return tirx.BufferLoad(expression.source, [self._index(i) for i in expression.indices])
        if isinstance(expression, _BINARY):
            left, right = self.rewrite(expression.a), self.rewrite(expression.b)
            return None if left is None or right is None else type(expression)(left, right)
        if isinstance(expression, tirx.Let):
            self.bound.append(expression.var)
            value, body = self.rewrite(expression.value), self.rewrite(expression.body)
            return None if value is None or body is None else tirx.Let(expression.var, value, body)
        is_known = isinstance(expression, tirx.FloatImm | tirx.IntImm) or any(v.same_as(expression) for v in self.bound)
        return expression if is_known else None

    def _index(self, index: Any) -> Any:
        moved = _move_back(index, self.tail)
        if moved is None:
            return index
        self.moved = moved
        return moved
