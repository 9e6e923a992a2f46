"""The cost model that keeps instances from computing too much twice (section 3.1).

Where the windows of convolutions overlap, or an intermediate tensor is not split with the output, instances compute
the same elements. That is worth it as long as it takes less time than it saves: what layers inside a sub-graph hand on
does not leave the local buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....costmodels.dsa_device import DsaDevice
from ..network.boxes import Box, size
from ..network.graph import Network
from ..network.subgraphs import SubGraph


@dataclass(frozen=True)
class Recomputation:
    """Seconds spent on computing elements again, and seconds that fusing saves, both of one cluster."""

    spent: float
    saved: float

    @property
    def is_excessive(self) -> bool:
        """Whether it offsets the benefit of fusion."""
        return self.spent > self.saved


def recomputation(
    network: Network, subgraph: SubGraph, device: DsaDevice, instance: Mapping[int, Box], count: int
) -> Recomputation:
    """What `count` instances, each of which needs the parts `instance`, compute more than once, against what they save.

    Saved is one write and one read of each intermediate tensor in the global buffer, or in DDR where it does not fit.
    """
    again = 0.0
    for index in subgraph.members:
        for result in network.graph.operators[index].outputs[:1]:
            share = size(instance.get(result)) / max(1, size(tuple((0, n) for n in network.shapes[result])))
            again += network.flops[index] * max(0.0, share * count - 1.0)
    saved = 0.0
    for value in subgraph.intermediates:
        amount = network.bytes(value)
        fits = amount <= device.global_buffer
        bandwidth = device.global_bandwidth if fits else device.ddr_bandwidth / device.clusters
        saved += 2 * amount / bandwidth
    return Recomputation(again / (2.0 * device.peak_macs), saved)
