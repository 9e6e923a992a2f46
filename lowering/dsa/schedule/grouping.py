"""Grouping sub-graphs into larger ones: Algorithm 2 of GraphTurbo (OSDI 2023, section 3.2).

How the text is read where it leaves a choice:

- Factors are compared along the same dimension: Algorithm 2 hands SplitInfo to its merging steps, not only BestSplit.
  So sub-graphs that each alone are best split along different dimensions can be merged, and the result is split along
  the best dimension that the rules allow among those that split the most operators.
- Levels are compared before factors: what does not fit LB has a larger factor than what does. The result has to fit
  LB, for that is what merging is for.
- Networks that sample up grow where others shrink. For them rule (i) is turned around (section 3.6), so that a stage is
  not split as finely as the larger one that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ....costmodels.dsa_device import DsaDevice
from ....extract.partition.groups import partition_of
from ..errors import DsaError
from ..network.graph import Network
from ..network.subgraphs import Layer, SubGraph, moved_axis, sub_graph
from ..program.instructions import Level
from .patterns import Quotient, branches, diamonds, straights
from .pieces import probes
from .split_info import Split, splits_of

Rank = tuple[Level, int]
"""A level and a splitting factor for it."""


@dataclass(frozen=True)
class Group:
    """A sub-graph, and how it is split into instances. `options` are all ways that Algorithm 1 found."""

    subgraph: SubGraph
    split: Split
    options: tuple[Split, ...]

    def rank(self, path: tuple[int, ...] | None) -> Rank:
        """The splitting factor along these axes of the primary output, or the first ones of them if they suffice.

        That of `split` where it cannot be split along them alone, or where they are not known.
        """
        for option in self.options:
            if option.factor == 1:
                return option.rank
        ranks = {option.path: option.rank for option in self.options}
        prefixes = [path[:end] for end in range(len(path or ()), 0, -1)] if path else []
        return next((ranks[prefix] for prefix in prefixes if prefix in ranks), self.split.rank)


def rule_one(first: Rank, second: Rank, merged: Rank, up_sampling: bool = False) -> bool:
    """Rule (i): the factor of SG2 is at least that of SG1, and that of the result at most that of SG2.

    For up-sampling the other way round: it is SG1 whose factor is the larger one.
    """
    if merged[0] is not Level.LB:
        return False
    small, large = (second, first) if up_sampling else (first, second)
    return small <= large and merged <= large


def rule_two(parts: Iterable[Rank], merged: Rank) -> bool:
    """Rule (ii): the factor of the result is at most the largest among the parts'."""
    return merged[0] is Level.LB and merged <= max(parts)


def group(
    network: Network, layers: Sequence[Layer], device: DsaDevice, *, up_sampling: bool = False
) -> tuple[Group, ...]:
    """Sub-graphs made of layers, in an order in which they can run. Raises DsaError where layers do not fit the graph.

    `layers` hold every operator once, and no two of them wait for each other.
    """
    grouping = _Grouping(network, _ordered(network, layers), device, up_sampling)
    grouping.run()
    return grouping.result()


def ungrouped(network: Network, layers: Sequence[Layer]) -> tuple[Group, ...]:
    """Each layer by itself and in one piece, in an order in which they can run: what Algorithm 2 starts from, unsplit.

    Raises DsaError as `group` does.
    """
    return tuple(_whole(network, layer) for layer in _ordered(network, layers))


def _whole(network: Network, layer: Layer) -> Group:
    subgraph = sub_graph(network, [layer])
    ones = (1,) * len(network.shapes[subgraph.primary])
    split = Split(Level.LB, (), ones, sum(map(network.bytes, subgraph.stored)))
    return Group(subgraph, split, (split,))


