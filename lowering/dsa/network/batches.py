"""An operator graph at another batch size: ``OperatorGraph -> OperatorGraph``.

Inputs have their batch outermost. It is followed through every operator, since Reshapes and Transposes move it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.operators import OPERATORS
from ....ir.types import TensorType
from ..errors import DsaError
from .boxes import Shape


def with_batch(graph: OperatorGraph, batch: int) -> OperatorGraph:
    """The graph for inputs of `batch` samples. A constant operand of a Concat counts as repeated.

    Raises DsaError where shapes are not static, where `batch` does not fit, or where the batch cannot be followed.
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
        """Which axis of the result is the batch of this operand."""
        known = operator.op in OPERATORS and not operator.is_opaque
        rule = _RULES.get(operator.op, _aligned if known else _unknown)
        return rule(operator, place, self.axes[source], self._shape(source), self._shape(result))


def _resized(operator: Operator, values: list[Value]) -> Operator:
    """The target shape of a Reshape or Expand is an attribute."""
    if operator.op not in ("Reshape", "Expand") or "shape" not in operator.attributes:
        return operator
    shape = values[operator.outputs[0]].extent.dimensions
    return replace(operator, attributes={**operator.attributes, "shape": shape})


def _unknown(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    return None


def _aligned(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    """Shapes are aligned on the right, as everything that broadcasts does it."""
    return axis + len(result) - len(source)


def _matmul(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    is_summed = axis == len(source) - (1 if place == 0 else 2)
    return None if is_summed else axis + len(result) - len(source)


def _gemm(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    return 0 if place == 0 and axis == (1 if operator.attributes.get("transA") else 0) else None


def _transpose(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    permutation = operator.attributes["perm"]
    return permutation.index(axis) if isinstance(permutation, tuple) else None


def _reshape(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    """The first axis with as many elements outside of it, that all or part of the batch's rows go into."""
    outside = prod(source[:axis])
    return next((a for a in range(len(result)) if prod(result[:a]) == outside), None)


def _reduction(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    axes = operator.attributes.get("axes", ())
    axes = axes if isinstance(axes, tuple) else ()
    if axis in axes or not axes:
        return None
    return axis if operator.attributes.get("keepdims", 1) else axis - sum(other < axis for other in axes)


def _gather(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    along = operator.attributes.get("axis", 0)
    assert isinstance(along, int)
    if place == 1:
        return along + axis
    return axis if axis < along else None if axis == along else axis + len(result) - len(source)


def _along(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    """Not along the axis that is cut or joined."""
    return None if operator.attributes.get("axis", 0) == axis else axis


def _sliced(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    """Not along axes that change their size: the numbers in their attributes hold for one batch size."""
    return axis if source[axis] == result[axis] else None


def _inside(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    """Of a normalisation: outside of the axes that it goes over."""
    along = operator.attributes.get("axis", -1)
    assert isinstance(along, int)
    return axis if axis < along % len(source) else None


def _first(operator: Operator, place: int, axis: int, source: Shape, result: Shape) -> int | None:
    return axis if place == 0 and axis == 0 else None


_Rule = Callable[[Operator, int, int, Shape, Shape], int | None]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("Concat", "Split", "Softmax", "LogSoftmax", "Hardmax", "CumSum"), _along),
    **dict.fromkeys(("Slice", "Pad", "Tile"), _sliced),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _inside),
    **dict.fromkeys(("Identity", "Dropout", "Trilu"), _aligned),
    **dict.fromkeys(
        (
            "Conv",
            "ConvTranspose",
            "MaxPool",
            "AveragePool",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "Resize",
            "DepthToSpace",
            "SpaceToDepth",
            "BatchNormalization",
            "InstanceNormalization",
            "GroupNormalization",
        ),
        _first,
    ),
    **dict.fromkeys(
        (f"Reduce{name}" for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")),
        _reduction,
    ),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Transpose": _transpose,
    "Gather": _gather,
}
