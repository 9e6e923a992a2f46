"""One operator of a tile, where it is to be computed on parts of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ....ir.graph import Operator
from ...base.errors import DsaError
from ..network.boxes import Box, Shape, shape_of, whole
from ..network.graph import Network
from .local_builder import Attribute, LocalBuilder, LocalPart


@dataclass(frozen=True)
class LocalSite:
    """An operator, the result that is asked for (its number) and its box, and what that needs of each operand."""

    network: Network
    builder: LocalBuilder
    parts: Mapping[int, LocalPart]
    index: int
    number: int
    box: Box
    boxes: tuple[Box | None, ...]

    @property
    def operator(self) -> Operator:
        """The operator in the network."""
        return self.network.graph.operators[self.index]

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The attributes of the operator in the network."""
        return dict(self.operator.attributes)

    def integers(self, name: str) -> tuple[int, ...]:
        """A list attribute; empty when missing."""
        found = self.operator.attributes.get(name, ())
        return found if isinstance(found, tuple) else ()

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        found = self.operator.attributes.get(name, default)
        return found if isinstance(found, int) else default

    def axis(self, default: int, rank: int) -> int:
        """The attribute `axis`, from 0."""
        return self.integer("axis", default) % max(rank, 1)

    def shape(self, number: int) -> Shape:
        """All extents of an operand in the network; () where it is absent."""
        value = self.operator.inputs[number] if number < len(self.operator.inputs) else None
        return () if value is None else self.network.shapes[value]

    @property
    def result(self) -> int:
        """The value that is asked for."""
        return self.operator.outputs[self.number]

    def needs(self, number: int) -> Box:
        """The box of an operand. Raises DsaError where nothing is needed."""
        found = self.boxes[number]
        if found is None:
            raise DsaError(f"{self.operator.op} {self.operator.name!r}: operand {number} is not there")
        return found

    def take(self, number: int, box: Box | None = None) -> int | None:
        """A part of an operand, by default the needed one; None where the operand is absent."""
        value = self.operator.inputs[number] if number < len(self.operator.inputs) else None
        if value is None or (box is None and self.boxes[number] is None):
            return None
        if value not in self.parts:
            raise DsaError(f"a tile of {self.operator.name!r} lacks tensor {self.network.graph.values[value].name!r}")
        return self.builder.take(self.parts[value], self.needs(number) if box is None else box)

    def data(self, box: Box | None = None) -> int:
        """The first operand."""
        found = self.take(0, box)
        assert found is not None
        return found

    def rest(self, first: int = 1) -> list[int | None]:
        """The operands from one on, as they are needed."""
        return [self.take(number) for number in range(first, len(self.operator.inputs))]

    def aligned(self, number: int, box: Box) -> int | None:
        """The part of an operand that is broadcast to a part of the result."""
        shape = self.shape(number)
        own = box[len(box) - len(shape) :]
        return self.take(number, tuple((0, 1) if n == 1 else i for n, i in zip(shape, own, strict=True)))

    def emit(self, inputs: list[int | None], box: Box, **changed: Attribute) -> LocalPart:
        """The operator itself, with some other attributes, making `box` of its result."""
        type_ = self.network.graph.values[self.result].type
        dtype = "" if type_ is None else type_.dtype
        attributes = self.attributes | changed
        return LocalPart(self.builder.add(self.operator.op, inputs, shape_of(box), dtype, attributes), box)


Rule = Callable[[LocalSite], LocalPart]
"""Adds operators to the tile's graph; what they make has the box that is asked for in it."""


def require_whole(site: LocalSite) -> None:
    """Raise DsaError unless all of each operand is needed."""
    for number, box in enumerate(site.boxes):
        if box is not None and box != whole(site.shape(number)):
            operator = site.operator
            raise DsaError(f"{operator.op} {operator.name!r}: no part of its result can be computed by itself")
