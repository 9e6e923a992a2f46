"""The ports of a model, and the inputs that users give for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from ...engine.onnx.model import Model
from ...engine.onnx.nodes import is_standard
from ...engine.onnx.typing import NAMELESS, dtype_name
from ...ir.graph import OperatorGraph, Value
from ...ir.size_relations import MOST_ELEMENTS
from ...ir.sizes import Size, declared_sizes, dimension_as_size
from ...ir.types import TensorType
from ...support.custom_operators import list_libraries
from .elements import ELEMENT_TYPES
from .errors import LoweringError
from .ports import Port, shape_text
from .weights import Weights

if TYPE_CHECKING:
    from ...engine.verification.inputs.given import Sample


def inputs_of(model: Model) -> tuple[Port, ...]:
    """The inputs that callers must give: those without a default.

    Raises LoweringError for one that is no tensor of numbers of a known rank.
    """
    given = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    free = (d for value in given for d in _dimensions(value) if isinstance(d, str))
    declared = declared_sizes(free)
    return tuple(_input(value, declared) for value in given)


def _dimensions(value: ir.Value) -> tuple[int | str, ...]:
    """Unnamed ones have the names that shape inference gives them."""
    dimensions = [d if isinstance(d, int) else d.value for d in value.shape or ()]
    return tuple(f"{value.name}.{axis}" if d in (None, "", NAMELESS) else d for axis, d in enumerate(dimensions))


def _input(value: ir.Value, declared: Mapping[str, Size]) -> Port:
    name = value.name or ""
    if value.dtype is None or value.dtype == ir.DataType.STRING or not isinstance(value.type, ir.TensorType):
        raise LoweringError(f"input {name!r} is no tensor of numbers, and only those can be compiled")
    if value.shape is None:
        raise LoweringError(f"input {name!r} has no known shape; give it by --input-shapes {name}:1,3,224,224")
    shape = tuple(d if isinstance(d, int) else str(declared[d]) for d in _dimensions(value))
    return Port(name, dtype_name(value.dtype), shape)


def require_fixed(ports: Iterable[Port]) -> None:
    """Raise LoweringError for an input of a dynamic size."""
    for port in ports:
        if not port.is_static:
            suggestion = ",".join(str(d) if isinstance(d, int) else "1" for d in port.shape)
            raise LoweringError(
                f"input {port.name!r} has the shape {shape_text(port.shape)}, and compiled code for this target needs "
                f"fixed sizes; give them by --input-shapes {port.name}:{suggestion}"
            )


def read_samples(paths: Iterable[Path], ports: Sequence[Port]) -> tuple[Sample, ...]:
    """The inputs that a user gives. Raises UsageError if they do not fit the ports."""
    if not paths:
        return ()
    import onnx

    from ...engine.verification.inputs.given import read_samples as read

    kinds = [onnx.helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype)) for port in ports]
    tensors = zip(ports, kinds, strict=True)
    return read(paths, [onnx.helper.make_tensor_value_info(port.name, kind, port.shape) for port, kind in tensors])


def require_tensors(graph: OperatorGraph, model: Model) -> None:
    """Raise LoweringError for a value that an operator makes or reads, and that is no tensor of numbers that compiled
    code holds, or that has a dimension beyond its integers or below 0."""
    for node in filter(is_standard, model.graph):
        for output, formal in zip(node.outputs, _list_results(node, model.opset), strict=False):
            if all(text.startswith(("seq(", "optional(")) for text in formal.types):
                subject = f"value {output.name!r} ({node.op_type} makes it)"
                raise LoweringError(f"{subject} is a sequence or optional, {_ONLY}")
    for value in graph.values:
        if value.type is not None and value.type.dtype == "string":
            raise LoweringError(f"{_describe_value(graph, value)} is text, {_ONLY}")
        if value.type is not None and value.type.dtype not in ELEMENT_TYPES and not value.is_constant:
            subject = _describe_value(graph, value)
            raise LoweringError(f"{subject} is of {value.type.dtype}, a type that compiled code cannot hold; {_TAKES}")
        for size in value.type.shape or () if value.type is not None else ():
            if isinstance(size, int) and not 0 <= size <= MOST_ELEMENTS:
                subject = _describe_value(graph, value)
                raise LoweringError(f"{subject} has a dimension of {size}; compiled code takes 0 to {MOST_ELEMENTS}")


def _describe_value(graph: OperatorGraph, value: Value) -> str:
    maker = f" ({graph.operators[value.producer].op} makes it)" if value.producer is not None else ""
    return f"value {value.name!r}{maker}"


_TAKES = "`eqfuse optimize` takes such models"
_ONLY = f"and only tensors of numbers can be compiled; {_TAKES}"


def _list_results(node: ir.Node, opset: int) -> Sequence[onnx.defs.OpSchema.FormalParameter]:
    if not onnx.defs.has(node.op_type, opset, ""):
        return ()
    return onnx.defs.get_schema(node.op_type, opset, "").outputs


def known_type(graph: OperatorGraph, value: int) -> TensorType:
    """The type of a value: its sizes are numbers, or follow from those of the inputs. Raises LoweringError."""
    described = graph.values[value]
    shape = described.type.shape if described.type is not None else None
    if described.type is not None and shape is not None and None not in map(dimension_as_size, shape):
        return described.type
    cause = _find_unknown(graph, value)
    if cause is not None:
        operator = graph.operators[cause]
        if onnx.defs.has(operator.op):
            types = (graph.values[v].type for v in operator.inputs if v is not None)
            operands = ", ".join(f"{type_.dtype}{shape_text(type_.shape)}" for type_ in types if type_ is not None)
            raise LoweringError(
                f"{operator.op} {operator.name!r}: no shape of its result follows from operands of {operands}; if they "
                "do not fit each other, mend the model or export it again, else declare the shape (value_info)"
            )
        library = "" if list_libraries() else "register the library of a custom operator by --custom-ops LIB.so, or "
        raise LoweringError(
            f"{operator.op} {operator.name!r}: neither ONNX nor ONNX Runtime infers the shape of its result; {library}"
            "declare that shape in the model (value_info)"
        )
    raise LoweringError(
        f"{_describe_value(graph, described)} has the shape {shape_text(shape)}, which depends on the values of "
        "inputs; compiled code needs sizes that follow from those of the inputs"
    )


def _find_unknown(graph: OperatorGraph, value: int) -> int | None:
    """The operator that is to blame for a value of unknown type: its operands have types, and none of its results has
    one. None if there is no such operator."""
    waiting, seen = [value], {value}
    while waiting:
        described = graph.values[waiting.pop()]
        if described.type is not None and described.type.shape is not None:
            continue
        producer = described.producer
        if producer is None:
            return None
        operands = [v for v in graph.operators[producer].inputs if v is not None and not graph.values[v].is_constant]
        unknown = [v for v in operands if (type_ := graph.values[v].type) is None or type_.shape is None]
        if not unknown:
            return producer
        waiting += [v for v in unknown if v not in seen]
        seen.update(unknown)
    return None


def outputs_of(weights: Weights, graph: OperatorGraph) -> tuple[Port, ...]:
    """The outputs of a compiled model, in order. An output is made by an operator, or it is an input or a constant."""
    return tuple(_output(str(value.name), weights, graph) for value in weights.model.graph.outputs)


def _output(name: str, weights: Weights, graph: OperatorGraph) -> Port:
    for port in inputs_of(weights.model):
        if port.name == name:
            return port
    for number, value in enumerate(graph.values):
        if value.name == name:
            type_ = known_type(graph, number)
            return Port(name, type_.dtype, type_.shape or ())
    array = weights[name]
    return Port(name, array.dtype.name, array.shape)
