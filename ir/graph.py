"""The graph that is partitioned into sub-graphs: operators that run, and the values between them.

It knows nothing of ONNX files or e-graphs. Only operators that depend on an input of the model are in it: the others
are computed before any run, and appear as constant values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from .operation import Attributes, Extent, Operation, extent
from .sizes import Size, dimension_as_size, dimension_size, number, size_as_dimension
from .types import Dimension, TensorType


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor. `producer` is the index of the operator that makes it, None for inputs of the graph and constants.

    `type` is None if it is not known; `is_output` says that the caller reads it. With dynamic dimensions `type` has the
    sizes that are optimised for, and `free` the texts of sizes (`ir/sizes.py`). `is_one` is said of the scales of
    QuantizeLinear alone: they are 1, and nothing is divided.
    """

    name: str
    type: TensorType | None
    producer: int | None = None
    is_constant: bool = False
    is_output: bool = False
    free: TensorType | None = None
    is_one: bool = False

    @property
    def extent(self) -> Extent:
        """Its size, symbolic dimensions counted as the cost models count them."""
        return extent(self.type)


@dataclass(frozen=True, slots=True)
class Operator:
    """One node. `inputs` and `outputs` are indices of values, in ONNX's order, None if an input is absent.

    `attributes` are canonical if the rules know the operator: an input of some opsets (axes, perm, ...) is an attribute
    here. `is_opaque`: nothing is known of it (another domain, a body, attributes that are computed), so nothing may be
    fused with it. `absent` are the positions of outputs that the node leaves out in front of others.
    """

    name: str
    op: str
    attributes: Attributes
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    is_opaque: bool = False
    absent: tuple[int, ...] = ()


@dataclass(frozen=True)
class OperatorGraph:
    """Operators in a topological order, and their values. Everything else is derived from these two.

    Invariants: an operator's inputs are made by earlier operators, or by none; each value is made once.
    """

    operators: tuple[Operator, ...]
    values: tuple[Value, ...]
    sizes: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The sizes of dynamic dimensions that are optimised for, by their names."""
    equal: tuple[tuple[Size, Size], ...] = field(default=(), compare=False)
    """Sizes that are equal in every valid run, although their forms differ."""
    lowest: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The least sizes of dynamic dimensions in a valid run, by their names."""

    @cached_property
    def at_call(self) -> OperatorGraph:
        """The graph with the sizes that hold for every call instead of those that are optimised for."""
        if all(value.free is None for value in self.values):
            return self
        values = (value if value.free is None else replace(value, type=value.free, free=None) for value in self.values)
        return replace(self, values=tuple(values))

    def with_typical(self, sizes: Mapping[str, int]) -> OperatorGraph:
        """The graph `at_call`, optimised for these sizes."""

        def fix(dimension: Dimension) -> Dimension:
            return dimension if dimension_as_size(dimension) is None else dimension_size(dimension, sizes)

        def at(value: Value) -> Value:
            type_ = _fix_type(value.type, fix)
            return value if type_ is value.type else replace(value, type=type_, free=value.type)

        return replace(self, values=tuple(map(at, self.at_call.values)), sizes=sizes)

    def at_sizes(self, sizes: Mapping[str, int]) -> OperatorGraph:
        """The graph `at_call` with these sizes of some dynamic dimensions."""
        numbers = {name: number(size) for name, size in sizes.items()}

        def fix(dimension: Dimension) -> Dimension:
            size = dimension_as_size(dimension)
            if size is None or not size.names() & sizes.keys():
                return dimension
            size = size.replace(numbers)
            return size_as_dimension(size)

        values = tuple(replace(value, type=_fix_type(value.type, fix)) for value in self.values)
        return replace(self, values=values, sizes={**self.sizes, **sizes})

    def __len__(self) -> int:
        return len(self.operators)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Per operator, the distinct operators whose outputs it reads, ascending."""
        return tuple(self._producers(operator) for operator in self.operators)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Per operator, the distinct operators that read its outputs, ascending."""
        readers: list[list[int]] = [[] for _ in self.operators]
        for index, sources in enumerate(self.predecessors):
            for source in sources:
                readers[source].append(index)
        return tuple(map(tuple, readers))

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Per value, the distinct operators that read it, ascending."""
        readers: list[dict[int, None]] = [{} for _ in self.values]
        for index, operator in enumerate(self.operators):
            for value in operator.inputs:
                if value is not None:
                    readers[value][index] = None
        return tuple(map(tuple, readers))

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Per operator, itself with the sizes of its operands and first output, as cost models take it."""
        return tuple(self._operation(operator) for operator in self.operators)

    def output_bytes(self, index: int) -> int:
        """Bytes of all outputs of an operator."""
        return sum(self.values[value].extent.bytes for value in self.operators[index].outputs)

    def inputs_of(self, members: Collection[int]) -> tuple[int, ...]:
        """Values that operators read and none of them makes, in the order in which they are first read."""
        inside = set(members)
        read = dict.fromkeys(v for m in members for v in self.operators[m].inputs if v is not None)
        return tuple(v for v in read if self.values[v].producer not in inside)

    def outputs_of(self, members: Collection[int]) -> tuple[int, ...]:
        """Values that operators make and others, or the caller, read, in the order of the graph."""
        inside = set(members)
        values = (v for m in sorted(inside) for v in self.operators[m].outputs)
        return tuple(v for v in values if self.values[v].is_output or not inside.issuperset(self.consumers[v]))

    def _producers(self, operator: Operator) -> tuple[int, ...]:
        makers = (self.values[value].producer for value in operator.inputs if value is not None)
        return tuple(sorted({maker for maker in makers if maker is not None}))

    def _operation(self, operator: Operator) -> Operation:
        inputs = [None if v is None else self.values[v] for v in operator.inputs]
        types = tuple(None if v is None or v.is_one else v.type for v in inputs)
        constant = tuple(v is None or v.is_constant for v in inputs)
        result = self.values[operator.outputs[0]].type if operator.outputs else None
        operation = Operation.of(operator.op, operator.attributes, types, result, (False,) * len(inputs))
        if all(constant) or operator.op == "Concat":
            return operation
        return replace(operation, constant=constant)


def _fix_type(type_: TensorType | None, fix: Callable[[Dimension], Dimension]) -> TensorType | None:
    if type_ is None or type_.shape is None or type_.is_static:
        return type_
    return replace(type_, shape=tuple(map(fix, type_.shape)))
