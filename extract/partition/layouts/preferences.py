"""How long each group of a partition takes in each layout, conversions left out.

Window operators (convolutions, poolings) have kernels per layout, and ``kernels.toml`` says what share of its speed
each reaches; all others compute the same on any. So a group prefers what its window operators prefer, weighed by their
arithmetic: mostly the layout of its dominant operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....costmodels.flops import flops
from ....costmodels.roofline import compute_seconds, copy_seconds, layout_share
from ..groups import Partition
from ..kernels import KernelModel, Members
from .feature_maps import PLAIN, FeatureMaps, Layout, Role, layouts


@dataclass(frozen=True)
class Preference:
    """A group: its dominant operator, and its seconds in each feasible layout. One without feature maps is plain."""

    dominant: int
    seconds: Mapping[Layout, float]

    @property
    def favourite(self) -> Layout:
        """The layout in which it is fastest; of equally fast ones, the first in the order of `layouts`."""
        return min(self.seconds, key=lambda layout: self.seconds[layout])

    def beyond(self, layout: Layout) -> float:
        """Seconds that a layout costs beyond the favourite."""
        return self.seconds[layout] - self.seconds[self.favourite]


def preferences(partition: Partition, model: KernelModel, maps: FeatureMaps | None = None) -> tuple[Preference, ...]:
    """The preference of every group of `partition`, in their order."""
    maps = maps or FeatureMaps(partition.graph)
    return tuple(_preference(members, model, maps) for members in partition.members)


def _preference(members: Members, model: KernelModel, maps: FeatureMaps) -> Preference:
    dominant = max(members, key=lambda m: flops(model.graph.operations[m]))
    price = model.group(members)
    times = {layout: price + _beyond(members, layout, model, maps) for layout in _feasible(members, model, maps)}
    return Preference(dominant, times)


def _feasible(members: Members, model: KernelModel, maps: FeatureMaps) -> tuple[Layout, ...]:
    """The layouts that make a difference to a value of the group, and plain."""
    operators = (model.graph.operators[m] for m in members if maps.roles[m] is not Role.PLAIN)
    touched = {v for o in operators for v in (*o.inputs, *o.outputs) if v is not None} & maps.values
    return tuple(x for x in layouts(model.device) if x == PLAIN or any(maps.stored(x, v) != PLAIN for v in touched))


def _beyond(members: Members, layout: Layout, model: KernelModel, maps: FeatureMaps) -> float:
    """Seconds that the kernels take longer than in the fastest layout of their operators."""
    if not any(maps.roles[m] is Role.WINDOW for m in members):
        return 0.0
    return sum(_longer(kernel, layout, model, maps) for kernel in model.kernels(members))


def _longer(kernel: Members, layout: Layout, model: KernelModel, maps: FeatureMaps) -> float:
    """Slower arithmetic counts where it takes longer than what the kernel already waits for, its bytes."""
    busy = model.kernel(kernel) - sum(copy_seconds(model.graph.operations[m], model.device) for m in kernel)
    return max(0.0, sum(_compute(m, layout, model, maps) for m in kernel) - busy)


def _compute(member: int, layout: Layout, model: KernelModel, maps: FeatureMaps) -> float:
    """Arithmetic of an operator. The layout of its output decides: blocks are blocks of output channels."""
    operation = model.graph.operations[member]
    seconds = compute_seconds(operation, model.device)
    if maps.roles[member] is not Role.WINDOW:
        return seconds
    written = maps.stored(layout, model.graph.operators[member].outputs[0])
    return seconds / layout_share(operation, written.kind)
