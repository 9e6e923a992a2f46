"""Weights that rules made: constant expressions of the chosen graph, evaluated once, in float64, and cast.

Operators that only move elements, and those that the model itself had, run in their own element type: that is what
a runtime would have computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from .onnx.evaluation import evaluate, evaluate_by_reference

Array = np.ndarray[Any, Any]

_MOVEMENT = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Slice", "Gather", "Concat", "Split"}
)


@dataclass(frozen=True)
class Step:
    """One constant to compute: a node over earlier values, with the constant lists it needs.

    `native`: compute in the element type of the operands rather than in float64. `opsets` are those the node is
    written for.
    """

    node: onnx.NodeProto
    lists: Mapping[str, Array]
    native: bool
    opsets: Mapping[str, int]


def compute(
    leaves: Mapping[str, Array], steps: Sequence[Step], wanted: Mapping[str, np.dtype[Any]]
) -> dict[str, Array]:
    """The wanted values, cast to the given element types; one that cannot be evaluated is left out."""
    known: dict[str, Array] = dict(leaves)
    for step in steps:
        inputs = {i: known.get(i, step.lists.get(i)) for i in step.node.input if i}
        if any(a is None for a in inputs.values()):
            continue
        known.update(_run(step, {i: a for i, a in inputs.items() if a is not None}))
    return {n: known[n].astype(d, copy=False) for n, d in wanted.items() if n in known}


def _run(step: Step, inputs: Mapping[str, Array]) -> dict[str, Array]:
    outputs = [o for o in step.node.output if o]
    if step.node.op_type in _MOVEMENT:
        found = evaluate_by_reference([step.node], inputs, outputs, step.opsets)
    elif step.native:
        found = {}
    else:
        found = evaluate_by_reference([step.node], _widened(inputs), outputs, step.opsets)
    return found if len(found) == len(outputs) else evaluate([step.node], _narrowed(inputs), outputs, step.opsets)


def _widened(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {n: a.astype(np.float64) if _is_float(a) else a for n, a in inputs.items()}


def _narrowed(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The operands in one float type: where some are wider by an earlier step, the narrowest of them."""
    floats = sorted({a.dtype for a in inputs.values() if _is_float(a)}, key=lambda d: d.itemsize)
    return {n: a.astype(floats[0], copy=False) if _is_float(a) else a for n, a in inputs.items()}


def _is_float(array: Array) -> bool:
    return bool(array.dtype.kind == "f" or array.dtype.name == "bfloat16")


def uniform_element(array: Array) -> Any | None:
    """The element that a constant of some size consists of; None where elements differ."""
    if array.size < 32 or array.dtype.kind not in "fiub":
        return None
    first = array.flat[0]
    if not any(array.strides):
        return first  # broadcast from one element
    return first if bool((array == first).all()) else None

