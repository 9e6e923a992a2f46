"""Floating-point operations of one operator: the metric of DNNFusion (PLDI 2021, section 4.2 and table 4).

A multiplication, an addition and a transcendental function each count 1; moving data counts 0; a reduction counts
its input. Operators that stand for a formula count as much as the formula written out (LayerNormalization 7 per
element, Gelu 5), so that naming an idiom neither gains nor loses FLOPs. The operator table has the counts.
"""

from __future__ import annotations

from ..ir.operation import Operation
from ..ir.operators import SCHEMAS


def flops(operation: Operation) -> float:
    """Floating-point operations of one run of `operation`, finite and at least 0.

    An operator without its own count in the table has 1 per element of its operands and output.
    """
    schema = SCHEMAS.get(operation.op)
    if schema is not None and schema.flops is not None:
        return float(schema.flops(operation))
    return float(operation.output.elements + sum([o.elements for o in operation.operands]))
