"""Giving a model's inputs other shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from ...errors import UsageError
from .model import Model


def override_shapes(model: Model, shapes: Mapping[str, tuple[int | str, ...]]) -> Model:
    """The model with these input shapes; what followed from the old ones is forgotten.

    Raises UsageError for a name that is no input, or a rank that does not fit.
    """
    if not shapes:
        return model
    inputs = {i.name: i for i in model.graph.inputs}
    for name, shape in shapes.items():
        if name not in inputs:
            known = ", ".join(str(i) for i in inputs)
            raise UsageError(f"--input-shapes: {model.label} has no input {name!r}; it has {known}")
        rank = inputs[name].shape
        if rank is not None and len(rank) != len(shape):
            raise UsageError(f"--input-shapes: {name} has {len(rank)} dimensions, not {len(shape)}")
    clone = model.ir.clone()
    for value in clone.graph.inputs:
        if value.name and value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
    for node in clone.graph:
        for output in node.outputs:
            if not output.is_graph_output():
                output.shape = None
    for output in clone.graph.outputs:
        if output.shape is not None and not output.is_graph_input():
            output.shape = ir.Shape([None] * len(output.shape))
    return replace(model, ir=clone)
