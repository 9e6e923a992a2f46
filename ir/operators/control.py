"""Operators that choose which of their operands are computed."""

from __future__ import annotations

from ..index_maps import broadcast_maps
from .arithmetic import Arithmetic, Array, Unsupported
from .schema import Family, per_output


def _if(arithmetic: Arithmetic, condition: Array, then: Array, otherwise: Array) -> Array:
    if condition.shape != ():
        raise Unsupported("a condition of several elements")
    if then.shape != otherwise.shape:
        if condition.dtype.kind != "b":
            raise Unsupported("branches of several shapes")
        return then if condition else otherwise
    return arithmetic.apply("where", condition, then, otherwise)


OPERATORS = (Family("control", broadcast_maps, per_output(2))("If", "cond then_branch else_branch", _if),)
