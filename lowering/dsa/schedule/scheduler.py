"""The graph scheduler: ``OperatorGraph, layers, device -> Schedule`` (GraphTurbo, OSDI 2023, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd, prod

from ....costmodels.dsa_device import DsaDevice
from ....ir.graph import OperatorGraph
from ...base.choices import OrderName, UpSampling
from ...base.errors import DsaError
from ..network.batches import with_batch
from ..network.boxes import shape_of
from ..network.core_factors import Binding, core_count, plain_binding
from ..network.excerpts import Excerpt
from ..network.graph import Network
from ..network.operand_boxes import whole_axes
from ..network.subgraphs import Layer, moved_axis
from ..program.instructions import Level
from .best_order import best_order, footprint_order
from .grouping import Group, group, ungrouped
from .instances import InstanceGraph, Part, instance_graph
from .orders import Order, better_order, bfs_order, dfs_order
from .pieces import probes

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


@dataclass(frozen=True)
class Grouping:
    """The sub-graphs of a network, each split so that its instances fit a buffer of a device; there are no instances
    yet, which may be too many to be worth making. `is_split` if there are to be any but one of each layer."""

    device: DsaDevice
    network: Network
    groups: tuple[Group, ...]
    is_split: bool

    @property
    def instances(self) -> int:
        """How many there will be."""
        return sum(prod(group.split.factors) for group in self.groups)

    def _stage(self, group: int) -> int:
        return self.network.stage(self.groups[group].subgraph.members[0])

    def schedule(self, order: OrderName) -> Schedule:
        """The instances in an order, bound to cores."""
        graph = instance_graph(self.network, self.groups)
        found = _ORDERS[order](graph) if self.is_split else tuple(range(len(graph)))
        found = tuple(sorted(found, key=lambda instance: self._stage(graph.instances[instance].subgraph)))
        return Schedule(self.device, graph, found, infer_bindings(graph, found, self.device.cores))


def grouped(
    graph: OperatorGraph,
    layers: Sequence[Layer],
    device: DsaDevice,
    *,
    batch: int | None = None,
    batch_axis: int = 0,
    element_size: int = 2,
    up_sampling: UpSampling = "detect",
    instances: bool = True,
    excerpt: Excerpt | None = None,
) -> Grouping:
    """Group `batch` samples (as many as `graph` has if None) for one cluster; floats take `element_size` bytes.

    Inputs have their samples along `batch_axis`. With an `excerpt` it is a part of another network.

    `layers` are the operators that are fused into one loop nest each; without `instances` they run one after another,
    each on the whole batch. Raises DsaError: shapes that are not static, a batch that does not fit the graph, tensors
    that fit nowhere.
    """
    network = Network(graph if batch is None else with_batch(graph, batch, batch_axis), element_size, excerpt)
    share = device.ddr_capacity // device.clusters
    for index, value in enumerate(network.graph.values):
        size = network.bytes(index)
        if size > share:
            raise DsaError(f"tensor {value.name!r}: its {size} bytes do not fit the {share} bytes of DDR of a cluster")
    groups = group(network, layers, device, up_sampling=up_sampling) if instances else ungrouped(network, layers)
    return Grouping(device, network, tuple(groups), instances)


# Core binding and buffer scopes: Algorithm 4 of GraphTurbo (OSDI 2023, section 3.4).
#
# How the text is read if it leaves a choice:
#
# - An instance whose binding was inferred looks at its producers too, once its binding is final. As printed, only those
#   bound plainly do, and no other mismatch would be seen.
# - An inferred binding is kept if it uses as many cores as the plain one: to prefer the plain one for nothing would add
#   a communication.
# - A factor that does not divide the extent of a producer's part is lowered to one that does.
# - Algorithm 4 does not look at two things: results of the network are in DDR, and tensors of a sub-graph that fits no
#   faster level are at that level, whether it makes or reads them.

@dataclass(frozen=True)
class Bindings:
    """Per part that instances make, the factors of its cores along its axes, and the level at which it is declared."""

    binding: Mapping[Part, Binding]
    scope: Mapping[Part, Level]


def infer_bindings(graph: InstanceGraph, order: Sequence[int], cores: int) -> Bindings:
    """Algorithm 4: instances are visited in the reverse order, so that consumers say how they want their inputs."""
    inference = _Inference(graph, cores)
    for index in reversed(order):
        inference.visit(index)
    return Bindings(inference.binding, inference.scope)


class _Inference:
    def __init__(self, graph: InstanceGraph, cores: int) -> None:
        self.graph, self.network, self.cores = graph, graph.network, cores
        self.axis_maps, self.whole_axes = cache(self._axis_maps), cache(self._whole_axes)
        self.binding: dict[Part, Binding] = {}
        self.scope = {
            Part(index, value): self._first_scope(index, value)
            for index, instance in enumerate(graph.instances)
            for value in instance.written
        }

    def _first_scope(self, index: int, value: int) -> Level:
        """LB (line 2), unless the tensor cannot be there."""
        if self.network.graph.values[value].is_output:
            return Level.DDR
        users = (index, *self.graph.readers.get(Part(index, value), ()))
        return max(self.graph.groups[self.graph.instances[user].subgraph].split.level for user in users)

    def visit(self, index: int) -> None:
        """Lines 4 to 16."""
        instance = self.graph.instances[index]
        subgraph = self.graph.groups[instance.subgraph].subgraph
        primary = Part(index, subgraph.primary)
        own = self.binding[primary] = self._choose(primary)
        for value in instance.written:
            if value != subgraph.primary:
                part = Part(index, value)
                self._want(part, self._infer(instance.subgraph, own, part))
                self.binding.setdefault(part, (1,) * len(instance.written[value]))
        for transfer in self.graph.transfers[index]:
            part = transfer.part
            self._want(part, self._infer(instance.subgraph, own, part))

    def _choose(self, part: Part) -> Binding:
        """The binding that readers want if it uses as many cores as the plain one, and the tensor stays in LB."""
        shape = shape_of(self.graph.instances[part.instance].written[part.value])
        plain = plain_binding(shape, self.cores, self.whole_axes(part.value))
        inferred = self.binding.get(part, ())
        if not inferred or self.scope[part] is not Level.LB:
            return plain
        return inferred if core_count(inferred) >= core_count(plain) else plain

    def _whole_axes(self, value: int) -> frozenset[int]:
        """Axes of a value that are not bound to cores."""
        producer, rank = self.network.graph.values[value].producer, len(self.network.shapes[value])
        return frozenset() if producer is None else whole_axes(self.network.graph.operators[producer], rank)

    def _infer(self, subgraph: int, binding: Binding, part: Part) -> Binding:
        """The binding of a tensor that goes with a binding of the primary output of `subgraph`.

        () if nothing can be inferred, or what can is not valid: it binds an axis that is kept whole.
        """
        extents = shape_of(self.graph.instances[part.instance].written[part.value])
        factors = [1] * len(extents)
        for axis, target in self.axis_maps(subgraph).get(part.value, {}).items():
            if axis < len(binding):
                factors[target] = gcd(binding[axis], extents[target])
        is_valid = all(factors[axis] == 1 for axis in self.whole_axes(part.value))
        return tuple(factors) if is_valid and core_count(factors) > 1 else ()

    def _axis_maps(self, subgraph: int) -> dict[int, dict[int, int]]:
        """For each stored value of a sub-graph, which of its axes moves with an axis of the primary output.

        This is match_dim of Algorithm 1.
        """
        group = self.graph.groups[subgraph].subgraph
        maps: dict[int, dict[int, int]] = {value: {} for value in group.stored}
        for axis, extent in enumerate(self.network.shapes[group.primary]):
            boxes = tuple(probes(self.network, group, axis)) if extent > 1 else ()
            for value in group.stored if boxes else ():
                moved = moved_axis(self.network, value, boxes)
                if moved is not None:
                    maps[value][axis] = moved
        return maps

    def _want(self, part: Part, inferred: Binding) -> None:
        """Lines 6 to 14: a reader would like this binding."""
        if inferred and self.binding.setdefault(part, inferred) != inferred:
            self.scope[part] = max(self.scope[part], Level.GB)
