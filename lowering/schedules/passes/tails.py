"""Tails without guards: the last tile of a loop that its tile does not divide is moved back, to overlap the one before.

    for o in 4: for i in 16: if o*16 + i < 56: Y[o*16 + i]    =>    for o in 4: for i in 16: Y[min(o*16, 40) + i]

Elements of the overlap are computed twice, with the same result, by whole vectors, without branches. This needs outputs
that do not share memory with inputs, and reductions that start and end inside of the tile: every rule puts their loops
there. A tile is never larger than an axis of a fixed size. It may be larger than a dynamic axis, and then the function
has two bodies: the tiles that overlap, and smaller ones or the loops with their guards.

    if n >= 16: { for o: for i in 16: Y[min(o*16, n - 16) + i] } else: { for o: for i in 16: if o*16 + i < n: ... }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, prod
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.s_tir import stmt as s_stmt
from tvm_ffi import structural_equal

from ..base.blocks import FUNCTION, REDUCTION, parameter_index, uses, walk
from ..base.draft import Draft
from ..base.extents import is_extent, typical_sizes
from ..base.nodes import Expression, Statement, Variable
from ..base.rewriting import conjuncts, drop_moduli, join_pixels, list_statements, rebuild, substitute, with_body
from ..base.tiled import Tiled
from .rows_by_tiles import store_rows_by_tiles

MASKED_EXTENT, MASKED_TILE = "eqfuse.masked_extent", "eqfuse.masked_tile"
"""Annotations of a block of partial results whose tile does not divide the extent: `rfactor` loses the guard."""
PACKED = "eqfuse.packed"
"""Annotation of a block: the names of the buffers that are packed by tiles, the last of which may overlap (Repack)."""
_SCOPES = ("global", "local", "warp")
"""Storage scopes, all of them memory like any other on a processor."""
_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)


def overlap_tails(tiled: Tiled) -> Tiled:
    """The pass: every guarded tile is moved back; loops whose guard has another form keep it.

    If a dynamic extent has no whole tile, the `smaller` tiles run, which are finished, or the same loops with their
    guards if there are none.

    An intermediate block without a guard, such as one of which a Slice reads the middle, moves with the blocks that
    read it. Raises RuntimeError if one block would move with a loop and another would not: they would work on different
    elements.
    """
    draft, moved, conditions = tiled.draft, tiled.draft, list(tiled.conditions)
    if tiled.tails == "guard":
        return replace(tiled, draft=_keep_guards(draft))
    if tiled.tails == "overlap":
        realized = list_statements(draft.function.body, s_stmt.SBlockRealize)
        if typical_sizes(draft.function) or any(_guards(block.predicate) for block in realized):
            draft = draft.with_body(join_pixels(draft.function.body, draft.parameters_outside()))
        moved, whole = _move_tails(draft)
        moved = store_rows_by_tiles(moved)
        conditions = [*whole, *conditions]
    if conditions:
        moved = _branch(moved, conditions, _keep_guards(draft) if tiled.smaller is None else tiled.smaller.draft)
    return replace(tiled, draft=moved)


def _move_tails(draft: Draft) -> tuple[Draft, list[Any]]:
    """The draft with its tails moved back, and the conditions under which dynamic extents have a whole tile."""
    rewriter = _TailRewriter(draft.function, draft.lengths)
    body = rewriter.rewrite(drop_moduli(draft.function.body))
    if rewriter.moved and separate_scopes(draft):
        rewriter = _TailRewriter(draft.function, draft.lengths)
        body = rewriter.rewrite(drop_moduli(draft.function.body))
    body = _follow(draft, rewriter, body)
    conditions = [tirx.const(t.tile, "int32") <= t.extent for t in rewriter.moved if not isinstance(t.extent, int)]
    return draft.with_body(body), conditions


def _follow(draft: Draft, rewriter: _TailRewriter, body: Statement) -> Statement:
    """The body in which blocks without a guard of their own have moved, too."""
    followers = _Followers(tuple(rewriter.moved), rewriter.extents)
    body = followers.rewrite(body)
    followers.check(draft)
    guards = [guard for guard in followers.kept if isinstance(guard, tirx.LT)]
    guarded = [term.index for guard in guards for term in _terms(guard.a)]
    if any(structural_equal(tail.index, index) for tail in rewriter.moved for index in guarded):
        raise RuntimeError("a tail that moves in one block and is guarded in another")
    return body


def _keep_guards(draft: Draft) -> Draft:
    """A draft whose tails of axes of a fixed size have moved, as constants are packed for these; others keep guards."""
    fixed = _TailRewriter(draft.function, draft.lengths, only_fixed=True)
    return draft.with_body(_make_serial(_follow(draft, fixed, fixed.rewrite(drop_moduli(draft.function.body)))))


def _make_serial(node: Statement) -> Statement:
    """The statement with those vectorised and unrolled loops as plain ones that a guard asks about.

    Guards become `likely` ones, which TVM does not look into: the bounds of a product of two sizes overflow there.
    """
    rebuilt = rebuild(node, _make_serial)
    if isinstance(rebuilt, tirx.For) and rebuilt.kind in (tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED):
        blocks = list_statements(rebuilt.body, s_stmt.SBlockRealize)
        asked = (part for block in blocks for part in walk(block.predicate))
        if any(part.same_as(rebuilt.loop_var) for part in asked):
            return tirx.For(rebuilt.loop_var, rebuilt.min, rebuilt.extent, tirx.ForKind.SERIAL, rebuilt.body)
        return rebuilt
    if isinstance(rebuilt, s_stmt.SBlockRealize):
        block = with_body(rebuilt.block, rebuilt.block.body, annotations={})
        guards = rebuilt.predicate
        predicate = guards if isinstance(guards, tirx.IntImm) else tirx.likely(guards)
        return s_stmt.SBlockRealize(rebuilt.iter_values, predicate, block)
    return rebuilt


def separate_scopes(draft: Draft) -> bool:
    """Give a result that is computed element by element from an intermediate one another storage scope than that has.

    In the same scope TVM may compute it in place, if there are as many elements, and the last tile, which overlaps the
    one before, from results. Returns whether there is any.
    """

    changed = False
    for block in draft.blocks():
        inside = [r for r in draft.inspect(block.block).reads if parameter_index(draft.function, r.buffer) is None]
        taken = {str(r.buffer.scope()) for r in inside if prod(r.shape) == prod(block.write.shape)}
        own = str(draft.inspect(block.block).write.buffer.scope())
        if not block.reduced and not draft.is_output(block) and own in taken:
            draft.schedule.set_scope(block.block, 0, next(free for free in _SCOPES if free not in taken))
            changed = True
    return changed


@dataclass(frozen=True)
class _Term:
    """`index` * `factor`, of a sum of such."""

    index: Expression
    factor: int


def _terms(expression: Expression, factor: int = 1) -> list[_Term]:
    if isinstance(expression, tirx.Add):
        return [*_terms(expression.a, factor), *_terms(expression.b, factor)]
    if isinstance(expression, tirx.Mul) and isinstance(expression.b, tirx.IntImm):
        return _terms(expression.a, factor * int(expression.b))
    return [_Term(expression, factor)]


@dataclass(frozen=True)
class _Tail:
    """`index` * `tile` + (an offset below tile) must stay below `extent`; all in steps of a number of elements.

    TVM divides a guard by what all its terms have in common: (o * 5 + v) * 4 + i < 196 becomes o * 5 + v < 49.
    """

    index: Expression
    tile: int
    extent: Any

    def is_start(self, term: _Term) -> bool:
        """Whether a term is the start of its tiles, in elements."""
        return term.factor % self.tile == 0 and bool(structural_equal(term.index, self.index))

    def move_back(self, expression: Expression) -> Expression | None:
        """The sum with the tile's start at most where the last full tile starts; None if it has no such start."""
        terms = _terms(expression)
        start = next((term for term in terms if self.is_start(term)), None)
        if start is None:
            return None
        common, extent = self._common_factor()
        last = (extent - self.tile // common) * (start.factor // self.tile)
        moved = tirx.min(start.index * (start.factor // common), last) * common
        for term in terms:
            if term is not start:
                moved = moved + (term.index * term.factor if term.factor > 1 else term.index)
        return moved

    def _common_factor(self) -> tuple[int, Any]:
        """What the tile and a dynamic extent have in common, and the extent without it: the bounds that TVM derives of
        a multiple of a size in a minimum overflow."""
        if isinstance(self.extent, tirx.Mul) and isinstance(self.extent.b, tirx.IntImm):
            common = gcd(self.tile, int(self.extent.b))
            return common, self.extent.a * (int(self.extent.b) // common)
        return 1, self.extent


@dataclass
class _TailRewriter:
    """Moves the tails below a statement back: the `moved` ones; guards of another form are `kept`.

    `extents` are those of the loops around the statement, which is part of the `function`, `lengths` the expressions
    that annotations name. With `only_fixed`, guards of dynamic axes are kept.
    """

    function: Any
    lengths: Mapping[str, Any]
    only_fixed: bool = False
    extents: dict[Any, int] = field(default_factory=dict)
    moved: list[_Tail] = field(default_factory=list)
    kept: list[Expression] = field(default_factory=list)

    def rewrite(self, node: Statement) -> Statement:
        """The statement with its tails moved."""
        if isinstance(node, tirx.For) and isinstance(node.extent, tirx.IntImm):
            self.extents[node.loop_var] = int(node.extent)
        rebuilt = rebuild(node, self.rewrite)
        return self._move_tails(rebuilt) if isinstance(node, s_stmt.SBlockRealize) else rebuilt

    def _move_tails(self, node: Statement) -> Statement:
        block, tails, kept, values = node.block, [], [], list(node.iter_values)
        for guard in _guards(node.predicate):
            tail = self._tail(guard)
            moved = [] if tail is None else [tail.move_back(value) for value in values]
            if tail is None or all(value is None for value in moved):
                kept.append(guard)
                continue
            tails.append(tail)
            values = [old if new is None else new for old, new in zip(values, moved, strict=True)]
        if any(self._is_inside_reduction(node, tail) for tail in tails):
            raise RuntimeError(f"block {block.name_hint}: a tail inside of its reduction would be added twice")
        masked = self._masked_tail(block)
        if masked is not None:
            kept = [guard for guard in kept if (tail := self._tail(guard)) is None or tail.tile != masked.tile]
            self.moved += [] if isinstance(masked.extent, int) else [masked]
        self.moved += tails
        self.kept += kept
        predicate = tirx.all(*kept) if kept else tirx.const(True, "bool")
        if tails and PACKED in block.annotations:
            return _read_by_tiles(block, node.iter_values, values, tails, predicate)
        realized = s_stmt.SBlockRealize(values, predicate, block)
        return realized if masked is None else _mask(realized, masked)

    def _is_inside_reduction(self, node: Statement, tail: _Tail) -> bool:
        """Whether the tiles of a tail are in a loop of the reduction that the block adds up, in which elements of an
        overlap are no longer what they were."""
        order = {loop: number for number, loop in enumerate(self.extents)}
        pairs = zip(node.block.iter_vars, node.iter_values, strict=True)
        reduced = [value for variable, value in pairs if variable.iter_type == REDUCTION]
        steps = [order[part] for value in reduced for part in walk(value) if part in order]
        starts = [order[part] for part in walk(tail.index) if part in order]
        return node.block.init is None and bool(steps and starts) and min(steps) < max(starts)

    def _masked_tail(self, block: Statement) -> _Tail | None:
        """The tail of steps that add to partial results, if their last tile has to be masked."""
        steps = [i.var for i in block.iter_vars if i.iter_type == REDUCTION]
        if MASKED_EXTENT not in block.annotations or not steps:
            return None
        extent = block.annotations[MASKED_EXTENT]
        extent = self.lengths[str(extent)] if isinstance(extent, str) else int(extent)
        return _Tail(steps[-1], int(block.annotations[MASKED_TILE]), extent)

    def _tail(self, guard: Expression) -> _Tail | None:
        """The guard `tile index * tile + offset < extent` that splitting a loop leaves, if one tile fits the extent.

        Whether it fits a dynamic one, code has to ask at the call.
        """
        if not isinstance(guard, tirx.LT) or not is_extent(guard.b, self.function):
            return None
        start, *offsets = sorted(_terms(guard.a), key=lambda term: -term.factor)
        tile, extent = start.factor, int(guard.b) if isinstance(guard.b, tirx.IntImm) else guard.b
        if self.only_fixed and not isinstance(extent, int):
            return None
        if not all(offset.index in self.extents for offset in offsets):
            return None
        longest = sum((self.extents[offset.index] - 1) * offset.factor for offset in offsets)
        fits = not isinstance(extent, int) or tile <= extent
        return _Tail(start.index, tile, extent) if tile > 1 and fits and longest < tile else None


@dataclass
class _Followers:
    """Moves blocks that share the start of a moved tail but have no guard, or one that holds once they are moved.

    `extents` are those of loops, `kept` the guards that stay, `names` are those of the buffers that these blocks write,
    `movers` those of the buffers that moved blocks write.
    """

    tails: tuple[_Tail, ...]
    extents: dict[Any, int]
    kept: list[Expression] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    movers: set[str] = field(default_factory=set)

    def rewrite(self, node: Statement) -> Statement:
        """The statement with these blocks moved. Tails that are moved already have their start inside of a minimum."""
        rebuilt = rebuild(node, self.rewrite)
        if not isinstance(rebuilt, s_stmt.SBlockRealize) or not rebuilt.block.writes:  # the root writes nothing
            return rebuilt
        name, values = str(rebuilt.block.writes[0].source.name), list(rebuilt.iter_values)
        if any(isinstance(term.index, tirx.Min) for value in values for term in _terms(value)):
            self.movers.add(name)
        for tail in self.tails:
            moved = [tail.move_back(value) for value in values]
            if any(value is not None for value in moved):
                self.names.add(name)
            values = [old if new is None else new for old, new in zip(values, moved, strict=True)]
        kept = [guard for guard in _guards(rebuilt.predicate) if not any(self._holds(guard, t) for t in self.tails)]
        self.kept += kept
        predicate = tirx.all(*kept) if kept else tirx.const(True, "bool")
        return s_stmt.SBlockRealize(values, predicate, rebuilt.block)

    def _holds(self, guard: Expression, tail: _Tail) -> bool:
        """Whether a guard with the start of a tail holds wherever the tail has been moved to."""
        terms = _terms(guard.a) if isinstance(guard, tirx.LT) else []
        start = next((term for term in terms if tail.is_start(term)), None)
        offsets = [term for term in terms if term is not start]
        if start is None or not all(offset.index in self.extents for offset in offsets):
            return False
        longest = sum((self.extents[offset.index] - 1) * offset.factor for offset in offsets)
        last = (tail.extent - tail.tile) * (start.factor // tail.tile)
        return bool(sym.Analyzer().can_prove(last + longest < guard.b))

    def check(self, draft: Draft) -> None:
        """Raise RuntimeError if a block that does not move needs elements that a block has moved away from."""
        for block in draft.blocks():
            if block.name in self.names:
                readers = {reader.name for reader in draft.consumers(block)}
                if draft.is_output(block) or not readers <= self.names | self.movers:
                    raise RuntimeError("a tail that moves in one block and is complete in another")


def _guards(predicate: Expression) -> list[Expression]:
    """The guards of a predicate, `a <= b` as `a < b + 1`: TVM takes off a 1 that an extent ends with."""
    guards = (guard for guard in conjuncts(predicate) if not isinstance(guard, tirx.IntImm))
    return [tirx.LT(guard.a, guard.b + 1) if isinstance(guard, tirx.LE) else guard for guard in guards]


def _read_by_tiles(
    block: Statement, before: Sequence[Expression], values: list[Expression], tails: list[_Tail], predicate: Expression
) -> Statement:
    """The block, its packed operands read by the number of the tile and the place in it, not by a place in the axis.

    C[v] += X[k] * W[v // 96, k, v % 96] at v = min(o*96, 905) + i    =>    C[v] += X[k] * W[o, k, i]
    """
    packed = {str(name) for name in block.annotations[PACKED]}
    variables, places, body = list(block.iter_vars), list(values), block.body
    for variable, value in zip(block.iter_vars, before, strict=True):
        tail = next((t for t in tails if t.move_back(value) is not None), None)
        if tail is None:
            continue
        (start,) = [term for term in _terms(value) if tail.is_start(term)]
        inside = [term for term in _terms(value) if not tail.is_start(term)]
        offset = sum((t.index * t.factor for t in inside), start=tirx.const(0, "int32"))
        number, place = (
            tirx.IterVar(
                ir.Range(0, tail.extent), tirx.Var(f"{variable.var.name}_{part}", "int32"), tirx.IterVar.DataPar
            )
            for part in ("tile", "place")
        )
        variables += [number, place]
        places += [tail.index, offset]
        body = _replace_place(body, packed, variable.var, start.factor, number.var, place.var)
    return s_stmt.SBlockRealize(places, predicate, with_body(block, body, iter_vars=variables))


def _replace_place(
    store: Statement, packed: set[str], variable: Variable, size: int, number: Variable, place: Variable
) -> Statement:
    """The store with `variable` // and % the size of a tile replaced in the indices of packed buffers."""

    def index(expression: Expression) -> Expression:
        is_cut = isinstance(expression, tirx.FloorDiv | tirx.FloorMod) and isinstance(expression.b, tirx.IntImm)
        if not is_cut or not expression.a.same_as(variable) or int(expression.b) != size:
            return expression
        return number if isinstance(expression, tirx.FloorDiv) else place

    def rewrite(part: Any) -> Any:
        if isinstance(part, ir.TensorLoad) and str(part.source.name) in packed:
            return tirx.BufferLoad(part.source, [index(i) for i in part.indices])
        if isinstance(part, _BINARY):
            return type(part)(rewrite(part.a), rewrite(part.b))
        if isinstance(part, tirx.Cast):
            return rewrite(part.value).astype(str(part.ty.dtype))
        return part

    return tirx.BufferStore(store.buffer, rewrite(store.value), store.indices)


def _mask(node: Statement, tail: _Tail) -> Statement:
    """The block that adds a tile to partial results: its last tile moved back, and masked.

    for o in 13: for i in 16: S[i] = S[i] + X[o*16 + i]
     => for o in 13: for i in 16: m = min(o*16, 181) + i; S[i] = select(m >= o*16, S[i] + X[m], S[i])

    An extreme is the same if elements of the overlap take part twice, and needs no mask.
    Raises RuntimeError for an expression it cannot rewrite: without the mask the block would be wrong.
    """
    block, store = node.block, node.block.body
    places: list[Any] = []
    stays = False

    def move(load: Any) -> Any:
        nonlocal stays
        moved = [tail.move_back(index) for index in load.indices]
        places.extend(place for place in moved if place is not None)
        stays |= any(n is None and uses(old, [tail.index]) for old, n in zip(load.indices, moved, strict=True))
        indices = [old if new is None else new for old, new in zip(load.indices, moved, strict=True)]
        return tirx.BufferLoad(load.source, indices)

    value = tvm_ffi.structural_map(store.value, [(ir.TensorLoad, move)])
    outside = tvm_ffi.structural_map(value, [(ir.TensorLoad, lambda load: tirx.const(0, load.ty.dtype))])
    stays |= uses(outside, [iterator.var for iterator in block.iter_vars])
    if stays or not places or block.init is not None or _guards(node.predicate):
        raise RuntimeError(f"block {block.name_hint}: a tail that cannot be masked")
    previous = tirx.BufferLoad(store.buffer, list(store.indices))
    is_extreme = isinstance(value, tirx.Max | tirx.Min) and structural_equal(value.a, previous)
    masked = value if is_extreme else tirx.Select(places[-1] >= tail.index * tail.tile, value, previous)
    body = tirx.BufferStore(store.buffer, masked, store.indices)
    return s_stmt.SBlockRealize(node.iter_values, tirx.const(True, "bool"), with_body(block, body))


# --- two bodies


def _branch(large: Draft, conditions: Sequence[Expression], small: Draft) -> Draft:
    """A draft that does what `large` does if all conditions hold, and otherwise what `small` does.

    Both have the same parameters, in the same layouts. Loops and blocks of neither are valid in it.
    """
    realized, little = large.function.body, small.function.body.block
    buffers = {buffer: tirx.Var(f"{buffer.name}_small", buffer.ty) for buffer in little.alloc_buffers}
    parameters = zip(small.function.params, large.function.params, strict=True)
    names = buffers | {own: other for own, other in parameters if not own.same_as(other)}
    distinct = [c for n, c in enumerate(conditions) if not any(structural_equal(c, d) for d in conditions[:n])]
    root = realized.block
    other = _rename_blocks(substitute(little.body, names))
    body = tirx.IfThenElse(tirx.all(*distinct), root.body, other)
    block = with_body(root, body, alloc_buffers=[*root.alloc_buffers, *buffers.values()])
    function = large.function.with_body(s_stmt.SBlockRealize(realized.iter_values, realized.predicate, block))
    module = s_tir.transform.ConvertSSA()(tvm.IRModule({FUNCTION: function}))
    return replace(large, schedule=s_tir.Schedule(module))


def _rename_blocks(node: Statement) -> Statement:
    """The statement with other names of its blocks: those of a function are unique."""
    rebuilt = rebuild(node, _rename_blocks)
    if not isinstance(rebuilt, s_stmt.SBlockRealize):
        return rebuilt
    block = with_body(rebuilt.block, rebuilt.block.body, name_hint=f"{rebuilt.block.name_hint}_small")
    return s_stmt.SBlockRealize(rebuilt.iter_values, rebuilt.predicate, block)
