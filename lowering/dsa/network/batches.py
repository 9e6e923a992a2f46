"""An operator graph at another batch size: ``OperatorGraph -> OperatorGraph``.

Inputs have their batch outermost. It is followed through every operator, since Reshapes and Transposes move it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.index_maps import Axis
from ....ir.operators import RESHAPES, TO_SHAPES
from ....ir.operators.graph_maps import index_maps_of
from ....ir.types import TensorType
from ...base.errors import DsaError
from .boxes import Shape


def with_batch(graph: OperatorGraph, batch: int) -> OperatorGraph:
    """The graph for inputs of `batch` samples. A constant operand of a Concat counts as repeated.

    Raises DsaError if shapes are not static, if `batch` does not fit, or if the batch cannot be followed.
    """
    if batch < 1:
        raise DsaError(f"batch {batch}: must be at least 1")
    return _Batched(graph, batch).result()


class _Batched:
    def __init__(self, graph: OperatorGraph, batch: int) -> None:
        self.graph = graph
        self.batch = batch
        self.axes: dict[int, int] = {}

    def result(self) -> OperatorGraph:
        """The graph with larger types, and Reshapes and Expands to larger shapes."""
        read = {v for operator in self.graph.operators for v in operator.inputs if v is not None}
        for index, value in enumerate(self.graph.values):
            if value.producer is None and not value.is_constant and index in read and self._shape(index):
                self.axes[index] = 0
        before = {self._shape(index)[0] for index in self.axes}
        if len(before) != 1:
            raise DsaError(f"the inputs have batches {sorted(before)}; they must have one batch, outermost")
        for operator in self.graph.operators:
            self._follow(operator)
        (own,) = before
        values = [self._scaled(index, value, own) for index, value in enumerate(self.graph.values)]
        operators = [_resized(operator, values) for operator in self.graph.operators]
        return OperatorGraph(tuple(operators), tuple(values))

    def _shape(self, value: int) -> Shape:
        found = self.graph.values[value]
        if found.type is None or not found.type.is_static:
            raise DsaError(f"tensor {found.name!r}: its shape is not static; give all shapes with --input-shapes")
        return found.extent.dimensions

    def _scaled(self, index: int, value: Value, own: int) -> Value:
        if index not in self.axes:
            return value
        axis, shape = self.axes[index], list(self._shape(index))
        if shape[axis] * self.batch % own:
            rows = f"{shape[axis]} rows of a batch of {own}"
            raise DsaError(f"tensor {value.name!r}: {rows} do not scale to a batch of {self.batch}")
        shape[axis] = shape[axis] * self.batch // own
        assert value.type is not None
        return replace(value, type=TensorType(value.type.dtype, tuple(shape)))

    def _follow(self, operator: Operator) -> None:
        moving = [(place, v) for place, v in enumerate(operator.inputs) if v is not None and v in self.axes]
        if not moving:
            return
        for result in operator.outputs:
            axes = {self._moved(operator, place, source, result) for place, source in moving}
            axis = axes.pop()
            if axis is None or axes or not 0 <= axis < len(self._shape(result)):
                what = f"operator {operator.name!r} ({operator.op}): its batch cannot be told from its result"
                raise DsaError(f"{what}; export the model with a batch of {self.batch}")
            self.axes[result] = axis
        if operator.op == "Concat":
            axis = self.axes[operator.outputs[0]]
            self.axes |= {v: axis for v in operator.inputs if v is not None and v not in self.axes}

    def _moved(self, operator: Operator, place: int, source: int, result: int) -> int | None:
        """Which axis of the result is the batch of this operand; None if none of them is all of it and nothing else.

        A Reshape puts its rows into the first axis that has as many elements outside of it.
        """
        maps = index_maps_of(self.graph, operator, operator.outputs.index(result))
        operand = None if maps is None else maps.operands[place]
        if operand is None:
            return None
        axis, shape = self.axes[source], self._shape(source)
        if operator.op in RESHAPES:
            outside = prod(shape[:axis])
            extents = self._shape(result)
            return next((a for a in range(len(extents)) if prod(extents[:a]) == outside), None)
        index = operand[axis]
        return index.number if isinstance(index, Axis) and index.extent == shape[axis] else None



def _resized(operator: Operator, values: list[Value]) -> Operator:
    """The target shape of a Reshape or Expand is an attribute."""
    if operator.op not in TO_SHAPES or "shape" not in operator.attributes:
        return operator
    shape = values[operator.outputs[0]].extent.dimensions
    return replace(operator, attributes={**operator.attributes, "shape": shape})
