"""All templates, in the order in which they are asked if two cost the same."""

from __future__ import annotations

from ....ir.operators import OPERATORS, RECURRENT
from .anchored import PRODUCT, ROWS, WINDOW
from .convolution_chain import CONVOLUTION_CHAIN, POOLED_CONVOLUTION
from .extremes import finds_extremes
from .operator_set import OperatorSet
from .product_chain import PRODUCT_CHAIN
from .row_chain import ROW_CHAIN
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


def _is_recurrent(operators: OperatorSet) -> str | None:
    if len(operators.members) > 1 or operators.names[0] not in RECURRENT:
        return "they are not one recurrent network"
    return None


RECURRENCE = Template("recurrence", _is_recurrent)


def _is_one(operators: OperatorSet) -> str | None:
    return None if len(operators.members) == 1 else "there are several operators"


OPERATOR = Template("operator", _is_one)


EXTREMES = finds_extremes((POINTWISE, PRODUCT, WINDOW, ROWS))


TEMPLATES: tuple[Template, ...] = (
    MOVEMENT, POINTWISE, PRODUCT, WINDOW, ROWS, ROW_CHAIN, RECURRENCE, EXTREMES, POOLED_CONVOLUTION, CONVOLUTION_CHAIN,
    PRODUCT_CHAIN, OPERATOR,
)  # fmt: skip
