"""Small operator graphs: a builder for those written by hand, and random ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from eqfuse.ir.graph import Operator, OperatorGraph, Value
from eqfuse.ir.operation import Attributes
from eqfuse.ir.types import Dimension, TensorType

Shape = tuple[Dimension, ...]


@dataclass
class Builder:
    """Makes an operator graph one node at a time; values and operators are known by their index.

    >>> b = Builder()
    >>> x = b.input(2, 3)
    >>> y = b.op("MatMul", x, b.constant(3, 4), shape=(2, 4))
    >>> g = b.graph(b.op("Relu", y))
    """

    dtype: str = "float32"
    operators: list[Operator] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def input(self, *shape: Dimension) -> int:
        """An input of the graph."""
        return self._value(shape, None, False)

    def constant(self, *shape: Dimension) -> int:
        """A constant."""
        return self._value(shape, None, True)

    def unknown(self) -> int:
        """An input of the graph of which no shape is known."""
        return self._value(None, None, False)

    def op(
        self,
        op: str,
        *inputs: int | None,
        shape: Shape | None = None,
        **attributes: int | float | str | tuple[int, ...],
    ) -> int:
        """A node with one output: of `shape`, or of the shape that its operands broadcast to."""
        return self.node(op, inputs, [self.broadcast(inputs) if shape is None else shape], attributes)[0]

    def node(
        self,
        op: str,
        inputs: Sequence[int | None],
        shapes: Sequence[Shape | None],
        attributes: Attributes | None = None,
        is_opaque: bool = False,
    ) -> list[int]:
        """A node with as many outputs as `shapes`; a shape of None is one that is not known."""
        number = len(self.operators)
        outputs = [self._value(shape, number, False) for shape in shapes]
        self.operators.append(Operator(f"n{number}", op, attributes or {}, tuple(inputs), tuple(outputs), is_opaque))
        return outputs

    def graph(self, *outputs: int) -> OperatorGraph:
        """What was built; without `outputs`, the values that nobody reads are the outputs."""
        read = {v for operator in self.operators for v in operator.inputs}
        ends = outputs or [i for i, v in enumerate(self.values) if v.producer is not None and i not in read]
        values = [Value(v.name, v.type, v.producer, v.is_constant, i in ends) for i, v in enumerate(self.values)]
        return OperatorGraph(tuple(self.operators), tuple(values))

    def shape(self, value: int) -> Shape:
        """The shape of a value that has one."""
        type_ = self.values[value].type
        assert type_ is not None
        assert type_.shape is not None
        return type_.shape

    def broadcast(self, inputs: Sequence[int | None]) -> Shape:
        """What operands of static shapes broadcast to."""
        shapes = [tuple(d for d in self.shape(v) if isinstance(d, int)) for v in inputs if v is not None]
        return np.broadcast_shapes(*shapes)

    def _value(self, shape: Shape | None, producer: int | None, is_constant: bool) -> int:
        type_ = TensorType(self.dtype, shape)
        self.values.append(Value(f"v{len(self.values)}", type_, producer, is_constant))
        return len(self.values) - 1


def chain(*ops: str, shape: Shape = (4, 4)) -> OperatorGraph:
    """Unary operators, each reading the one before; all values of one shape."""
    builder = Builder()
    value = builder.input(*shape)
    for op in ops:
        value = builder.op(op, value, shape=shape)
    return builder.graph()


_SIDE = 4
_Step = Callable[[Builder, int, int], object]


def _transposed(builder: Builder, value: int) -> Shape:
    return builder.shape(value)[::-1]


_STEPS: dict[str, _Step] = {
    "Relu": lambda b, x, _: b.op("Relu", x),
    "Add": lambda b, x, y: b.op("Add", x, y),
    "Mul": lambda b, x, y: b.op("Mul", x, y),
    "bias": lambda b, x, _: b.op("Add", x, b.constant(1, 1)),
    "Transpose": lambda b, x, _: b.op("Transpose", x, shape=_transposed(b, x), perm=(1, 0)),
    "Reshape": lambda b, x, _: b.op("Reshape", x, shape=_transposed(b, x)),
    "Expand": lambda b, x, _: b.op("Expand", x, shape=(_SIDE, _SIDE)),
    "Softmax": lambda b, x, _: b.op("Softmax", x, axis=1),
    "ReduceSum": lambda b, x, _: b.op("ReduceSum", x, shape=(b.shape(x)[0], 1), axes=(1,), keepdims=1),
    "MatMul": lambda b, x, _: b.op("MatMul", x, b.constant(b.shape(x)[1], _SIDE), shape=(b.shape(x)[0], _SIDE)),
    "opaque": lambda b, x, y: b.node("Opaque", (x, y), [b.shape(x), b.shape(y)], is_opaque=True),
}


@st.composite
def operator_graphs(draw: st.DrawFn, most: int = 14) -> OperatorGraph:
    """A random graph of 1 to `most` operators: matrices of sides 1 and 4, broadcasts, forks, joins and opaque nodes.

    Operands are drawn from the latest values first, so that graphs are deep; a few inner values are outputs too.
    """
    builder = Builder()
    sides = st.sampled_from((1, _SIDE))
    for _ in range(draw(st.integers(1, 2))):
        builder.input(draw(sides), draw(sides))
    back = st.integers(0, 5)
    for name in draw(st.lists(st.sampled_from(sorted(_STEPS)), min_size=1, max_size=most)):
        known = [i for i, v in enumerate(builder.values) if not v.is_constant]
        first, second = (known[max(0, len(known) - 1 - draw(back))] for _ in range(2))
        _STEPS[name](builder, first, second)
    made = [i for i, v in enumerate(builder.values) if v.producer is not None]
    read = {v for operator in builder.operators for v in operator.inputs}
    extra = draw(st.sets(st.sampled_from(made), max_size=2))
    return builder.graph(*sorted(extra | {i for i in made if i not in read}))
