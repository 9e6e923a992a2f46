"""Bodies as the partition takes them: ``Model -> Model``.

    If(c) { then } else { else } => If(c, then, else)

What types and constants decide is decided: Ifs of a constant condition, branches with which no run ends well, Loops
that run once. The other Ifs become operators that choose between two operands (`flatten`), so that kernels are cut from
the branches as from the rest. Loops and Scans keep their bodies.
"""

from __future__ import annotations

from contextlib import suppress

import onnx_ir as ir

from ...errors import ModelError
from ..onnx.inference import infer
from ..onnx.model import Model
from ..onnx.nodes import INFERRED_KEY, branches, has_body, is_flat_if
from ..onnx.typing import dtype_of
from .flatten import flatten
from .inference import infer_flat
from .nest import nest

_NESTED = 20
"""How deep Ifs within Ifs get their types."""


def settle_bodies(model: Model) -> Model:
    """The model with Ifs that are operands, itself where it has no bodies or they cannot be read."""
    if not any(map(has_body, model.graph)):
        return model
    with suppress(ModelError):  # a branch that never runs may be invalid
        flat = flatten(model)
        infer_flat(flat)
        settled = flatten(nest(flat.model, flat), regions=False).model
        for output in (output for node in settled.graph if has_body(node) for output in node.outputs):
            output.metadata_props[INFERRED_KEY] = ""
        for _ in range(_NESTED):
            if not _annotate_choices(settled):
                break
        return settled
    return model


def _annotate_choices(model: Model) -> bool:
    """Note the type of Ifs whose branches have the same one, from where inference takes it; whether any is new."""
    types, news = infer(model).types, False
    for node in filter(is_flat_if, model.graph):
        for output, then, otherwise in zip(node.outputs, *branches(node), strict=True):
            type_ = types.get(then.name or "")
            is_new = types.get(output.name or "") != type_
            if is_new and type_ is not None and type_ == types.get(otherwise.name or ""):
                output.type = ir.TensorType(dtype_of(type_.dtype))
                output.shape = None if type_.shape is None else ir.Shape(type_.shape)
                news = True
    return news
