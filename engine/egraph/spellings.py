"""Spellings of operators that an opset lacks, in forms that runtimes fuse into one kernel.

ONNX has Gelu from opset 20. ONNX Runtime fuses the two forms below, which the exporters of PyTorch write, at any opset;
it does not recognise a form that saves a node by putting the factor 1/2 into the next weights, and runs four kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OPERAND = "x"


@dataclass(frozen=True)
class Line:
    """One node: its inputs are the operand, earlier lines by number, or constants of one element."""

    op_type: str
    inputs: tuple[str | int | float, ...]


_ERF = (
    Line("Div", (OPERAND, 1.4142135623730951)),
    Line("Erf", (0,)),
    Line("Add", (1, 1.0)),
    Line("Mul", (OPERAND, 2)),
    Line("Mul", (3, 0.5)),
)
_TANH = (
    Line("Mul", (OPERAND, 0.5)),
    Line("Pow", (OPERAND, 3.0)),
    Line("Mul", (1, 0.044715)),
    Line("Add", (OPERAND, 2)),
    Line("Mul", (3, 0.7978845608028654)),
    Line("Tanh", (4,)),
    Line("Add", (5, 1.0)),
    Line("Mul", (0, 6)),
)
_SPELLINGS: Mapping[tuple[str, object], tuple[Line, ...]] = {("Gelu", "none"): _ERF, ("Gelu", "tanh"): _TANH}
_SINCE = {"Gelu": 20}
_LEAST = 9
"""The first opset with all operators of the forms."""


def spell_out(op: str, literals: Mapping[str, object], opset: int) -> tuple[Line, ...]:
    """The nodes for an operator that `opset` lacks; none if it has the operator, or if there is no such form."""
    if op not in _SINCE or not _LEAST <= opset < _SINCE[op]:
        return ()
    return _SPELLINGS.get((op, literals["approximate"]), ())
