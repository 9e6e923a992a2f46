"""Functions with some of their statements replaced: TVM's statements cannot be changed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import stmt as s_stmt
from tvm_ffi import structural_equal

from .nodes import Buffer, Expression, Statement, Variable


def with_body(block: Statement, body: Statement, **changed: Any) -> Statement:
    """The block with another body, and with the `changed` fields, by TVM's names."""
    names = ("iter_vars", "reads", "writes", "name_hint", "init", "alloc_buffers", "match_buffers", "annotations")
    fields = {name: getattr(block, name) for name in names} | changed
    return s_stmt.SBlock(
        fields["iter_vars"], fields["reads"], fields["writes"], fields["name_hint"], body, fields["init"],
        fields["alloc_buffers"], fields["match_buffers"], fields["annotations"],
    )  # fmt: skip


def with_loop_body(loop: Statement, body: Statement) -> Statement:
    """The loop around another body."""
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)


def make_loop(variable: Variable, extent: Any, body: Statement, kind: Any = tirx.ForKind.SERIAL) -> Statement:
    """A loop from 0 on."""
    count = tirx.const(extent, "int32") if isinstance(extent, int) else extent
    return tirx.For(variable, tirx.const(0, "int32"), count, kind, body)


def substitute(node: Statement, values: Mapping[Any, Any]) -> Statement:
    """The statement or expression with values in the place of variables, in one pass."""

    def value_of(variable: Variable) -> Any:
        return next((value for name, value in values.items() if name.same_as(variable)), variable)

    return tvm_ffi.structural_map(node, [(tirx.Var, value_of)])


def rebuild(node: Statement, change: Callable[[Statement], Statement]) -> Statement:
    """The statement with the statements directly inside of it changed; one without any is returned as it is."""
    if isinstance(node, tirx.For):
        return with_loop_body(node, change(node.body))
    if isinstance(node, tirx.IfThenElse):
        other = None if node.else_case is None else change(node.else_case)
        return tirx.IfThenElse(node.condition, change(node.then_case), other)
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt([change(part) for part in node.seq])
    if isinstance(node, s_stmt.SBlockRealize):
        block = with_body(node.block, change(node.block.body))
        return s_stmt.SBlockRealize(node.iter_values, node.predicate, block)
    return node


def has_annotated_loop(node: Statement, annotation: str) -> bool:
    """Whether a loop in a statement has an annotation of that name."""
    return any(annotation in loop.annotations for loop in list_statements(node, tirx.For))


def list_statements(node: Statement, kind: type) -> Iterator[Statement]:
    """The statements of a kind in a statement, itself included, each before those inside of it."""
    if isinstance(node, kind):
        yield node
    if isinstance(node, tirx.For):
        yield from list_statements(node.body, kind)
    elif isinstance(node, tirx.SeqStmt):
        for part in node.seq:
            yield from list_statements(part, kind)
    elif isinstance(node, tirx.IfThenElse):
        yield from list_statements(node.then_case, kind)
        yield from list_statements(node.else_case, kind) if node.else_case is not None else ()
    elif isinstance(node, s_stmt.SBlockRealize):
        yield from list_statements(node.block.body, kind)


def join_pixels(node: Statement, parameters: Sequence[Buffer]) -> Statement:
    """The statement with parameters read and written at the pixel of a plane, not at its row and column.

    X[n, p // width, p % width, c]                     =>    X[n, 0, p, c]
    X[n, p // 896, p % 896 // 8, p % 8]                =>    X[n, 0, 0, p] of 8 channels and 112 columns

    Both are the same place in memory. TVM finds that by itself only if the width is a number and p no minimum, as of a
    tile that was moved back. Of a buffer that is allocated inside TVM would keep as many rows and columns as the
    indices seem to reach: it is no parameter.
    """

    def join(buffer: Buffer, indices: Sequence[Expression]) -> list[Any]:
        joined, last = list(indices), len(indices) - 1
        for outer in reversed(range(len(joined) - 1)):
            width = prod(buffer.shape[outer + 1 : last + 1], start=tirx.const(1, "int32"))
            if _is_place_of(joined[outer], joined[last], width):
                joined[outer], joined[last] = tirx.const(0, "int32"), joined[outer].a
            else:
                last = outer
        return joined

    def is_parameter(buffer: Buffer) -> bool:
        return any(buffer.same_as(parameter) for parameter in parameters)

    def join_load(load: Any) -> Any:
        return tirx.BufferLoad(load.source, join(load.source, load.indices)) if is_parameter(load.source) else load

    def join_block(realized: Statement) -> Statement:
        store = realized.block.body
        value = tvm_ffi.structural_map(store.value, [(ir.TensorLoad, join_load)])
        indices = join(store.buffer, store.indices) if is_parameter(store.buffer) else list(store.indices)
        body = tirx.BufferStore(store.buffer, value, indices)
        regions = [
            [tirx.BufferRegion(r.source, [ir.Range.from_min_extent(m, e.extent) for m, e in zip(
                join(r.source, [e.min for e in r.region]), r.region, strict=True)]) if is_parameter(r.source) else r
             for r in each]
            for each in (realized.block.reads, realized.block.writes)
        ]  # fmt: skip
        block = with_body(realized.block, body, reads=regions[0], writes=regions[1])
        return s_stmt.SBlockRealize(realized.iter_values, realized.predicate, block)

    if not isinstance(node, s_stmt.SBlockRealize) or not isinstance(node.block.body, tirx.BufferStore):
        return rebuild(node, lambda part: join_pixels(part, parameters))
    fused = _fuse_iterators(node)
    if fused is not None:
        joined, (pixel, width) = join_block(fused[0]), fused[1]
        seen: list[Any] = []
        places = [*joined.block.body.indices, joined.block.body.value]
        for place in places:
            tvm_ffi.structural_walk(place, seen.append)
        cuts = (part for part in seen if isinstance(part, tirx.FloorDiv | tirx.FloorMod) and part.a.same_as(pixel))
        if not any(structural_equal(part.b, width) for part in cuts):
            return joined
    return join_block(node)


