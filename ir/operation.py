"""One operator with the sizes of its operands and output, as costs need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from .sizes import SYMBOL, dimension_size
from .types import TensorType

VARIADIC = frozenset({"Concat", "Max", "Min"})
"""Operators that ONNX writes with any number of operands: here they are chains, whose links have two."""

LIMIT = 2**62
"""The most elements one tensor counts, so that every cost stays a finite float."""

Attributes = Mapping[str, int | float | str | tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a tensor: dimensions (() when the rank is unknown), elements and bytes; all zero when absent."""

    dimensions: tuple[int, ...]
    elements: int
    bytes: int


ABSENT = Extent((), 0, 0)


@lru_cache(maxsize=1 << 16)
def extent(tensor: TensorType | None) -> Extent:
    """The size of `tensor`; an unknown shape counts `SYMBOL` elements, None counts nothing."""
    if tensor is None:
        return ABSENT
    if tensor.shape is None:
        return Extent((), SYMBOL, tensor.bytes(SYMBOL))
    dimensions = tuple(map(dimension_size, tensor.shape))
    elements = min(prod(dimensions), LIMIT)
    return Extent(dimensions, elements, min(TensorType(tensor.dtype, (elements,)).bytes(), LIMIT * 16))


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator whose cost is to be predicted.

    `operands` keeps ONNX's order with `ABSENT` for those not given. `constant` says which operands are known before any
    run; an absent one counts as known. `types` and `output_type` are the types from which `of` computed the sizes.
    """

    op: str
    attributes: Attributes
    operands: tuple[Extent, ...]
    output: Extent
    constant: tuple[bool, ...] = ()
    types: tuple[TensorType | None, ...] = ()
    output_type: TensorType | None = None

    @classmethod
    def of(
        cls,
        op: str,
        attributes: Attributes,
        operands: tuple[TensorType | None, ...],
        output: TensorType | None,
        constant: tuple[bool, ...] = (),
    ) -> Operation:
        """From types. An output of unknown shape counts as its largest operand: most operators keep the size."""
        extents = tuple([extent(o) for o in operands])
        result = extent(output)
        if output is None or output.shape is None:
            result = max(extents, key=lambda e: e.elements, default=result)
        return cls(op, attributes, extents, result, constant, operands, output)

    def operand(self, index: int) -> Extent:
        """Operand number `index`, `ABSENT` past the end."""
        return self.operands[index] if index < len(self.operands) else ABSENT

    def integer(self, name: str, default: int) -> int:
        """An integer attribute; `default` when missing or of another kind."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> tuple[int, ...]:
        """A list attribute; empty when missing or of another kind."""
        value = self.attributes.get(name, ())
        return value if isinstance(value, tuple) else ()

    @property
    def largest(self) -> int:
        """Elements of the largest of output and operands: those that a pass over the data visits."""
        return max([self.output.elements, *[o.elements for o in self.operands]])

    @property
    def group(self) -> int:
        """Groups of a convolution, at least 1."""
        return max(1, self.integer("group", 1))

    @property
    def is_folded(self) -> bool:
        """Whether every operand is flagged constant, so that the node is computed once, before any run."""
        return bool(self.constant) and len(self.constant) == len(self.operands) and all(self.constant)

    @property
    def continued(self) -> tuple[int, ...]:
        """For a link of a chain: per operand, 1 if it is itself such a link, with the same attributes."""
        return self.integers("continued") if self.op in VARIADIC else ()

    @property
    def starts_kernel(self) -> bool:
        """Whether the node is a kernel of its own, not the next link of a chain."""
        return not any(self.continued)
