"""Building the operator graph of a tile: parts of values, and operators of the network at the size of these parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.types import TensorType
from ...base.errors import DsaError
from ..network.boxes import Box, Shape, contains, shape_of, whole
from ..network.graph import Network

Attribute = int | float | str | tuple[int, ...]


@dataclass(frozen=True)
class LocalPart:
    """A value of the tile's graph, and the part of a value of the network that it is."""

    local: int
    box: Box


class LocalBuilder:
    """Adds operators one by one. Names say the place in the graph alone, so that equal graphs compare equal."""

    def __init__(self) -> None:
        self._operators: list[Operator] = []
        self._values: list[Value] = []
        self._cut: dict[tuple[int, Shape, Shape, Shape], int] = {}

    def input(self, shape: Shape, dtype: str, *, is_constant: bool) -> int:
        """The next operand of the tile."""
        self._values.append(Value("", TensorType(dtype, shape), None, is_constant))
        return len(self._values) - 1

    def shape(self, local: int) -> Shape:
        """The extents of a value."""
        return self._values[local].extent.dimensions

    def dtype(self, local: int) -> str:
        """The element type of a value."""
        type_ = self._values[local].type
        return "float32" if type_ is None else type_.dtype

    def add(
        self,
        op: str,
        inputs: Sequence[int | None],
        shape: Shape,
        dtype: str = "",
        attributes: Mapping[str, Attribute] | None = None,
    ) -> int:
        """An operator with one result; of the first input's element type unless another is given."""
        first = next(value for value in inputs if value is not None)
        (result,) = self.add_all(op, inputs, [TensorType(dtype or self.dtype(first), shape)], attributes or {})
        return result

    def add_all(
        self,
        op: str,
        inputs: Sequence[int | None],
        types: Sequence[TensorType],
        attributes: Mapping[str, Attribute],
        *,
        is_opaque: bool = False,
    ) -> tuple[int, ...]:
        """An operator with results of these types."""
        number = len(self._operators)
        outputs = tuple(range(len(self._values), len(self._values) + len(types)))
        self._operators.append(Operator(f"n{number}", op, dict(attributes), tuple(inputs), outputs, is_opaque))
        self._values += [Value("", type_, number) for type_ in types]
        return outputs

    def take(self, part: LocalPart, box: Box) -> int:
        """A part of a part. Raises DsaError if it is not in there."""
        if box == part.box:
            return part.local
        if not contains(part.box, box):
            raise DsaError(f"a tile needs {list(box)} of a tensor of which it has {list(part.box)}")
        starts = [a - c for (a, _), (c, _) in zip(box, part.box, strict=True)]
        return self.slice(part.local, starts, shape_of(box), [1] * len(box))

    def slice(self, local: int, starts: Sequence[int], lengths: Sequence[int], steps: Sequence[int]) -> int:
        """`lengths` elements along each axis, `steps` apart, from `starts` on; the value itself for all of it."""
        whole = self.shape(local)
        key = (local, tuple(starts), tuple(lengths), tuple(steps))
        rows = zip(range(len(whole)), whole, starts, lengths, steps, strict=True)
        cut = [(axis, start, count, step) for axis, n, start, count, step in rows if (start, count, step) != (0, n, 1)]
        if not cut:
            return local
        if key not in self._cut:
            attributes: dict[str, Attribute] = {
                "starts": tuple(start for _, start, _, _ in cut),
                "ends": tuple(_end(start, count, step, whole[axis]) for axis, start, count, step in cut),
                "axes": tuple(axis for axis, *_ in cut),
                "steps": tuple(step for *_, step in cut),
            }
            self._cut[key] = self.add("Slice", [local], tuple(lengths), attributes=attributes)
        return self._cut[key]

    def reshape(self, local: int, shape: Shape) -> int:
        """The same elements in another shape."""
        if shape == self.shape(local):
            return local
        return self.add("Reshape", [local], shape, attributes={"shape": shape})

    def pad(self, local: int, before: Sequence[int], after: Sequence[int]) -> int:
        """Zeros around a value, which nothing reads."""
        if not any(before) and not any(after):
            return local
        shape = tuple(a + n + b for a, n, b in zip(before, self.shape(local), after, strict=True))
        return self.add("Pad", [local], shape, attributes={"pads": (*before, *after), "mode": "constant"})

    def graph(self, inputs: int, results: Sequence[int]) -> OperatorGraph:
        """The graph; its values are in this order: the first `inputs` ones, `results`, all others."""
        outputs: list[int] = []
        for local in results:
            is_new = self._values[local].producer is not None and local not in outputs
            outputs.append(local if is_new else self.add("Identity", [local], self.shape(local)))
        rest = [v for v in range(inputs, len(self._values)) if v not in outputs]
        order = [*range(inputs), *outputs, *rest]
        number = {old: new for new, old in enumerate(order)}
        names = [f"i{n}" for n in range(inputs)] + [f"o{n}" for n in range(len(outputs))]
        names += [f"t{n}" for n in range(len(rest))]
        values = [replace(self._values[v], name=n, is_output=v in outputs) for v, n in zip(order, names, strict=True)]
        return OperatorGraph(tuple(_renumber(operator, number) for operator in self._operators), tuple(values))


def _end(start: int, count: int, step: int, extent: int) -> int:
    """Where a slice ends, as ONNX wants it: before the first element counts from the end."""
    end = start + count * step
    return max(end, -1) - extent if end < 0 else min(end, extent)


def _renumber(operator: Operator, number: Mapping[int, int]) -> Operator:
    inputs = tuple(None if value is None else number[value] for value in operator.inputs)
    return replace(operator, inputs=inputs, outputs=tuple(number[value] for value in operator.outputs))


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
        """All extents of an operand in the network; () if it is absent."""
        value = self.operator.inputs[number] if number < len(self.operator.inputs) else None
        return () if value is None else self.network.shapes[value]

    @property
    def result(self) -> int:
        """The value that is asked for."""
        return self.operator.outputs[self.number]

    def needs(self, number: int) -> Box:
        """The box of an operand. Raises DsaError if nothing is needed."""
        found = self.boxes[number]
        if found is None:
            raise DsaError(f"{self.operator.op} {self.operator.name!r}: operand {number} is not there")
        return found

    def take(self, number: int, box: Box | None = None) -> int | None:
        """A part of an operand, by default the needed one; None if the operand is absent."""
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
