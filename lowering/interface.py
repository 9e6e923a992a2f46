"""The ports of a model, and the inputs that users give for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from ..engine.onnx.model import Model, elements
from ..engine.onnx.typing import dtype_name
from ..errors import UsageError
from ..ir.graph import OperatorGraph
from ..ir.types import TensorType
from .errors import LoweringError
from .ports import Port, shape_text

if TYPE_CHECKING:
    from ..engine.verification.inputs import Sample


def inputs_of(model: Model) -> tuple[Port, ...]:
    """The inputs that callers must give: those without a default.

    Raises LoweringError for one that is no tensor of fixed shape.
    """
    given = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    return tuple(_input(value) for value in given)


def _input(value: ir.Value) -> Port:
    name = value.name or ""
    if value.dtype is None or value.dtype == ir.DataType.STRING or not isinstance(value.type, ir.TensorType):
        raise LoweringError(f"input {name!r} is no tensor of numbers, and only those can be compiled")
    if value.shape is None:
        raise LoweringError(f"input {name!r} has no known shape; give it by --input-shapes {name}:1,3,224,224")
    shape = [d if isinstance(d, int) else str(d.value or "?") for d in value.shape]
    fixed = tuple(d for d in shape if isinstance(d, int))
    if len(fixed) < len(shape):
        suggestion = ",".join(str(d) if isinstance(d, int) else "1" for d in shape)
        raise LoweringError(
            f"input {name!r} has the shape {shape_text(shape)}, and compiled code needs fixed sizes; "
            f"give them by --input-shapes {name}:{suggestion}"
        )
    return Port(name, dtype_name(value.dtype), fixed)


def read_samples(paths: Iterable[Path], ports: Sequence[Port]) -> tuple[Sample, ...]:
    """The inputs that a user gives. Raises UsageError where they do not fit the ports."""
    if not paths:
        return ()
    import onnx

    from ..engine.verification.inputs import read_samples as read

    kinds = [onnx.helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype)) for port in ports]
    tensors = zip(ports, kinds, strict=True)
    return read(paths, [onnx.helper.make_tensor_value_info(port.name, kind, port.shape) for port, kind in tensors])


def static_type(graph: OperatorGraph, value: int) -> TensorType:
    """The type of a value. Raises LoweringError where its sizes are not known before the run."""
    described = graph.values[value]
    if described.type is not None and described.type.is_static:
        return described.type
    maker = f" ({graph.operators[described.producer].op} makes it)" if described.producer is not None else ""
    shape = described.type.shape if described.type is not None else None
    raise LoweringError(
        f"value {described.name!r}{maker} has the shape {shape_text(shape)}, which depends on the values of inputs; "
        "compiled code needs fixed sizes"
    )


def outputs_of(model: Model, graph: OperatorGraph) -> tuple[Port, ...]:
    """What a compiled model gives, in order. An output is made by an operator, or it is an input or a constant."""
    return tuple(_output(str(value.name), model, graph) for value in model.graph.outputs)


def _output(name: str, model: Model, graph: OperatorGraph) -> Port:
    for port in inputs_of(model):
        if port.name == name:
            return port
    for number, value in enumerate(graph.values):
        if value.name == name:
            type_ = static_type(graph, number)
            return Port(name, type_.dtype, tuple(int(d) for d in type_.shape or ()))
    if name in model.stored:
        array = elements(model.stored[name])
        return Port(name, array.dtype.name, array.shape)
    raise UsageError(f"output {name!r} is no tensor that is known before the run; it cannot be compiled")
