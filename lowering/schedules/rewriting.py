"""Functions with some of their blocks replaced: TVM's blocks cannot be changed in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, sym, tirx
from tvm.s_tir import stmt as s_stmt


def with_body(block: Any, body: Any, **changed: Any) -> Any:
    """The block with another body, and whatever else has `changed`, by TVM's names."""
    names = ("iter_vars", "reads", "writes", "name_hint", "init", "alloc_buffers", "match_buffers", "annotations")
    fields = {name: getattr(block, name) for name in names} | changed
    return s_stmt.SBlock(
        fields["iter_vars"], fields["reads"], fields["writes"], fields["name_hint"], body, fields["init"],
        fields["alloc_buffers"], fields["match_buffers"], fields["annotations"],
    )  # fmt: skip


def with_loop_body(loop: Any, body: Any) -> Any:
    """The loop around another body."""
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)


def map_blocks(node: Any, change: Callable[[Any], Any]) -> Any:
    """The statement with every innermost block changed, loops as they are."""
    if isinstance(node, tirx.For):
        return with_loop_body(node, map_blocks(node.body, change))
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt([map_blocks(part, change) for part in node.seq])
    if not isinstance(node, s_stmt.SBlockRealize):
        return node
    inside = node.block.body
    is_leaf = isinstance(inside, tirx.BufferStore)
    block = change(node.block) if is_leaf else with_body(node.block, map_blocks(inside, change))
    return s_stmt.SBlockRealize(node.iter_values, node.predicate, block)


def simplified(block: Any) -> Any:
    """A block with its indices simplified by the ranges of its iterators; those of one iteration stay in sight."""
    analyzer = sym.Analyzer()
    for iterator in block.iter_vars:
        if int(iterator.dom.extent) > 1:
            analyzer.bind(iterator.var, iterator.dom)
    store = block.body
    indices = [analyzer.simplify(index) for index in store.indices]
    body = tirx.BufferStore(store.buffer, analyzer.simplify(store.value), indices)
    reads, writes = ([_region(region, analyzer) for region in regions] for regions in (block.reads, block.writes))
    return with_body(block, body, reads=reads, writes=writes)


def _region(region: Any, analyzer: Any) -> Any:
    ranges = [ir.Range.from_min_extent(analyzer.simplify(r.min), r.extent) for r in region.region]
    return tirx.BufferRegion(region.source, ranges)
