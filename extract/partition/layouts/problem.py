"""The problem of choosing layouts: groups with a cost per layout, and feature maps that flow between them.

A conversion serves all readers that want the same layout. Costs are seconds beyond the favourite layout of each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....ir.graph import OperatorGraph
from ..groups import Partition
from ..kernels import KernelModel
from .feature_maps import PLAIN, FeatureMaps, Layout, Role, conversion_seconds
from .preferences import Preference

Choice = tuple[Layout, ...]
"""A layout per group."""


@dataclass(frozen=True)
class Flow:
    """A feature map, and who needs it in which layout.

    `maker` is the group in whose layout it is stored, None where it is stored plain (inputs of the graph, results of
    operators that make only plain ones). `readers` are the other groups that read it in their layout; `is_read_plain`
    where the caller of the graph or an operator that works on plain ones only reads it.
    """

    value: int
    maker: int | None
    readers: tuple[int, ...]
    is_read_plain: bool

    @property
    def groups(self) -> tuple[int, ...]:
        """Those whose layouts decide what it costs."""
        return self.readers if self.maker is None else (self.maker, *self.readers)


@dataclass(frozen=True)
class LayoutProblem:
    """Groups, flows and their costs, under the feature maps and the model of kernels of one graph."""

    partition: Partition
    model: KernelModel
    maps: FeatureMaps
    preferences: tuple[Preference, ...]

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        """Feature maps that some choice makes convert, by value."""
        flows = (self._flow(value) for value in sorted(self.maps.values))
        return tuple(f for f in flows if f.readers or (f.is_read_plain and f.maker is not None))

    @cached_property
    def flows_of(self) -> tuple[tuple[Flow, ...], ...]:
        """Per group, the flows that it makes or reads."""
        flows_of: list[list[Flow]] = [[] for _ in self.preferences]
        for flow in self.flows:
            for group in flow.groups:
                flows_of[group].append(flow)
        return tuple(map(tuple, flows_of))

    @cached_property
    def _seconds(self) -> dict[tuple[int, Layout, Layout], float]:
        return {}

    def favourites(self) -> Choice:
        """Each group as it likes best by itself."""
        return tuple(preference.favourite for preference in self.preferences)

    def uniform(self, layout: Layout) -> Choice:
        """All groups in one layout, where that is feasible, and plain elsewhere."""
        return tuple(layout if layout in preference.seconds else PLAIN for preference in self.preferences)

    def cost(self, choice: Choice) -> float:
        """Seconds of a choice: what groups lose, and all conversions."""
        beyond = sum(p.beyond(layout) for p, layout in zip(self.preferences, choice, strict=True))
        return beyond + sum(self.flow_cost(flow, choice) for flow in self.flows)

    def flow_cost(self, flow: Flow, choice: Sequence[Layout]) -> float:
        """Seconds of the conversions of one value."""
        source = self.source(flow, choice)
        return sum(self.conversion(flow.value, source, target) for target in self.targets(flow, choice))

    def source(self, flow: Flow, choice: Sequence[Layout]) -> Layout:
        """The layout in which the value is made."""
        return PLAIN if flow.maker is None else self.maps.stored(choice[flow.maker], flow.value)

    def targets(self, flow: Flow, choice: Sequence[Layout]) -> list[Layout]:
        """The other layouts that the value is needed in, sorted."""
        wanted = {self.maps.stored(choice[reader], flow.value) for reader in flow.readers}
        wanted |= {PLAIN} if flow.is_read_plain else set()
        return sorted(wanted - {self.source(flow, choice)})

    def conversion(self, value: int, source: Layout, target: Layout) -> float:
        """Seconds of one conversion."""
        key = (value, source, target)
        if key not in self._seconds:
            feature_map = self.model.graph.values[value]
            seconds = 0.0 if source == target else conversion_seconds(feature_map, source, target, self.model.device)
            self._seconds[key] = seconds
        return self._seconds[key]

    def _flow(self, value: int) -> Flow:
        graph, roles = self.partition.graph, self.maps.roles
        producer = graph.values[value].producer
        maker = None if producer is None or roles[producer] is Role.PLAIN else self.partition.group[producer]
        users = tuple(_users(graph, value))
        mapped = {self.partition.group[u] for u in users if roles[u] is not Role.PLAIN} - {maker}
        plain = any(roles[u] is Role.PLAIN for u in users)
        return Flow(value, maker, tuple(sorted(mapped)), graph.values[value].is_output or plain)


def _users(graph: OperatorGraph, value: int) -> Iterator[int]:
    """Operators that read the elements of a value, not only its shape."""
    return (user for user in graph.consumers[value] if graph.operators[user].op not in ("Shape", "Size"))
