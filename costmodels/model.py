"""Cost models: the cost of one node of the e-graph.

The cost of a graph is the sum of the costs of its nodes, each counted once. Every cost is finite and at least 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from ..ir.operation import Operation
from .device import Device
from .flops import flops
from .roofline import seconds
from .traffic import traffic

LEAVES = frozenset(("Var", "Weight", "Full", "Absent", "Out", "Constant"))
"""Nodes that run nothing."""

NODE_FLOPS = 1.0
BYTE_FLOPS = 2.0**-20
"""FlopsCost's tie-break: FLOPs for a node and for a byte moved, far fewer than those of any tensor operator."""

_FOLDED_FLOPS = 2.0**-20
"""FLOPs of an operator of constants: above 0, so that the graph with fewer of them wins."""
FOLDED_SECONDS = 1e-12
"""Seconds of an operator of constants, for the same reason."""


class CostModel(Protocol):
    """A model that predicts the cost of an operator."""

    @property
    def name(self) -> str:
        """The name by which users choose it."""

    @property
    def unit(self) -> str:
        """The unit of costs."""

    def cost(self, operation: Operation) -> float:
        """The cost of running an operator once. An operator of any name has a cost.

        An operator all of whose operands are constant is folded before any run. It costs next to nothing, but not 0, so
        that fewer such nodes stay better.

        A Concat whose operands are Concats of the same axis (or a Max of Maxs, ...) flags them in the attribute
        ``continued``, e.g. (1, 0): such a chain of binary Concats costs as much as one Concat of all its operands.
        """


@dataclass(frozen=True)
class FlopsCost:
    """DNNFusion's metric. Of two graphs with equal FLOPs, the one with fewer nodes and then fewer bytes moved wins."""

    name: str = "flops"
    unit: str = "FLOP"

    def cost(self, operation: Operation) -> float:
        """FLOPs, plus `NODE_FLOPS` per node and `BYTE_FLOPS` per byte."""
        if operation.op in LEAVES:
            return 0.0
        if operation.is_folded:
            return _FOLDED_FLOPS
        node = NODE_FLOPS if operation.starts_kernel else 0.0
        return flops(operation) + node + traffic(operation).total * BYTE_FLOPS


@dataclass(frozen=True)
class RooflineCost:
    """Seconds on one core of `device`."""

    device: Device
    name: str = "roofline"
    unit: str = "s"

    def cost(self, operation: Operation) -> float:
        """The roofline's time, launch included."""
        if operation.op in LEAVES:
            return 0.0
        return FOLDED_SECONDS if operation.is_folded else seconds(operation, self.device)


def cost_model(name: Literal["flops", "roofline"], device: Device) -> CostModel:
    """The cost model of that name; FLOPs are the same on every device."""
    return FlopsCost() if name == "flops" else RooflineCost(device)
