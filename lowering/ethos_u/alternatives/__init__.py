"""Other graphs of TOSA with the same results, bit for bit, among which Vela's estimate chooses.

Each differs in one place:

- Convolutions read several columns as channels, through a view of a map whose channels lie last: the NPU computes with
  8 or 16 channels at once, and reads pixels of few channels one by one. Pointwise ones read maps of another width, and
  those with a stride have a column of zeros more, since Vela reads such maps in another layout.
- Inputs are copied first: from slow memory Vela reads pixels of few channels by bursts of many.
- Sums, means, largest numbers and products of two maps are taken in other ways.
- Convolutions of one map with the same window are one, whose result is sliced, or was joined anyway.
- Integers of 32 bits are computed by parts of their rows, of which fewer are in memory at a time, as are products of
  two maps.
- Operands come in another order: Vela runs first what makes the first one. The channels of a concatenation then lie in
  another order, and its readers expect them there.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..tosa.graph import Graph
from .convolutions import folded_columns, merged_products, other_widths, wider_windows
from .edit import Alternative
from .orders import copied_inputs, copied_maps, other_orders, swapped_sums, tables_for_scales
from .parts import products_in_parts, rows_in_parts
from .sums import other_sums, products_by_rows

__all__ = ["Alternative", "alternatives", "other_places", "products_in_parts", "rows_in_parts"]


def alternatives(graph: Graph) -> Iterator[Alternative]:
    """Graphs that differ from this one in one place each, those that helped most networks first."""
    for kind in (
        copied_inputs, folded_columns, wider_windows, other_widths, products_by_rows, other_sums, tables_for_scales,
        merged_products, rows_in_parts, products_in_parts, other_orders, swapped_sums,
    ):  # fmt: skip
        yield from kind(graph)


def other_places(graph: Graph) -> Iterator[Alternative]:
    """Those that change where maps lie and how, as only Vela's estimate of the whole network shows."""
    yield from wider_windows(graph)
    yield from copied_maps(graph)
