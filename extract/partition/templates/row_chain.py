"""Several reductions along the rows of one tensor, which run while a row is in the first cache."""

from __future__ import annotations

from ....ir.operators import REDUCTIONS
from .operator_set import OperatorSet
from .template import LOOPS, Template

ROW_WISE = frozenset({"Softmax", "LayerNormalization", "RMSNormalization"})
"""Operators that compute each row (the last axis) of their result from the same row of their operand."""


def is_along_rows(operators: OperatorSet, member: int) -> bool:
    """Whether an operator of `ROW_WISE`, or a reduction over axes, works along the last axis alone."""
    operator = operators.graph.operators[member]
    rank = len(operators.within.shape(operator.inputs[0]))
    if operator.op in REDUCTIONS:
        return operator.attributes.get("axes") in ((rank - 1,), (-1,))
    axis = operator.attributes.get("axis", -1)
    return isinstance(axis, int) and axis % max(1, rank) == rank - 1


def _accepts(operators: OperatorSet) -> str | None:
    names = [operators.graph.operators[m].op for m in operators.anchors]
    if len(names) < 2 or not all(op in ROW_WISE or op in REDUCTIONS for op in names):
        return "they are not several reductions of rows"
    if not all(is_along_rows(operators, m) for m in operators.anchors):
        return "a reduction is not along the last axis"
    if len(operators.outputs) != 1 or "Concat" in operators.names:
        return "there are several results"
    return LOOPS if operators.buffers is None else None


ROW_CHAIN = Template("row_chain", _accepts, rule="rows")