def _ordered(network: Network, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers in a topological order."""
    label = {index: number for number, layer in enumerate(layers) for index in layer}
    if sorted(label) != list(range(len(network.graph))) or sum(map(len, layers)) != len(label):
        raise DsaError(f"the layers hold {sum(map(len, layers))} operators, not each of {len(network.graph)} once")
    return partition_of(network.graph, [label[index] for index in range(len(label))], "layers").members


Rule = Callable[[Sequence[Rank], Rank], bool]
"""Whether sub-graphs of these factors may become one of that factor."""


@dataclass
class _Grouping:
    network: Network
    layers: tuple[Layer, ...]
    device: DsaDevice
    up_sampling: bool
    parts: dict[int, tuple[int, ...]] = field(init=False)
    graph: Quotient = field(init=False)
    groups: dict[int, Group] = field(init=False)
    known: dict[tuple[int, ...], Group] = field(default_factory=dict)
    tried: dict[tuple[tuple[int, ...], tuple[Group, ...]], Group | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts = {number: (number,) for number in range(len(self.layers))}
        self.groups = {number: self._made(parts) for number, parts in self.parts.items()}
        label = {index: number for number, layer in enumerate(self.layers) for index in layer}
        operators = self.network.graph
        self.graph = Quotient(
            {
                number: {label[user] for index in layer for user in operators.successors[index]} - {number}
                for number, layer in enumerate(self.layers)
            }
        )

    def run(self) -> None:
        """Lines 5 to 15: until no pattern can be merged."""
        changed = True
        while changed:
            changed = self._exhaust(self._straight)
            changed |= self._exhaust(self._diamond)
            changed |= self._exhaust(self._branch)

    def result(self) -> tuple[Group, ...]:
        """The groups in a topological order."""
        return tuple(self.groups[node] for node in self.graph.order())

    def _exhaust(self, step: Callable[[], bool]) -> bool:
        changed = False
        while step():
            changed = True
        return changed

    def _straight(self) -> bool:
        return self._first(((p.first, p.second) for p in straights(self.graph)), self._rule_one)

    def _diamond(self) -> bool:
        return self._first(((*p.inside, p.exit) for p in diamonds(self.graph)), rule_two)

    def _branch(self) -> bool:
        return self._first(((p.second, p.exit) for p in branches(self.graph)), self._rule_one)

    def _rule_one(self, parts: Sequence[Rank], merged: Rank) -> bool:
        first, second = parts
        return rule_one(first, second, merged, self.up_sampling)

    def _first(self, candidates: Iterator[tuple[int, ...]], rule: Rule) -> bool:
        """Merge the first candidate that a rule allows."""
        for nodes in candidates:
            merged = self._merged(nodes, rule)
            if merged is not None:
                parts = self._parts(nodes)
                result = self.graph.merge(nodes)
                for node in nodes:
                    del self.groups[node], self.parts[node]
                self.groups[result], self.parts[result] = merged, parts
                return True
        return False

    def _merged(self, nodes: tuple[int, ...], rule: Rule) -> Group | None:
        """The result, split along the best of the dimensions for which the rule holds; None where there is none."""
        groups = tuple(self.groups[node] for node in nodes)
        if (nodes, groups) not in self.tried:
            self.tried[nodes, groups] = self._allowed(groups, self._made(self._parts(nodes)), rule)
        return self.tried[nodes, groups]

    def _allowed(self, groups: Sequence[Group], whole: Group, rule: Rule) -> Group | None:
        most = whole.split.ops
        for option in (o for o in whole.options if o.ops == most):
            ranks = [part.rank(self._mapped(whole.subgraph, option.path, part)) for part in groups]
            if rule(ranks, option.rank):
                return replace(whole, split=option)
        return None

    def _mapped(self, whole: SubGraph, path: tuple[int, ...], part: Group) -> tuple[int, ...] | None:
        """The axes of a part's primary output that go with axes of the whole's; None where they do not."""
        axes = [self._follow(whole, axis, part.subgraph.primary) for axis in path]
        found = tuple(axis for axis in axes if axis is not None)
        return found if len(found) == len(path) else None

    def _follow(self, whole: SubGraph, axis: int, value: int) -> int | None:
        if value == whole.primary:
            return axis
        return moved_axis(self.network, value, tuple(probes(self.network, whole, axis)))

    def _parts(self, nodes: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(part for node in nodes for part in self.parts[node]))

    def _made(self, parts: tuple[int, ...]) -> Group:
        if parts not in self.known:
            subgraph = sub_graph(self.network, [self.layers[part] for part in parts])
            options = splits_of(self.network, subgraph, self.device)
            self.known[parts] = Group(subgraph, options[0], options)
        return self.known[parts]