def _is_place_of(row: Expression, column: Expression, width: Expression) -> bool:
    """Whether they are p // width and p % width; p may be the rest of more rows, as q % (rows * width)."""
    is_cut = isinstance(row, tirx.FloorDiv) and isinstance(column, tirx.FloorMod)
    if not is_cut or not (structural_equal(row.b, width) and structural_equal(column.b, width)):
        return False
    if structural_equal(row.a, column.a):
        return True
    rest = row.a
    is_rest = isinstance(rest, tirx.FloorMod) and structural_equal(rest.a, column.a)
    return is_rest and isinstance(rest.b, tirx.IntImm) and isinstance(width, tirx.IntImm) and not rest.b % width


def _fuse_iterators(node: Statement) -> tuple[Statement, tuple[Expression, Expression]] | None:
    """The block with one iterator in the place of the row and the column of one pixel, which then are expressions of
    it; the iterator and the width. None if no two iterators are that."""
    variables, values = list(node.block.iter_vars), list(node.iter_values)
    for place, (row, column) in enumerate(pairwise(values)):
        is_cut = isinstance(row, tirx.FloorDiv) and isinstance(column, tirx.FloorMod)
        if not is_cut or not structural_equal(row.a, column.a) or not structural_equal(row.b, column.b):
            continue
        one, two = variables[place : place + 2]
        if one.iter_type != two.iter_type:
            continue
        pixel = tirx.Var(f"{one.var.name}_{two.var.name}", "int32")
        plane = tirx.IterVar(ir.Range(0, one.dom.extent * row.b), pixel, one.iter_type)
        inside = {one.var: pixel // row.b, two.var: pixel % row.b}
        block = node.block

        def fuse_region(region: Any, inside: Mapping[Any, Any] = inside) -> Any:
            ranges = [ir.Range.from_min_extent(substitute(r.min, inside), r.extent) for r in region.region]
            return tirx.BufferRegion(region.source, ranges)

        reads, writes = ([fuse_region(region) for region in regions] for regions in (block.reads, block.writes))
        iterators = [*variables[:place], plane, *variables[place + 2 :]]
        body = substitute(block.body, inside)
        fused = with_body(block, body, iter_vars=iterators, reads=reads, writes=writes)
        places = [*values[:place], row.a, *values[place + 2 :]]
        return s_stmt.SBlockRealize(places, node.predicate, fused), (pixel, row.b)
    return None


def simplify_blocks(node: Statement) -> Statement:
    """The statement with the indices of every innermost block simplified by the ranges of its iterators.

    Iterators of one iteration stay in sight.
    """
    if not isinstance(node, s_stmt.SBlockRealize) or not isinstance(node.block.body, tirx.BufferStore):
        return rebuild(node, simplify_blocks)
    block, store, analyzer = node.block, node.block.body, sym.Analyzer()
    for iterator in block.iter_vars:
        if not isinstance(iterator.dom.extent, tirx.IntImm) or int(iterator.dom.extent) > 1:
            analyzer.bind(iterator.var, iterator.dom)

    def simplify_region(region: Any) -> Any:
        ranges = [ir.Range.from_min_extent(analyzer.simplify(r.min), r.extent) for r in region.region]
        return tirx.BufferRegion(region.source, ranges)

    indices = [analyzer.simplify(index) for index in store.indices]
    body = tirx.BufferStore(store.buffer, analyzer.simplify(store.value), indices)
    reads, writes = ([simplify_region(region) for region in regions] for regions in (block.reads, block.writes))
    return s_stmt.SBlockRealize(node.iter_values, node.predicate, with_body(block, body, reads=reads, writes=writes))


def drop_moduli(node: Statement) -> Statement:
    """The statement without `% extent` of a whole loop's variable, which TVM leaves in guards when it fuses loops."""
    extents: dict[Any, Any] = {}

    def collect(part: Any) -> Any:
        if isinstance(part, tirx.For):
            extents[part.loop_var] = part.extent
        return rebuild(part, collect)

    def drop(modulus: Expression) -> Expression:
        extent = extents.get(modulus.a) if isinstance(modulus.a, tirx.Var) else None
        return modulus if extent is None or not structural_equal(extent, modulus.b) else modulus.a

    collect(node)
    return tvm_ffi.structural_map(node, [(tirx.FloorMod, drop)])


def point(buffer: Buffer, indices: Iterable[Expression]) -> Any:
    """The region of one element."""
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(index, 1) for index in indices])


def conjuncts(condition: Expression) -> Iterator[Expression]:
    """The conditions of a conjunction."""
    if isinstance(condition, tirx.And):
        yield from conjuncts(condition.a)
        yield from conjuncts(condition.b)
    else:
        yield condition
