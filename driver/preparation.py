"""A model in the form in which it is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..engine.bodies.inference import infer_form
from ..engine.bodies.resolve import resolve_bodies
from ..engine.onnx.model import Model
from ..engine.preparation.halves import widen_halves
from ..engine.preparation.overrides import keep_outputs, override_shapes, state_dimensions
from ..engine.preparation.schema_functions import expand_operators, list_expandable
from ..extract.partition.annotations.local_functions import inline_functions

_NESTED_FUNCTIONS = 5
"""Levels at which operators that are defined by others are inlined; ONNX's own definitions are three deep."""


def prepare_model(
    original: Model, dimensions: Sequence[str], shapes: Mapping[str, tuple[int | str, ...]], outputs: Sequence[str],
    *, widens: bool = False,
) -> Model:  # fmt: skip
    """The model with the facts about dimensions, the shapes of inputs and the outputs that options name; without local
    functions, operators that ONNX defines by others, and Ifs that choose between operands; if it `widens`, with float32
    in the place of float16."""
    model = state_dimensions(inline_functions(original), dimensions)
    stated = keep_outputs(override_shapes(model, shapes), outputs)
    prepared = _spell_out(stated)
    prepared = widen_halves(prepared) if widens else prepared
    return prepared if isinstance(stated.source, Path) else replace(prepared, executed=stated.ir)


def _spell_out(model: Model) -> Model:
    """The model without operators that ONNX defines by others, and with Ifs that choose between operands."""
    for _ in range(_NESTED_FUNCTIONS):
        if not list_expandable(model):
            break
        expanded = expand_operators(model, infer_form(model)[1].types)
        if not expanded.ir.functions:
            break  # the rest has no definition that fits
        model = inline_functions(expanded)
    return resolve_bodies(model)
