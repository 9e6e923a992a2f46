"""One node with the sizes and contents of its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from ...ir.sizes import ONE, ZERO, Size, number
from .bounds import Bounds
from .floats import FLOATS, Ratio, real

Shape = tuple[Size | None, ...]
"""Dimensions; None for one that is unknown."""
Contents = np.ndarray[Any, Any]
"""Elements of a small tensor: a Size, of floating-point numbers also a Ratio (None: unknown), or a bool."""


MOST = 256
"""The most elements of a tensor that is followed; shapes and paddings have far fewer."""
FOLLOWED = FLOATS | {"int32", "int64", "bool"}
"""Element types whose contents are known: in smaller ones sizes may wrap around, or are rounded."""


class Undecided(Exception):
    """The result of a node depends on more than is known here."""


class Equations:
    """Facts about sizes in every valid run: some are equal, although their forms differ, and symbols are never below
    their `lowest` number.

    `plainest` of equal ones is a number if there is one, then one with a name, then the shortest.
    """

    def __init__(self) -> None:
        self._plainer: dict[Size, Size] = {}
        self.lowest: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._plainer) + sum(self.lowest.values())

    def plainest(self, size: Size) -> Size:
        """The size that stands for all that are equal to this one."""
        while size in self._plainer:
            size = self._plainer[size]
        return size

    def equal(self) -> tuple[tuple[Size, Size], ...]:
        """The pairs of sizes that are equal although their forms differ, and follow from those of inputs."""
        pairs = ((size, self.plainest(size)) for size in self._plainer)
        return tuple(pair for pair in pairs if not any(map(is_unknown, pair)))

    def kept_out(self) -> Equations:
        """The same equations, to which others can be added without a change of these."""
        copy = Equations()
        copy._plainer = dict(self._plainer)
        return copy

    def require(self, size: Size, least: int) -> None:
        """Note that a size is never below a number, if that bounds one symbol: `(H + 3)//4` is at least 8
        if H is at least 29."""
        (factors, coefficient), *more = (size - number(size.constant)).terms or (((), 0),)
        if more or len(factors) != 1 or coefficient < 0:
            return
        least = -((size.constant - least) // coefficient)
        if factors[0].kind == "symbol":
            self.lowest[factors[0].text] = max(least, self.lowest.get(factors[0].text, 0))
        elif factors[0].kind == "floor" and (divisor := factors[0].parts[1].number) is not None:
            self.require(factors[0].parts[0], least * divisor)

    def equate(self, sizes: Iterable[Size | None]) -> Size | None:
        """Note that sizes are equal. Returns the one that stands for them; None if all are unknown."""
        plain = sorted({self.plainest(size) for size in sizes if size is not None}, key=_plainness)
        numbers = [size for size in plain if size.number is not None]
        if len(numbers) < 2:  # different numbers are an error of the model, which is found elsewhere
            self._plainer.update((size, plain[0]) for size in plain[1:])
        return plain[0] if plain else None


def _plainness(size: Size) -> tuple[bool, bool, int, str]:
    text = str(size)
    return size.number is None, is_unknown(size), len(text), text


UNKNOWN = "\0"
"""The beginning of the symbol of an unknown dimension, which is equal to itself only and has no name."""


def is_unknown(size: Size) -> bool:
    """Whether a size depends on a dimension that follows from no dimension of an input."""
    return UNKNOWN in str(size)


@dataclass(frozen=True)
class Site:
    """A node of the standard domain, with the shapes and contents around it. `dtype` is that of its first output, ""
    if it is unknown."""

    node: ir.Node
    dtype: str
    shapes: Mapping[str, Shape]
    contents: Mapping[str, Contents]
    constants: Mapping[str, np.ndarray[Any, Any]]
    bounds: Bounds
    equations: Equations
    opset: int

    def name(self, index: int) -> str:
        """The name of an input; "" if it is absent."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        return "" if value is None else value.name or ""

    def shape(self, index: int = 0) -> Shape:
        """The shape of an input. Raises Undecided if its rank is unknown."""
        shape = self.shapes.get(self.name(index))
        if shape is None:
            raise Undecided
        return shape

    def content(self, index: int) -> Contents:
        """The elements of an input. Raises Undecided if they are unknown."""
        name = self.name(index)
        if (content := self.contents.get(name)) is not None:
            return content
        array = self.constants.get(name)
        if array is None or array.size > MOST or array.dtype.name not in FOLLOWED:
            raise Undecided
        return contents_of(array)

    def floats(self, index: int) -> list[float]:
        """The elements of a constant input. Raises Undecided for one that is computed."""
        array = self.constants.get(self.name(index))
        if array is None:
            raise Undecided
        return [float(element) for element in array.ravel()]

    def sizes(self, index: int) -> list[Size | None]:
        """The elements of an input of rank 0 or 1. Raises Undecided for truth values, which are no sizes."""
        elements = list(self.content(index).ravel())
        if any(isinstance(element, bool) for element in elements):
            raise Undecided
        return elements

    def integers(self, index: int) -> list[int]:
        """The elements of an input that are the same for all sizes. Raises Undecided if they are not."""
        return [require_number(size) for size in self.sizes(index)]

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.value

    def integers_of(self, name: str, index: int, default: list[int] | None = None) -> list[int]:
        """A list that is an attribute in old opsets and an input, at `index`, in new ones."""
        if name in self.node.attributes:
            return list(self.attribute(name))
        if self.name(index):
            return self.integers(index)
        if default is None:
            raise Undecided
        return default

    def axis(self, axis: int, rank: int | None = None) -> int:
        """An axis counted from 0. Raises Undecided for one outside the rank."""
        rank = len(self.shape()) if rank is None else rank
        if not -rank <= axis < rank:
            raise Undecided
        return axis % rank

    def require(self, size: Size | None, least: int) -> None:
        """Note that a size is never below a number in a valid run."""
        if size is not None and not self.bounds.is_at_least(size, least):
            self.equations.require(size, least)

    def broadcast(self, *shapes: Shape) -> Shape:
        """The shape to which some broadcast."""
        rank = max(map(len, shapes))
        padded = [(ONE,) * (rank - len(shape)) + shape for shape in shapes]
        return tuple(self._broadcast_dimension(column) for column in zip(*padded, strict=True))

    def _broadcast_dimension(self, sizes: tuple[Size | None, ...]) -> Size | None:
        distinct = [size for size in dict.fromkeys(sizes) if size != ONE]
        if len(distinct) <= 1:
            return distinct[0] if distinct else ONE
        definite = list(dict.fromkeys(part for size in distinct if size is not None for part in _parts(size)))
        long = [size for size in definite if size == ZERO or self.bounds.is_at_least(size, 2)]
        if long:  # all of them are equal, or 1
            return self.equations.equate(long)
        for capped, whole in permutations(definite, 2):
            if self._is_capped(capped, whole):
                self.equations.equate((capped, whole))
                return self._broadcast_dimension(tuple(s and self.equations.plainest(s) for s in sizes))
        if None in distinct:
            return None
        longest = self.bounds.maximum(*definite)  # they are equal, or one is 1
        return longest * self.bounds.minimum(*definite, ONE)  # none are left of 1 and 0

    def _is_capped(self, size: Size, whole: Size) -> bool:
        """Whether a size is the least of another and of some of at least 2: if both broadcast, they are equal."""
        constant = number(size.constant)
        least = (size - constant).atom
        if least is None or least.kind != "min":
            return False
        others = {part + constant for part in least.parts} - {whole}
        return len(others) < len(least.parts) and all(self.bounds.is_at_least(other, 2) for other in others)


