"""The price of an operator that will be fused with its neighbours: the seconds that it adds to their kernel.

A sum of such prices is nearer to the price of a partitioned graph than a sum of kernels is, and extraction can minimise
it, since it is still a price per node. `observed` costs of operators in the kernels of a partition replace estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir.operation import Operation
from ..ir.operators import OPERATORS, RECURRENT
from .device import Device
from .model import FOLDED_SECONDS, LEAVES
from .roofline import compute_seconds, copy_seconds, is_depthwise, seconds
from .traffic import VIEWS

_REDUCING = ("linear", "pooling", "normalization", "reduction", "recurrent")
ANCHORS = frozenset(o.name for o in OPERATORS.values() if o.category in _REDUCING) - {"BatchNormalization"} | {"LRN"}
"""Anchor ops: each output element needs many elements, so that their operands stay in memory or in a tile."""

_VIEW_SECONDS = 1e-9
_DEPTHWISE = 1.5
"""How many times as fast as the runtime's the depthwise convolutions of compiled kernels are: they reach 0.45 of the
peak, measured on the device ``host``, where kernels.toml has 0.30."""
_PRODUCTS = 0.8
"""The share of the peak that products of recurrent networks reach."""
_GATE_CYCLES = 16.0
"""Cycles of the activation of a vector of gates."""
CostKey = tuple[Any, ...]


def cost_key(operation: Operation) -> CostKey:
    """Operators of equal key cost the same by themselves; `operation` comes from `Operation.of`."""
    return operation.op, tuple(sorted(operation.attributes.items())), operation.types, operation.output_type


def scheduled_seconds(operation: Operation, device: Device) -> float:
    """Time of the arithmetic alone in a compiled kernel."""
    if operation.op in RECURRENT:
        return _recurrent_seconds(operation, device)
    return compute_seconds(operation, device) / (_DEPTHWISE if is_depthwise(operation) else 1.0)


def _recurrent_seconds(operation: Operation, device: Device) -> float:
    """Products with the inputs of all steps at once; then each step multiplies the state, reading all recurrent weights
    from where they fit, and computes the gates."""
    x, w, r = (operation.operand(n) for n in range(3))
    if len(x.dimensions) != 3 or len(r.dimensions) != 3:
        return compute_seconds(operation, device)
    steps, batch = x.dimensions[:2]
    products, weights = device.peak_flops * _PRODUCTS, r.bytes // max(1, r.dimensions[0])
    step = max(2.0 * batch * r.elements / products, r.bytes / device.bandwidth(weights))
    gates = batch * r.dimensions[0] * r.dimensions[1] / device.lanes * _GATE_CYCLES / device.clock
    return 2.0 * steps * batch * w.elements / products + steps * (step + gates)


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

    def price(self, operation: Operation) -> float:
        """The observed seconds, or else an estimate."""
        if operation.op in LEAVES:
            return 0.0
        if operation.is_folded:
            return FOLDED_SECONDS
        observed = self.observed.get(cost_key(operation)) if self.observed else None
        return self._estimate(operation) if observed is None else observed

    def _estimate(self, operation: Operation) -> float:
        if operation.op in VIEWS:
            return _VIEW_SECONDS
        if operation.op in ANCHORS:
            return seconds(operation, self.device)
        sizes = sorted(operand.bytes for operand in operation.operands)
        beside = sum(sizes[:-1])
        moved = beside / self.device.bandwidth(beside) if beside else 0.0
        return max(scheduled_seconds(operation, self.device), moved) + copy_seconds(operation, self.device)


@dataclass(frozen=True)
class ArithmeticCost:
    """Seconds that no fusion saves: an operator's arithmetic, and the cost of copies beyond their bytes.

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
        return scheduled_seconds(operation, self.device) + copy_seconds(operation, self.device)
