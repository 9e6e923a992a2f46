"""Kernels without an anchor op: chains of element-wise operators, and of those that move elements."""

from __future__ import annotations

from ....ir.operators import OPERATORS
from .operator_set import OperatorSet
from .template import LOOPS, Template

_LAYOUT = ("layout", "multiple-output")
_MOVEMENT = frozenset(o.name for o in OPERATORS.values() if o.category in _LAYOUT) - {"Resize"}


def _has_no_anchor(operators: OperatorSet) -> str | None:
    if operators.anchors or any(operators.graph.operators[m].is_opaque for m in operators.members):
        return "one of them reduces, or nothing is known of it"
    return LOOPS if operators.buffers is None else None


def _only_moves(operators: OperatorSet) -> str | None:
    if not _MOVEMENT.issuperset(operators.names):
        return "one of them computes"
    return _has_no_anchor(operators)


MOVEMENT = Template("movement", _only_moves)
"""Transpose, Concat, Slice, Split, padding, channel shuffles: index maps of one kernel."""
POINTWISE = Template("pointwise", _has_no_anchor)
"""Element-wise operators, which read and write through index maps."""
