"""A recurrent network as one kernel: the products of all steps with the inputs, and the steps, one after the other."""

from __future__ import annotations

from ....ir.operators import RECURRENT
from .operator_set import OperatorSet
from .template import Template


def _is_recurrent(operators: OperatorSet) -> str | None:
    if len(operators.members) > 1 or operators.names[0] not in RECURRENT:
        return "they are not one recurrent network"
    return None


RECURRENCE = Template("recurrence", _is_recurrent)
