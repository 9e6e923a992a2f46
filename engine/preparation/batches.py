"""The batch of a model: the dimensions of its inputs that count samples, and a dynamic one for a fixed 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ...ir.sizes import assume_sizes
from ...support.errors import UsageError
from ..onnx.model import Model, elements
from ..onnx.nodes import is_standard
from ..shapes.inference import infer
from .overrides import dimension_names, override_shapes

BATCH = "batch"
"""The name that a dynamic batch gets."""


def find_batches(model: Model) -> tuple[str, ...]:
    """The dynamic dimensions of inputs that count samples: those that costs count as 1."""
    given = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    return tuple(name for name, size in assume_sizes(map(dimension_names, given)).items() if size == 1)


def free_batch(model: Model) -> Model:
    """The model with inputs of any number of samples, which is fixed to 1: the first axis of those with more axes.

    A Reshape to a fixed first dimension of 1 takes that of its operand. Whether each sample is computed as before has
    still to be checked. Raises UsageError if no input has such an axis, or if an output has no batch then.
    """
    shapes = {
        value.name or "": (BATCH, *names[1:])
        for value in model.graph.inputs
        if value.name not in model.graph.initializers
        and len(names := dimension_names(value)) > 1
        and names[0] == 1
    }
    if not shapes:
        raise UsageError(f"--batch: no input of {model.label} has a first axis of one sample; --input-shapes names one")
    freed = override_shapes(_keep_first_axes(model), shapes)
    types = infer(freed).types
    for output in freed.graph.outputs:
        type_ = types.get(output.name or "")
        if type_ is None or type_.shape is None or type_.shape[:1] != (BATCH,):
            shape = "unknown" if type_ is None or type_.shape is None else list(type_.shape)
            raise UsageError(
                f"--batch: {model.label} is for one sample: with {', '.join(shapes)} of several, output "
                f"{output.name!r} has the shape {shape}, without them first; --input-shapes says where others go"
            )
    return freed


def _keep_first_axes(model: Model) -> Model:
    """Reshapes whose operand and result both begin with 1 take it from the operand, which is the same so far."""
    types, stored = infer(model).types, model.stored
    clone = model.ir.clone()
    for node in clone.graph:
        operand, target = (node.inputs[0], node.inputs[1]) if len(node.inputs) == 2 else (None, None)
        if node.op_type != "Reshape" or not is_standard(node) or operand is None or target is None:
            continue
        type_, tensor = types.get(operand.name or ""), stored.get(target.name or "")
        if type_ is None or (type_.shape or ())[:1] != (1,) or tensor is None or node.attributes.get("allowzero"):
            continue
        sizes = elements(tensor)
        if sizes.size and sizes[0] == 1:
            name = f"{node.outputs[0].name}/shape"
            kept = ir.tensor(np.concatenate([[0], sizes[1:]]).astype(np.int64), name=name)
            clone.graph.initializers[name] = ir.Value(
                name=name, shape=ir.Shape(sizes.shape), type=ir.TensorType(ir.DataType.INT64), const_value=kept
            )
            node.replace_input_with(1, clone.graph.initializers[name])
    return replace(model, ir=clone, is_changed=True, executed=None)