def _parts(size: Size) -> tuple[Size, ...]:
    """The sizes of which another one is the broadcast size, as `_broadcast_dimension` writes it; else the size alone.

    Without it a size doubles with each operator that broadcasts to it again.
    """
    if len(size.terms) == 1 and size.terms[0][1] == 1 and len(size.terms[0][0]) == 2:
        longest, least = sorted(size.terms[0][0], key=lambda atom: atom.kind)
        if (longest.kind, least.kind) == ("max", "min") and {*longest.parts, ONE} == {*least.parts}:
            return longest.parts
    return (size,)


def require_number(size: Size | bool | None) -> int:
    """The number that a size is. Raises Undecided for one that is none."""
    value = size.number if isinstance(size, Size) else None
    if value is None:
        raise Undecided
    return value


def require_size(size: Size | Ratio | bool | None) -> Size:
    """The size itself. Raises Undecided for one that is unknown."""
    if not isinstance(size, Size):
        raise Undecided
    return size


def product(sizes: Shape) -> Size:
    """The product of all dimensions. Raises Undecided if one is unknown."""
    total = ONE
    for size in sizes:
        total = total * require_size(size)
    return total


def contents_of(array: np.ndarray[Any, Any]) -> Contents:
    """The elements of a known tensor of a type that is followed."""
    kinds: dict[str, Callable[[Any], Size | Ratio | bool | None]] = {"b": bool, "f": real, "i": number}
    return tensor_of(list(map(kinds[array.dtype.kind], array.ravel().tolist())), array.shape)


def tensor_of(elements: list[Any], shape: tuple[int, ...]) -> Contents:
    """A tensor of sizes."""
    tensor = np.empty(len(elements), object)
    tensor[:] = elements
    return cast(Contents, tensor.reshape(shape))


def dimensions(function: Callable[..., Size], *columns: Iterable[object]) -> Shape:
    """One dimension for each row of some columns, None if a size in it is unknown or undecided."""

    def dimension(row: tuple[object, ...]) -> Size | None:
        try:
            return None if None in row else function(*row)
        except Undecided:
            return None

    return tuple(dimension(row) for row in zip(*columns, strict=True))
