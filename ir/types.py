"""The type of a tensor, as every layer sees it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

Dimension = int | str
"""A dimension: its size, or the name of a symbolic one."""

_BITS = {
    "bool": 8, "string": 64,
    "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4,
    "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "complex64": 64, "complex128": 128,
}  # fmt: skip
BYTES = ("int8", "uint8")
"""The element types of which there are products of integers."""


@dataclass(frozen=True)
class TensorType:
    """Element type (numpy's name, e.g. ``"float32"``) and shape (None: unknown rank)."""

    dtype: str
    shape: tuple[Dimension, ...] | None

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    def elements(self, symbol: int = 1) -> int:
        """Number of elements, each symbolic dimension (and an unknown shape) counted as `symbol`."""
        if self.shape is None:
            return symbol
        return prod(d if isinstance(d, int) else symbol for d in self.shape)

    def bytes(self, symbol: int = 1) -> int:
        """Size in bytes, with the convention of `elements`."""
        return -(-self.elements(symbol) * _BITS.get(self.dtype, 8) // 8)
