"""The price of an operator that will be fused with its neighbours: what it adds to the kernel around it.

A sum of such prices comes nearer to the price of a partitioned graph than a sum of kernels does, and is still a price
per node, so that extraction can minimise it. `observed` puts in the place of the estimate what operators really cost
in the kernels of a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir.operation import Operation
from .device import Device
from .model import FOLDED_SECONDS, LEAVES
from .roofline import compute_seconds, copy_seconds, seconds
from .traffic import VIEWS

_REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
_PLAIN_ANCHORS = """
MatMul Gemm Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool Softmax LogSoftmax Hardmax CumSum
LayerNormalization RMSNormalization InstanceNormalization GroupNormalization LRN
"""
ANCHORS = frozenset(_PLAIN_ANCHORS.split()) | {f"Reduce{kind}" for kind in _REDUCTIONS}
"""Anchor ops: each output element needs many elements, so that what they read is kept, in memory or for a tile."""

_VIEW_SECONDS = 1e-9
CostKey = tuple[Any, ...]


def cost_key(operation: Operation) -> CostKey:
    """Operators of equal key cost the same by themselves; `operation` comes from `Operation.of`."""
    return operation.op, tuple(sorted(operation.attributes.items())), operation.types, operation.output_type


@dataclass(frozen=True)
class FusedCost:
    """Seconds that an operator adds to a kernel of `device`.

    An anchor op starts a kernel and costs what it costs alone; any other is computed on the way: its arithmetic, and
    the bytes of what it reads besides the value that flows through. `observed` are seconds by `cost_key`.
    """

    device: Device
    observed: Mapping[CostKey, float] = field(default_factory=dict)
    name: str = "fused"
    unit: str = "s"

    def price(self, operation: Operation) -> float:
        """As observed where it was; else as estimated."""
        if operation.op in LEAVES:
            return 0.0
        if operation.is_folded:
            return FOLDED_SECONDS
        seen = self.observed.get(cost_key(operation)) if self.observed else None
        return self._estimate(operation) if seen is None else seen

    def _estimate(self, operation: Operation) -> float:
        if operation.op in VIEWS:
            return _VIEW_SECONDS
        if operation.op in ANCHORS:
            return seconds(operation, self.device)
        sizes = sorted(operand.bytes for operand in operation.operands)
        beside = sum(sizes[:-1])
        moved = beside / self.device.bandwidth(beside) if beside else 0.0
        return max(compute_seconds(operation, self.device), moved) + copy_seconds(operation, self.device)


@dataclass(frozen=True)
class ArithmeticCost:
    """Seconds that no fusion takes away from an operator: its arithmetic, and what copies cost beyond their bytes.

    A sum of these is below the price of any partition: the bound of the joint search.
    """

    device: Device
    name: str = "arithmetic"
    unit: str = "s"

    def price(self, operation: Operation) -> float:
        """Arithmetic and copying alone."""
        if operation.op in LEAVES:
            return 0.0
        if operation.is_folded:
            return 0.0
        return compute_seconds(operation, self.device) + copy_seconds(operation, self.device)
