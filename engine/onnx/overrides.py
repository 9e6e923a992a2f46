"""Changes to a model before its analysis: a newer opset for rules that need newer operators, other input shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir
from onnx import version_converter
from onnx_ir import serde

from ...errors import UsageError
from .model import Model, first_line


def raise_opset(model: Model, opset: int | None) -> Model:
    """The model at `opset`; the same model if `opset` is None or the model's own.

    Raises UsageError for an opset below the model's, one that onnx does not know, or a model it cannot convert.
    """
    if opset is None or opset == model.opset:
        return model
    if opset < model.opset:
        raise UsageError(f"--opset {opset}: {model.label} already uses opset {model.opset}")
    try:
        converted = version_converter.convert_version(serde.serialize_model(model.ir), opset)
    except Exception as error:  # the converter raises many kinds
        raise UsageError(f"--opset {opset}: onnx cannot convert {model.label}: {first_line(error)}") from None
    return replace(model, ir=serde.deserialize_model(converted))


def override_shapes(model: Model, shapes: Mapping[str, tuple[int | str, ...]]) -> Model:
    """The model with these input shapes, and without the shapes that followed from the old ones.

    Raises UsageError for a name that is no input, or a rank that does not fit.
    """
    if not shapes:
        return model
    inputs = {i.name: i for i in model.graph.inputs}
    for name, shape in shapes.items():
        if name not in inputs:
            names = ", ".join(str(i) for i in inputs)
            raise UsageError(f"--input-shapes: {model.label} has no input {name!r}; it has {names}")
        rank = inputs[name].shape
        if rank is not None and len(rank) != len(shape):
            raise UsageError(f"--input-shapes: {name} has {len(rank)} dimensions, not {len(shape)}")
    clone = model.ir.clone()
    for value in clone.graph.inputs:
        if value.name and value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
    for output in (output for node in clone.graph for output in node.outputs):
        if not output.is_graph_output():
            output.shape = None
    for output in clone.graph.outputs:
        if output.shape is not None and not output.is_graph_input():
            output.shape = ir.Shape([None] * len(output.shape))
    return replace(model, ir=clone)
