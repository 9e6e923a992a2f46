"""Sums that round: (x + k) - k with a large constant k is x rounded to a multiple of the last place of k.

Over the reals such a sum is x, and rules may compute over the reals. Models that emulate integers write it for the
rounding (with k = 1.5 * 2^23 a float32 becomes a whole number), so its first half stays out of reach of all rules.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ..onnx.nodes import is_standard
from ..shapes.inference import Knowledge

_LAST_PLACE = 0.25
"""The least step between the numbers around k at which a sum counts as rounding. A smaller k loses digits as any sum
of that size does, and such a pair is more often one that two exporters left behind."""
_REMAINING = 2.0**-8
"""The largest part of k that remains once the second constant is added."""

UniformOf = Callable[[ir.Value], float | None]
"""The number that all elements of a constant are; None for any other value."""


def is_rounding_sum(node: ir.Node, knowledge: Knowledge, uniform_of: UniformOf) -> bool:
    """Whether a node is the first half of such a sum: x + k, x - k or k - x, and a node that reads it takes k away."""
    offset = _offset(node, None, uniform_of)
    if offset is None or not np.isfinite(offset) or not _is_coarse(node, offset, knowledge):
        return False
    result = node.outputs[0]
    readers = (_offset(use.node, result, uniform_of) for use in result.uses())
    signs = (-1.0 if use.node.op_type == "Sub" and use.idx == 1 else 1.0 for use in result.uses())
    return any(
        after is not None and abs(sign * offset + after) <= _REMAINING * abs(offset)
        for after, sign in zip(readers, signs, strict=True)
    )


def _offset(node: ir.Node, moved: ir.Value | None, uniform_of: UniformOf) -> float | None:
    """The constant that an Add or a Sub adds to `moved`, or to any value; None if the node does something else."""
    if node.op_type not in ("Add", "Sub") or not is_standard(node) or len(node.inputs) != 2:
        return None
    for place, value in enumerate(node.inputs):
        other = node.inputs[1 - place]
        number = uniform_of(value) if value is not None else None
        if number is None or other is None:
            continue
        if other is moved or (moved is None and uniform_of(other) is None):
            return -number if node.op_type == "Sub" and place == 1 else number
    return None


def _is_coarse(node: ir.Node, offset: float, knowledge: Knowledge) -> bool:
    type_ = knowledge.types.get(node.outputs[0].name or "")
    if type_ is None or type_.dtype not in ("float16", "float32", "float64"):
        return False
    return bool(np.spacing(np.dtype(type_.dtype).type(abs(offset))) >= _LAST_PLACE)
