"""One operator by itself: a kernel of what no other template takes, or a view, which is no kernel."""

from __future__ import annotations

from .operator_set import OperatorSet
from .template import Template


def _is_one(operators: OperatorSet) -> str | None:
    return None if len(operators.members) == 1 else "there are several operators"


OPERATOR = Template("operator", _is_one)
