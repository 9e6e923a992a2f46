"""Building the operator graph of a tile: parts of values, and operators on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.types import TensorType
from ...base.errors import DsaError
from ..network.boxes import Box, Shape, contains, shape_of

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
        """A part of a part. Raises DsaError where it is not in there."""
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
