"""An operator graph at another batch size: ``OperatorGraph -> OperatorGraph``.

The batch is followed from one axis of all inputs through every operator, since Reshapes and Transposes move it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.index_maps import Axis
from ....ir.operators import RESHAPES, TO_SHAPES
from ....ir.operators.graph_maps import index_maps_of
from ....ir.operators.recurrent import GATES, sample_axis_of_operand, sample_axis_of_result
from ....ir.types import TensorType
from ...base.errors import DsaError
from .boxes import Shape


def read_inputs(graph: OperatorGraph) -> list[int]:
    """The inputs that operators read."""
    read = {v for operator in graph.operators for v in operator.inputs if v is not None}
    return [v for v in sorted(read) if graph.values[v].producer is None and not graph.values[v].is_constant]


def own_batch(graph: OperatorGraph, axis: int) -> int:
    """The extent that inputs have along an axis; scalars have none.

    Raises DsaError if they differ, or if an input has fewer axes.
    """
    inputs = [value for value in map(graph.values.__getitem__, read_inputs(graph)) if value.extent.dimensions]
    for value in inputs:
        if len(value.extent.dimensions) <= axis:
            raise DsaError(f"input {value.name!r} has no axis {axis} for the batch")
    batches = {value.extent.dimensions[axis] for value in inputs}
    if len(batches) != 1:
        raise DsaError(f"the inputs have batches {sorted(batches)} along axis {axis}; they must have one batch")
    return batches.pop()


def is_batch_outermost(graph: OperatorGraph) -> bool:
    """Whether inputs have one extent along their outermost axis, which can be followed to the results."""
    try:
        with_batch(graph, 2 * own_batch(graph, 0))
    except DsaError:
        return False
    return True


def with_batch(graph: OperatorGraph, batch: int, axis: int = 0) -> OperatorGraph:
    """The graph for inputs of `batch` samples, along `axis`. A constant that has rows for the samples is repeated.

    Raises DsaError if shapes are not static, if `batch` does not fit, or if the batch cannot be followed.
    """
    if batch < 1:
        raise DsaError(f"batch {batch}: must be at least 1")
    return _Batched(graph, batch, axis).result()


class _Batched:
    def __init__(self, graph: OperatorGraph, batch: int, axis: int) -> None:
        self.graph, self.batch, self.axis = graph, batch, axis
        self.axes: dict[int, int] = {}
        self.fixed: set[int] = set()
        """Values without samples that stay as they are."""

    def result(self) -> OperatorGraph:
        """The graph with larger types, and Reshapes and Expands to larger shapes."""
        own = own_batch(self.graph, self.axis)
        self.axes = {index: self.axis for index in read_inputs(self.graph) if self._shape(index)}
        for operator in self.graph.operators:
            self._follow(operator)
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
                raise DsaError(
                    f"{what}; if samples lie along another axis than {self.axis}, name it (--batch-axis), or export "
                    "the model with the batch that it is to have"
                )
            self.axes[result] = axis
        self._repeat_constants(operator)

    def _repeat_constants(self, operator: Operator) -> None:
        """Operands without samples that are read along the batch get rows for each sample, unless they are broadcast.

        A single row is broadcast by all operators but Concat. Raises DsaError for one that was read otherwise before.
        """
        if operator.op in GATES:
            self._repeat_states(operator)
            return
        result = operator.outputs[0]
        axis, maps = self.axes[result], index_maps_of(self.graph, operator, 0)
        along = Axis(axis, self._shape(result)[axis])
        for value, operand in zip(operator.inputs, maps.operands if maps is not None else (), strict=False):
            if value is None or value in self.axes:
                continue
            if operand is None or along not in operand or (along.extent == 1 and operator.op != "Concat"):
                self.fixed.add(value)
            elif value in self.fixed:
                name = self.graph.values[value].name
                raise DsaError(f"tensor {name!r}: operators read it both with and without rows for each sample")
            else:
                self.axes[value] = operand.index(along)

    def _repeat_states(self, operator: Operator) -> None:
        """The initial states and lengths of a recurrent network have rows for the samples, in which ONNX knows no
        broadcasting."""
        samples_first = bool(operator.attributes.get("layout"))
        for place, value in enumerate(operator.inputs):
            axis = sample_axis_of_operand(place, samples_first)
            if value is None or axis is None or value in self.axes:
                continue
            if value in self.fixed or not self.graph.values[value].is_constant:
                name = self.graph.values[value].name
                raise DsaError(f"tensor {name!r}: the batch cannot be followed to the states of {operator.name!r}")
            self.axes[value] = axis

    def _moved(self, operator: Operator, place: int, source: int, result: int) -> int | None:
        """Which axis of the result is the batch of this operand; None if none of them is all of it and nothing else.

        A Reshape puts its rows into the first axis that has as many elements outside of it; if that is one sample, only
        into an axis that has no other element, unless the batch is outermost.
        """
        if operator.op in GATES:
            samples_first = bool(operator.attributes.get("layout"))
            is_batch = sample_axis_of_operand(place, samples_first) == self.axes[source]
            return sample_axis_of_result(operator.outputs.index(result), samples_first) if is_batch else None
        maps = index_maps_of(self.graph, operator, operator.outputs.index(result))
        operand = None if maps is None else maps.operands[place]
        if operand is None:
            return None
        axis, shape = self.axes[source], self._shape(source)
        if operator.op in RESHAPES:
            outside = prod(shape[:axis])
            extents = self._shape(result)
            found = [a for a in range(len(extents)) if prod(extents[:a]) == outside]
            if outside > 1 and shape[axis] == 1:
                found = [a for a in found if extents[a] == 1]
            return found[0] if found else None
        index = operand[axis]
        return index.number if isinstance(index, Axis) and index.extent == shape[axis] else None


def _resized(operator: Operator, values: list[Value]) -> Operator:
    """The target shape of a Reshape or Expand is an attribute."""
    if operator.op not in TO_SHAPES or "shape" not in operator.attributes:
        return operator
    shape = values[operator.outputs[0]].extent.dimensions
    return replace(operator, attributes={**operator.attributes, "shape": shape})
