"""Bodies as the partition takes them: ``Model -> Model``.

    If(c) { then } else { else } => If(c, then, else)

Types and constants decide first: on Ifs of a constant condition, branches with which no run ends well, and Loops
that run once. The other Ifs become operators that choose between two operands (`flatten`), so that kernels are formed
in the branches as in the rest. Loops and Scans keep their bodies, as do Ifs whose branches return different sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import onnx_ir as ir

from ...ir.types import TensorType
from ...support.errors import ModelError
from ..onnx.model import Model
from ..onnx.nodes import INFERRED_KEY, branches, has_body, is_flat_if
from ..onnx.typing import NAMELESS, dtype_of
from ..shapes.inference import infer
from .flatten import flatten
from .inference import infer_flat
from .nest import nest

_NESTED = 20
"""Levels of Ifs within Ifs that get their types."""


def resolve_bodies(model: Model) -> Model:
    """The model with Ifs that are operands, itself if it has no bodies or they cannot be read."""
    if not any(map(has_body, model.graph)):
        return model
    with suppress(ModelError):  # a branch that never runs may be invalid
        flat = flatten(model)
        infer_flat(flat)
        nested, kept = nest(flat.model, flat), dict[str, TensorType]()
        while True:
            resolved = flatten(nested, regions=False, kept=kept).model
            _annotate(resolved, kept)
            open_choices = _find_open_choices(resolved)
            if open_choices.keys() <= kept.keys():
                return resolved
            kept |= open_choices
    return model


def _annotate(model: Model, kept: Mapping[str, TensorType]) -> None:
    """Note the types of the results of bodies and branches, for inference."""
    for output in (output for node in model.graph if has_body(node) for output in node.outputs):
        output.metadata_props[INFERRED_KEY] = ""
        type_ = kept.get(output.name or "")
        if type_ is not None:
            _declare(output, type_)
    for _ in range(_NESTED):
        if not _annotate_choices(model):
            break


def _find_open_choices(model: Model) -> dict[str, TensorType]:
    """The outputs of Ifs whose size depends on the branch that is taken, or on values, with their known types."""
    if not any(map(is_flat_if, model.graph)):
        return {}
    knowledge = infer(model)
    open_types = {}
    for output in (output for node in model.graph if is_flat_if(node) for output in node.outputs):
        type_ = knowledge.types.get(output.name or "")
        if output.name and type_ is not None and type_.shape is not None:
            sizes = tuple(d if isinstance(d, int) or d in knowledge.symbols else NAMELESS for d in type_.shape)
            if NAMELESS in sizes:
                open_types[output.name] = TensorType(type_.dtype, sizes)
    return open_types


def _declare(value: ir.Value, type_: TensorType) -> None:
    value.type = ir.TensorType(dtype_of(type_.dtype))
    sizes = type_.shape
    value.shape = None if sizes is None else ir.Shape([None if size == NAMELESS else size for size in sizes])


def _annotate_choices(model: Model) -> bool:
    """Note the type of Ifs whose branches have the same one, for inference; returns whether any is new."""
    types, news = infer(model).types, False
    for node in filter(is_flat_if, model.graph):
        for output, then, otherwise in zip(node.outputs, *branches(node), strict=True):
            type_ = types.get(then.name or "")
            is_new = types.get(output.name or "") != type_
            if is_new and type_ is not None and type_ == types.get(otherwise.name or ""):
                _declare(output, type_)
                news = True
    return news
