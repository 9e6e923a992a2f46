"""The graph scheduler: ``OperatorGraph, layers, device -> Schedule`` (GraphTurbo, OSDI 2023, section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ...costmodels.dsa_device import DsaDevice
from ...extract.partition.graph import OperatorGraph
from .batches import with_batch
from .best_order import best_of_all_order, footprint_order
from .binding import Bindings, infer_bindings
from .core_factors import Binding, core_count
from .errors import DsaError
from .grouping import Group, group, ungrouped
from .instances import InstanceGraph, instance_graph
from .movement import Movement, movements
from .network import Network
from .ordering import Order, better_order, bfs_order, dfs_order
from .scopes import Scope
from .subgraphs import Layer

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

    @cached_property
    def inputs(self) -> Mapping[int, Scope]:
        """The scope of each input of the network."""
        return _input_scopes(self.graph, self.device)

    @cached_property
    def movements(self) -> tuple[tuple[Movement, ...], ...]:
        """What is done before each instance runs (section 3.5)."""
        return movements(self.graph, self.bindings, self.inputs, self.device.cores)

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

    @cached_property
    def scope_counts(self) -> Mapping[Scope, int]:
        """How many values that layers hand on are at each level, as the text's Table 3 counts them.

        Intermediate tensors are where their sub-graph fits; an output is at the slowest level of its parts.
        """
        levels: dict[int, Scope] = {}
        for item in self.graph.groups:
            levels |= dict.fromkeys(item.subgraph.intermediates, item.split.level)
        for (_, value), scope in self.bindings.scope.items():
            levels[value] = max(scope, levels.get(value, Scope.LB))
        return {scope: Counter(levels.values())[scope] for scope in Scope}


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


def _input_scopes(graph: InstanceGraph, device: DsaDevice) -> dict[int, Scope]:
    """Inputs of the network have been loaded to the global buffer (section 2.1), as long as they leave half of it."""
    network = graph.network
    values = sorted({v for item in graph.groups for v in item.subgraph.inputs})
    inputs = [v for v in values if network.graph.values[v].producer is None]
    fits = 2 * sum(map(network.bytes, inputs)) <= device.global_buffer
    return dict.fromkeys(inputs, Scope.GB if fits else Scope.DDR)
