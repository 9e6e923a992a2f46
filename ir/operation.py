"""One operator with the sizes of its operands and output, as costs need them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import MappingProxyType

from .sizes import Size, declared_sizes, parse_size, symbol
from .types import Dimension, TensorType

SYMBOL = 128
"""The size that costs assume for an unknown dimension: that of a sentence or of a feature map's side. A batch counts 1
(`assume_sizes`): so models are deployed, and so a flattened batch x length counts the same."""
_IMAGE_RANK = 4
"""The least rank of an input whose dynamic first dimension is a batch whatever its name."""
_COLOURS = (1, 3, 4)
"""Numbers of channels of an image that is stored channels last and may come without a batch."""
_LENGTH = re.compile("seq|len|time|frame|token|height|width", re.IGNORECASE)
"""Parts of names of dimensions that are no batch."""

VARIADIC = frozenset({"Concat", "Max", "Min"})
"""Operators that ONNX writes with any number of operands: here they are chains, whose links have two."""

NO_SIZES: Mapping[str, int] = MappingProxyType({})

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


def dimension_size(dimension: Dimension, sizes: Mapping[str, int] = NO_SIZES) -> int:
    """The number a dimension counts: itself, that of `sizes`, 1 for a symbolic batch ("N", "batch..."), else `SYMBOL`.

    An expression of names counts its value for their numbers.
    """
    if isinstance(dimension, int):
        return dimension if dimension >= 0 else SYMBOL
    size = parse_size(dimension)
    if dimension in sizes or size is None or size.number is not None:
        return _symbol_size(dimension, sizes)
    try:
        return max(1, size.value(lambda name: _symbol_size(name, sizes)))
    except ZeroDivisionError:
        return SYMBOL


def _symbol_size(name: str, sizes: Mapping[str, int]) -> int:
    return sizes.get(name, 1 if name == "N" or name.lower() in ("batch", "batch_size", "bs") else SYMBOL)


def assume_sizes(shapes: Iterable[Sequence[Dimension]], equal: Iterable[tuple[Size, Size]] = ()) -> dict[str, int]:
    """The number that each symbolic dimension of the inputs counts: 1 for a batch, else `SYMBOL`.

    A batch is a dimension with such a name; the first dimension of an image or of a tensor with still more axes, unless
    it is another axis of one as well; and that of an input whose other axes are a whole sample, unless it is another
    axis of any input. The `equal` sizes, each pair with the plainer one last, add the dimensions that no shape names
    any more.
    """
    shapes = [*shapes]
    images = [shape for shape in shapes if len(shape) >= _IMAGE_RANK]
    samples = [shape for shape in shapes if _has_samples(shape)]
    batches = _first_axes(images, images) | _first_axes(samples, shapes)
    declared = declared_sizes(d for shape in shapes for d in shape if isinstance(d, str))
    sizes: dict[str, int] = {}
    for name in dict.fromkeys(d for shape in shapes for d in shape if isinstance(d, str)):
        if declared[name].atom is not None:
            sizes[name] = 1 if name in batches else dimension_size(name)
        else:  # such as 32*k + 16
            factor = sum(coefficient for factors, coefficient in declared[name].terms if factors)
            for free in declared[name].names():
                sizes.setdefault(free, max(1, (SYMBOL - declared[name].constant) // max(1, factor)))
    for side, plainer in equal:
        for name in (side.names() | plainer.names()) - sizes.keys():
            is_known = side == symbol(name) and plainer.names() <= sizes.keys()
            sizes[name] = plainer.value(sizes.__getitem__) if is_known else dimension_size(name)
    return sizes


def _first_axes(shapes: Iterable[Sequence[Dimension]], others: Iterable[Sequence[Dimension]]) -> set[Dimension]:
    """The first dimensions of shapes that are no other axis of `others`."""
    return {shape[0] for shape in shapes} - {dimension for shape in others for dimension in shape[1:]}


def _has_samples(shape: Sequence[Dimension]) -> bool:
    """Whether the first axis of an input may count samples, since the other axes have many elements.

    It does not if it is called a length, if another axis is called a batch, or for the height of one image.
    """
    if len(shape) < 2 or not isinstance(shape[0], str) or _LENGTH.search(shape[0]):
        return False
    has_batch = any(isinstance(dimension, str) and dimension_size(dimension) == 1 for dimension in shape[1:])
    is_one_image = len(shape) == 3 and isinstance(shape[1], str) and shape[2] in _COLOURS
    return not has_batch and not is_one_image and prod(map(dimension_size, shape[1:])) >= SYMBOL


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
