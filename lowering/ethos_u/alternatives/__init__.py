"""Other graphs of TOSA with the same results, bit for bit, among which Vela's estimate chooses."""

from __future__ import annotations

from collections.abc import Iterator

from ..tosa.graph import Graph
from .columns import folded_columns
from .edit import Alternative
from .orders import other_orders, swapped_sums
from .products import merged_products
from .sums import other_sums

__all__ = ["Alternative", "alternatives"]


def alternatives(graph: Graph) -> Iterator[Alternative]:
    """Graphs that differ from this one in one place each, those that helped most networks first."""
    for kind in (folded_columns, other_sums, merged_products, other_orders, swapped_sums):
        yield from kind(graph)
