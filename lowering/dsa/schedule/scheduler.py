"""The graph scheduler: ``OperatorGraph, layers, device -> Schedule`` (GraphTurbo, OSDI 2023, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ....costmodels.dsa_device import DsaDevice
from ....ir.graph import OperatorGraph
from ...base.choices import OrderName, UpSampling
from ...base.errors import DsaError
from ..network.batches import with_batch
from ..network.core_factors import Binding
from ..network.graph import Network
from ..network.subgraphs import Layer
from .best_order import best_order, footprint_order
from .binding import Bindings, infer_bindings
from .grouping import Group, group, ungrouped
from .instances import InstanceGraph, Part, instance_graph
from .orders import Order, better_order, bfs_order, dfs_order

_ORDERS: Mapping[OrderName, Callable[[InstanceGraph], Order]] = {
    "better": better_order,
    "bfs": bfs_order,
    "dfs": dfs_order,
    "footprint": footprint_order,
    "best": lambda graph: best_order(graph)[0],
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
        return self.bindings.binding[Part(instance, self.group(instance).subgraph.primary)]


def schedule(
    graph: OperatorGraph,
    layers: Sequence[Layer],
    device: DsaDevice,
    *,
    batch: int | None = None,
    element_size: int = 2,
    order: OrderName = "better",
    up_sampling: UpSampling = "detect",
    instances: bool = True,
) -> Schedule:
    """Schedule `batch` samples (as many as `graph` has if None) on one cluster; floats take `element_size` bytes.

    `layers` are the operators that are fused into one loop nest each; without `instances` they run one after another,
    each on the whole batch. Raises DsaError: shapes that are not static, a batch that does not fit the graph, tensors
    that fit nowhere.
    """
    network = Network(graph if batch is None else with_batch(graph, batch), element_size)
    share = device.ddr_capacity // device.clusters
    for index, value in enumerate(network.graph.values):
        size = network.bytes(index)
        if size > share:
            raise DsaError(f"tensor {value.name!r}: its {size} bytes do not fit the {share} bytes of DDR of a cluster")
    if instances:
        graph_of_instances = instance_graph(network, group(network, layers, device, up_sampling=up_sampling))
        instance_order = _ORDERS[order](graph_of_instances)
    else:
        graph_of_instances = instance_graph(network, ungrouped(network, layers))
        instance_order = tuple(range(len(graph_of_instances)))
    bindings = infer_bindings(graph_of_instances, instance_order, device.cores)
    return Schedule(device, graph_of_instances, instance_order, bindings)
