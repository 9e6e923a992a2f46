"""ONNX operators as tensor expressions of TVM, one module for each family.

``ir/operators`` says what an operator computes; here it is divided into stages that a schedule can move. Every
stage carries its operator as the block attribute `OPERATOR`, the one that multiplies in a product or convolution also
`ANCHOR`. A stage is named after its node, and its operator if the node's name does not say it; if an operator has
several, all but the last have the part at the end:

- ``_pad`` (Conv and pooling, if there is padding), ``_spread`` (ConvTranspose), ``_product`` (the anchor of Conv,
  ConvTranspose and Gemm if a bias or a factor follows, which is then the last stage);
- ``_max``, ``_exp``, ``_sum``, ``_factor`` (Softmax); ``_sum``, ``_squares``, ``_factor`` (normalisations over axes);
  ``_factor`` (BatchNormalization); ``_sum``, ``_max`` (reductions and pooling that compute on); ``_part0``, ...
  (Split).

A value that an expression reads more than once is bound (``tirx.Let``): inlining a producer does not multiply it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import te

from ...ir.graph import Operator, OperatorGraph
from ...ir.operators import VIEWS
from ...ir.sizes import dimension_as_size
from ...ir.types import TensorType
from . import (
    elementwise,
    layout,
    normalisation,
    pooling,
    products,
    quantization,
    recurrent,
    reductions,
    resize,
)
from .call import ANCHOR, BYTE, OPERATOR, Immediate, Lowering, NotLowered, Operand, Tensor, TensorCall
from .extents import Extents, UnknownExtent

__all__ = [
    "ANCHOR", "DTYPES", "LOWERINGS", "OPERATOR", "Extents", "Immediate", "NotLowered", "Operand", "Tensor", "compute",
    "has_lowering", "lowerable", "placeholder",
]  # fmt: skip

LOWERINGS: Mapping[str, Lowering] = {
    **elementwise.LOWERINGS,
    **products.LOWERINGS,
    **quantization.LOWERINGS,
    **normalisation.LOWERINGS,
    **reductions.LOWERINGS,
    **pooling.LOWERINGS,
    **layout.LOWERINGS,
    **resize.LOWERINGS,
    **recurrent.LOWERINGS,
}
"""The function that makes the stages of each operator, by the operator's name."""

DTYPES = frozenset(
    ["float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
"""Element types that have a lowering."""
_MOVED = VIEWS | {"Cast"}
"""Operators that take float16, too, which no other operator computes with: `engine/preparation/halves.py`."""


def _has_kernels(op: str, dtype: str) -> bool:
    return dtype in DTYPES or (dtype == "float16" and op in _MOVED)


def compute(
    operator: Operator, graph: OperatorGraph, inputs: Sequence[Operand | None], extents: Extents
) -> tuple[Tensor, ...]:
    """The results of an operator of `graph`, perhaps without those at the end that nothing reads.

    `inputs` are in the order of the operator, None if one is absent.
    Raises NotLowered, naming the node, if `lowerable` gives a reason, or a size does not follow from the `extents`.
    """
    reason = _obstacle(operator, graph)
    if reason is None:
        ends: tuple[Sequence[int | None], ...] = (operator.inputs, operator.outputs)
        given, made = (tuple(None if v is None else graph.values[v].type for v in values) for values in ends)
        call = TensorCall(operator, tuple(inputs), made, extents, given)
        try:
            results = LOWERINGS[operator.op](call)
            every = results if isinstance(results, tuple) else (results,)
            tensors = [tensor for n, tensor in enumerate(every) if n not in operator.absent]
            typed = ((t, type_) for t, type_ in zip(tensors, made, strict=False) if type_ is not None)
            return tuple(Tensor(tensor, extents.shape(type_), type_.dtype) for tensor, type_ in typed)
        except (NotLowered, UnknownExtent) as error:
            reason = str(error)
    raise NotLowered(f"{operator.op} {operator.name} cannot be compiled: {reason}")


def lowerable(operator: Operator, graph: OperatorGraph) -> str | None:
    """Why an operator has no lowering; None if it has one."""
    reason = _obstacle(operator, graph)
    if reason is not None:
        return reason
    values = [None if value is None else graph.values[value].type for value in operator.inputs]
    extents = Extents.of((*values, *(graph.values[value].type for value in operator.outputs)))
    inputs = [None if t is None else placeholder(t, f"x{i}", extents) for i, t in enumerate(values)]
    try:
        compute(operator, graph, inputs, extents)
    except NotLowered as error:
        return str(error).split("cannot be compiled: ", 1)[-1]
    return None


def placeholder(type_: TensorType, name: str, extents: Extents) -> Tensor:
    """A tensor that a kernel gets."""
    shape = extents.shape(type_)
    stored = BYTE if type_.dtype == "bool" else type_.dtype
    return Tensor(te.placeholder(shape, stored, name), shape, type_.dtype)


def has_lowering(operator: Operator, graph: OperatorGraph) -> bool:
    """Whether an operator may have a lowering, as far as its type and the element types that are known tell."""
    types = [graph.values[v].type for v in (*operator.inputs, *operator.outputs[:1]) if v is not None]
    known = (_has_kernels(operator.op, type_.dtype) for type_ in types if type_ is not None)
    return operator.op in LOWERINGS and not operator.is_opaque and all(known)


def _obstacle(operator: Operator, graph: OperatorGraph) -> str | None:
    """Why an operator has no lowering, as far as its types tell."""
    if operator.op not in LOWERINGS:
        return f"{operator.op} has no lowering"
    if operator.is_opaque:
        return f"this form of {operator.op} is not known to the rules"
    further = [v for v in operator.outputs[1:] if graph.consumers[v] or graph.values[v].is_output]
    values = [graph.values[v] for v in (*operator.inputs, *operator.outputs[:1], *further) if v is not None]
    for name, type_ in ((value.name, value.type) for value in values):
        if type_ is None or type_.shape is None or None in map(dimension_as_size, type_.shape):
            return f"the shape of {name} is not known before the run"
        if not _has_kernels(operator.op, type_.dtype):
            return f"{name} is of {type_.dtype}"
        if 0 in type_.shape:
            return f"{name} has no elements"
    return None
