"""Instructions that multiply integers and add up neighbours, in each lane of 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BYTES = frozenset({"int8", "uint8"})
"""Element types of 8 bits."""
WIDE = "int16"
"""The element type that holds all bytes, with a sign and without one."""


@dataclass(frozen=True)
class DotProduct:
    """`length` neighbours of both operands are multiplied and added up in a lane.

    `data` and `weights` are the element types of the operand that is broadcast, and of the one in lanes. Data that are
    `widened` are made numbers of 16 bits before they are multiplied; weights become that on their way to a register.
    `steps` are those of a register tile of floats that take as long as the product of one element in each lane.
    """

    length: int
    data: frozenset[str]
    weights: frozenset[str]
    steps: float
    widened: bool = False

    @property
    def loaded(self) -> frozenset[str]:
        """The element types of the data as they are when they are multiplied."""
        return frozenset({WIDE}) if self.widened else self.data

    def multiplies(self, data: str | None, weights: str | None) -> bool:
        """Whether it takes elements of these types; None is a type that is not known."""
        return data in self.data and weights in self.weights


DOT_PRODUCTS: Mapping[str, DotProduct] = {
    "vpdpbusd": DotProduct(4, frozenset({"uint8"}), frozenset({"int8"}), 1 / 4),
    "sdot": DotProduct(4, frozenset({"int8"}), frozenset({"int8"}), 1 / 4),
    "vpmaddwd": DotProduct(2, BYTES, BYTES, 0.75, widened=True),
}
"""The instructions by the names of a device file. Sums of 64 to 256 bytes on a Xeon: 650 to 727 GOPS by vpdpbusd, where
floats reach some 160."""
