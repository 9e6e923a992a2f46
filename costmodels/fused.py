"""The cost of an operator that will be fused with its neighbours: the seconds that it adds to their kernel.

A sum of such costs is nearer to the cost of a partitioned graph than a sum of kernels is, and extraction can minimise
it, since it is still a cost per node. `observed` costs of operators in the kernels of a partition replace estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir.operation import Operation
from ..ir.operators import OPERATORS
from .device import Device
from .model import FOLDED_SECONDS, LEAVES
from .scheduled import VIEW_SECONDS, border_seconds, copies_border, run_seconds, scheduled_seconds
from .traffic import UNMOVED, traffic

_REDUCING = ("linear", "pooling", "normalization", "reduction", "recurrent")
ANCHORS = frozenset(o.name for o in OPERATORS.values() if o.category in _REDUCING) - {"BatchNormalization"} | {"LRN"}
"""Anchor ops: each output element needs many elements, so their operands stay in memory or in a tile."""
_IN_PLACE = frozenset({"Concat", "Split", "Slice"})
"""Operators that move nothing if kernels write or read their parts in place."""

CostKey = tuple[Any, ...]


def cost_key(operation: Operation) -> CostKey:
    """Operators of equal key cost the same by themselves; `operation` comes from `Operation.of`."""
    return operation.op, tuple(sorted(operation.attributes.items())), operation.types, operation.output_type


@dataclass(frozen=True)
class FusedCost:
    """Seconds that an operator adds to a kernel of `device`.

    An anchor op starts a kernel and costs as much as alone. Any other operator costs its arithmetic, and the bytes of
    its operands except the largest, which flows through the kernel. `observed` are seconds by `cost_key`.
    """

    device: Device
    observed: Mapping[CostKey, float] = field(default_factory=dict)
    name: str = "fused"
    unit: str = "s"

    def cost(self, operation: Operation) -> float:
        """The observed seconds, or else an estimate."""
        if operation.op in LEAVES:
            return 0.0
        if operation.is_folded:
            return FOLDED_SECONDS
        observed = self.observed.get(cost_key(operation)) if self.observed else None
        return self._estimate(operation) if observed is None else observed

    def _estimate(self, operation: Operation) -> float:
        if operation.op in UNMOVED:
            return VIEW_SECONDS
        if operation.op in ANCHORS:
            size = traffic(operation).total
            busy = max(scheduled_seconds(operation, self.device), size / self.device.bandwidth(size))
            busy += border_seconds(operation, self.device) if copies_border(operation) else 0.0
            return busy + run_seconds(operation, self.device) + self.device.call_seconds
        sizes = sorted(operand.bytes for operand in operation.operands)
        beside = sum(sizes[:-1])
        moved = beside / self.device.bandwidth(beside) if beside else 0.0
        return max(scheduled_seconds(operation, self.device), moved) + run_seconds(operation, self.device)


@dataclass(frozen=True)
class ArithmeticCost:
    """Seconds that no fusion saves: an operator's arithmetic, and the cost of copies beyond their bytes.

    A sum of these is below the cost of any partition: the bound of the joint search.
    """

    device: Device
    name: str = "arithmetic"
    unit: str = "s"

    def cost(self, operation: Operation) -> float:
        """Arithmetic and copying alone; nothing for operators that may be done in place."""
        if operation.op in LEAVES or operation.op in _IN_PLACE or operation.is_folded:
            return 0.0
        return scheduled_seconds(operation, self.device) + run_seconds(operation, self.device)
