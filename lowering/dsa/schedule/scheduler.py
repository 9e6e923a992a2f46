"""The graph scheduler: ``OperatorGraph, layers, device -> Schedule`` (GraphTurbo, OSDI 2023, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ....costmodels.dsa_device import DsaDevice
from ....ir.graph import OperatorGraph
from ..errors import DsaError
from ..network.batches import with_batch
from ..network.core_factors import Binding, core_count
from ..network.graph import Network
from ..network.subgraphs import Layer
from .best_order import best_of_all_order, footprint_order
from .binding import Bindings, infer_bindings
from .grouping import Group, group, ungrouped
from .instances import InstanceGraph, instance_graph
from .orders import Order, better_order, bfs_order, dfs_order

OrderName = Literal["better", "bfs", "dfs", "footprint", "best"]
_ORDERS: Mapping[OrderName, Callable[[InstanceGraph], Order]] = {
    "better": better_order,
    "bfs": bfs_order,
    "dfs": dfs_order,
    "footprint": footprint_order,
    "best": best_of_all_order,
}


@dataclass(frozen=True)
class Schedule:
    """What one cluster runs for its part of a batch, instance after instance, each on all its cores.

    Everything but `order` is indexed by instance. `bindings` holds, per (instance, value it makes), the cores along
    each axis and the scope.
    """

    device: DsaDevice
    graph: InstanceGraph
    order: Order
    bindings: Bindings

    @property
    def network(self) -> Network:
        """The operators, and their sizes on the accelerator."""
        return self.graph.network

    def group(self, instance: int) -> Group:
        """The sub-graph that an instance is one of."""
        return self.graph.groups[self.graph.instances[instance].subgraph]

    def binding(self, instance: int) -> Binding:
        """Over how many cores an instance's primary output is divided, along each axis."""
        return self.bindings.binding[instance, self.group(instance).subgraph.primary]

    def cores(self, instance: int) -> int:
        """How many cores an instance runs on."""
        return core_count(self.binding(instance))



def schedule(
    graph: OperatorGraph,
    layers: Sequence[Layer],
    device: DsaDevice,
    *,
    batch: int | None = None,
    element_size: int = 2,
    order: OrderName = "better",
    up_sampling: bool = False,
    instances: bool = True,
) -> Schedule:
    """Schedule `batch` samples (as many as `graph` has where None) on one cluster; floats take `element_size` bytes.

    `layers` are the operators that are fused into one loop nest each; without `instances` they run one after another,
    each on the whole batch. Raises DsaError: shapes that are not static, a batch that does not fit the graph, tensors
    that fit nowhere.
    """
    network = Network(graph if batch is None else with_batch(graph, batch), element_size)
    _check_capacity(network, device)
    if instances:
        made = instance_graph(network, group(network, layers, device, up_sampling=up_sampling))
        found = _ORDERS[order](made)
    else:
        made = instance_graph(network, ungrouped(network, layers))
        found = tuple(range(len(made)))
    bindings = infer_bindings(made, found, device.cores)
    return Schedule(device, made, found, bindings)


def _check_capacity(network: Network, device: DsaDevice) -> None:
    """Every tensor fits one cluster's share of DDR."""
    share = device.ddr_capacity // device.clusters
    for index, value in enumerate(network.graph.values):
        size = network.bytes(index)
        if size > share:
            raise DsaError(f"tensor {value.name!r}: its {size} bytes do not fit the {share} bytes of DDR of a cluster")
