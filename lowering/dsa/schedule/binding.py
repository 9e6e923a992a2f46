"""Core binding and buffer scopes: Algorithm 4 of GraphTurbo (OSDI 2023, section 3.4).

How the text is read where it leaves a choice:

- An instance whose binding was inferred looks at its producers too, once its binding is final. As printed, only those
  bound plainly do, and no other mismatch would be seen.
- An inferred binding is kept if it uses as many cores as the plain one: to prefer the plain one for nothing would add
  a communication.
- A factor that does not divide the extent of a producer's part is lowered to one that does.
- What Algorithm 4 does not look at: results of the network are in DDR, and tensors of a sub-graph that fits no faster
  level are at that level, whether it makes or reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from ..network.boxes import Box, Shape, shape_of
from ..network.core_factors import Binding, core_count, plain_binding
from ..network.operand_boxes import whole_axes
from ..network.subgraphs import moved_axis
from ..program.instructions import Level
from .instances import InstanceGraph
from .pieces import probes

Tensor = tuple[int, int]
"""An instance and a value of which it makes a part."""


@dataclass(frozen=True)
class Bindings:
    """Per tensor between instances, the factors of its cores along its axes, and where it is declared."""

    binding: Mapping[Tensor, Binding]
    scope: Mapping[Tensor, Level]


def infer_bindings(graph: InstanceGraph, order: Sequence[int], cores: int) -> Bindings:
    """Algorithm 4: instances are visited in the reverse order, so that consumers say how they want their inputs."""
    inference = _Inference(AxisMaps(graph), cores)
    for index in reversed(order):
        inference.visit(index)
    return Bindings(inference.binding, inference.scope)


@dataclass(frozen=True)
class AxisMaps:
    """Which axes of values go with which axes of the primary output of a sub-graph (match_dim of Algorithm 1)."""

    graph: InstanceGraph

    @cached_property
    def _maps(self) -> dict[int, dict[int, dict[int, int]]]:
        return {}

    def of(self, subgraph: int, value: int) -> Mapping[int, int]:
        """Axes of the primary output to the axes of `value` that move with them."""
        if subgraph not in self._maps:
            self._maps[subgraph] = self._computed(subgraph)
        return self._maps[subgraph].get(value, {})

    def _computed(self, subgraph: int) -> dict[int, dict[int, int]]:
        network, group = self.graph.network, self.graph.groups[subgraph].subgraph
        found: dict[int, dict[int, int]] = {value: {} for value in group.stored}
        for axis, extent in enumerate(network.shapes[group.primary]):
            boxes = tuple(probes(network, group, axis)) if extent > 1 else ()
            for value in group.stored if boxes else ():
                moved = moved_axis(network, value, boxes)
                if moved is not None:
                    found[value][axis] = moved
        return found

    def kept(self, value: int) -> frozenset[int]:
        """Axes of a value that are not bound to cores."""
        source = self.graph.network.graph.values[value].producer
        rank = len(self.graph.network.shapes[value])
        return frozenset() if source is None else whole_axes(self.graph.network.graph.operators[source], rank)

    def inferred(self, subgraph: int, binding: Binding, value: int, box: Box) -> Binding:
        """The binding of a part of `value` that goes with a binding of the primary output of `subgraph`.

        () where nothing can be inferred, or what can is not valid: it binds an axis that is kept whole.
        """
        extents, axes = shape_of(box), self.of(subgraph, value)
        found = [1] * len(extents)
        for axis, target in axes.items():
            if axis < len(binding):
                found[target] = gcd(binding[axis], extents[target])
        is_valid = all(found[axis] == 1 for axis in self.kept(value))
        return tuple(found) if is_valid and core_count(found) > 1 else ()


class _Inference:
    def __init__(self, axes: AxisMaps, cores: int) -> None:
        self.axes, self.graph, self.cores = axes, axes.graph, cores
        self.binding: dict[Tensor, Binding] = {}
        self.scope = {tensor: self._first_scope(*tensor) for tensor in self._tensors()}

    def _tensors(self) -> Iterator[Tensor]:
        for index, instance in enumerate(self.graph.instances):
            for value in instance.written:
                yield index, value

    def _first_scope(self, index: int, value: int) -> Level:
        """LB (line 2), unless the tensor cannot be there."""
        users = [self.graph.instances[user].subgraph for user in self.graph.readers.get((index, value), ())]
        groups = [self.graph.instances[index].subgraph, *users]
        is_result = self.graph.network.graph.values[value].is_output
        return Level.DDR if is_result else max(self.graph.groups[g].split.level for g in groups)

    def visit(self, index: int) -> None:
        """Lines 4 to 16."""
        instance = self.graph.instances[index]
        primary = self.graph.groups[instance.subgraph].subgraph.primary
        own = self._own((index, primary), shape_of(instance.written[primary]))
        self.binding[index, primary] = own
        for value in instance.written:
            if value != primary:
                self._want((index, value), self._inferred(instance.subgraph, own, (index, value)))
                self.binding.setdefault((index, value), (1,) * len(instance.written[value]))
        for transfer in self.graph.transfers[index]:
            tensor = transfer.producer, transfer.value
            self._want(tensor, self._inferred(instance.subgraph, own, tensor))

    def _own(self, tensor: Tensor, shape: Shape) -> Binding:
        plain = plain_binding(shape, self.cores, self.axes.kept(tensor[1]))
        inferred = self.binding.get(tensor, ())
        if not inferred or self.scope[tensor] is not Level.LB:
            return plain
        return inferred if core_count(inferred) >= core_count(plain) else plain

    def _inferred(self, subgraph: int, binding: Binding, tensor: Tensor) -> Binding:
        box = self.graph.instances[tensor[0]].written[tensor[1]]
        return self.axes.inferred(subgraph, binding, tensor[1], box)

    def _want(self, tensor: Tensor, inferred: Binding) -> None:
        """Lines 6 to 14: a reader would like this binding."""
        if not inferred:
            return
        if self.binding.setdefault(tensor, inferred) != inferred:
            self.scope[tensor] = max(self.scope[tensor], Level.GB)
