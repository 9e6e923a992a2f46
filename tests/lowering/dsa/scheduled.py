"""A network scheduled in one call: its sub-graphs, and their instances in an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqfuse.costmodels.dsa_device import DsaDevice
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.choices import OrderName
from eqfuse.lowering.dsa.network.subgraphs import Layer
from eqfuse.lowering.dsa.schedule.scheduler import Schedule, grouped


def schedule(
    graph: OperatorGraph, layers: Sequence[Layer], device: DsaDevice, *, order: OrderName = "better", **options: Any
) -> Schedule:
    """The instances of `grouped`, with its options, in an order."""
    return grouped(graph, layers, device, **options).schedule(order)
