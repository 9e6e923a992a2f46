"""Grouping sub-graphs into larger ones: Algorithm 2 of GraphTurbo (OSDI 2023, section 3.2).

How the text is read if it leaves a choice:

- Factors are compared along the same dimension: Algorithm 2 hands SplitInfo to its merging steps, not only BestSplit.
  So sub-graphs that each alone are best split along different dimensions can be merged, and the result is split along
  the best dimension that the rules allow among those that split the most operators.
- Levels are compared before factors: what does not fit LB has a larger factor than what does. The result has to fit
  LB, for that is what merging is for.
- Networks that sample up grow while others shrink. For them rule (i) is turned around (section 3.6), so that a stage is
  not split as finely as the larger one that follows. Many networks do both, one after the other: so the rule is turned
  around if SG2 samples up what SG1 makes, and only there.

The merging patterns of a graph of sub-graphs (Fig. 4) are straight, diamond and branch. A pattern is given by the nodes
that become one, in a topological order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod

from ....costmodels.dsa_device import DsaDevice
from ....extract.partition.groups import partition_of
from ....support.directed_graphs import immediate_dominators
from ...base.choices import UpSampling
from ...base.errors import DsaError
from ..network.boxes import Box, Shape, size
from ..network.core_factors import core_count, plain_binding
from ..network.graph import Network
from ..network.operand_boxes import whole_axes
from ..network.subgraphs import Layer, Lifetimes, SubGraph, lifetimes, moved_axis, peak_bytes, structure_of, sub_graph
from ..program.instructions import Level
from .pieces import Pieces, probes

Pattern = tuple[int, ...]
_UP_SAMPLING = frozenset({"Resize", "ConvTranspose", "DepthToSpace"})
"""Operators that may give a feature map more pixels."""
_ROOT = -1
"""Stands before all nodes without producers: dominators need one start."""


class Quotient:
    """A graph of sub-graphs that can be merged. Nodes are numbers; merged ones take the number of the last."""

    def __init__(self, edges: Mapping[int, Iterable[int]]) -> None:
        """`edges`: every node, in a topological order, with its consumers."""
        self.consumers = {node: set(users) for node, users in edges.items()}
        self.producers: dict[int, set[int]] = {node: set() for node in edges}
        for node, users in edges.items():
            for user in users:
                self.producers[user].add(node)

    def order(self) -> tuple[int, ...]:
        """The nodes in a topological order: depth first, by number if several are ready at once."""
        waiting = {node: len(sources) for node, sources in self.producers.items()}
        ready = sorted((node for node, count in waiting.items() if not count), reverse=True)
        order: list[int] = []
        while ready:
            node = ready.pop()
            order.append(node)
            for user in sorted(self.consumers[node], reverse=True):
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        return tuple(order)

    def merge(self, nodes: Pattern) -> int:
        """Make several nodes the last of them."""
        result, merged = nodes[-1], set(nodes)
        sources = set().union(*(self.producers.pop(node) for node in nodes)) - merged
        users = set().union(*(self.consumers.pop(node) for node in nodes)) - merged
        self.producers[result], self.consumers[result] = sources, users
        for source in sources:
            self.consumers[source] = self.consumers[source] - merged | {result}
        for user in users:
            self.producers[user] = self.producers[user] - merged | {result}
        return result


def straights(graph: Quotient) -> Iterator[Pattern]:
    """SG1 and SG2 of which one is the only producer and the other its only consumer (Fig. 4a), in topological order."""
    for node in graph.order():
        for user in graph.consumers[node]:
            if graph.consumers[node] == {user} and graph.producers[user] == {node}:
                yield node, user


def diamonds(graph: Quotient) -> Iterator[Pattern]:
    """Exits with the nodes between an entry and them, in the topological order of the exits (Fig. 4b).

    Two or more paths lead from the entry to the exit, and no other way into or out of the nodes between: the entry is
    the exit's immediate dominator, so these are reached through it alone.
    """
    order = graph.order()
    starts = [node for node in order if not graph.producers[node]]
    dominators = immediate_dominators({_ROOT: starts, **{node: graph.consumers[node] for node in order}}, _ROOT)
    position = {node: index for index, node in enumerate(order)}
    for node in order:
        if len(graph.producers[node]) > 1 and dominators[node] != _ROOT:
            inside = _between(graph, dominators[node], node)
            if all(graph.consumers[n] <= inside | {node} for n in inside):
                yield *sorted(inside, key=position.__getitem__), node


def branches(graph: Quotient) -> Iterator[Pattern]:
    """SG2, which has no other consumer, and its exit, which has other producers (Fig. 4c).

    They come in the topological order of the exits, the latest producer of each first.
    """
    order = graph.order()
    position = {node: index for index, node in enumerate(order)}
    for node in order:
        if len(graph.producers[node]) > 1:
            for producer in sorted(graph.producers[node], key=position.__getitem__, reverse=True):
                if graph.consumers[producer] == {node}:
                    yield producer, node


def _between(graph: Quotient, entry: int, end: int) -> set[int]:
    inside: set[int] = set()
    waiting = [end]
    while waiting:
        new = graph.producers[waiting.pop()] - inside - {entry}
        inside |= new
        waiting += new
    return inside


Rank = tuple[Level, int]
"""A level and a splitting factor for it: what rules (i) and (ii) compare."""


@dataclass(frozen=True)
class Group:
    """A sub-graph, and how it is split into instances. `options` are all ways of Algorithm 1."""

    subgraph: SubGraph
    split: Split
    options: tuple[Split, ...]

    def rank(self, path: tuple[int, ...] | None) -> Rank:
        """The splitting factor along these axes of the primary output, or the first ones of them if they suffice.

        That of `split` if it cannot be split along them alone, or if they are not known.
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


def ungrouped(network: Network, layers: Sequence[Layer]) -> tuple[Group, ...]:
    """Each layer by itself and in one piece, in an order in which they can run: the start of Algorithm 2, unsplit.

    Raises DsaError as `group` does.
    """
    groups = []
    for layer in topological_order(network, layers):
        subgraph = sub_graph(network, [layer])
        ones = (1,) * len(network.shapes[subgraph.primary])
        split = Split(Level.LB, (), ones, sum(map(network.bytes, subgraph.stored)))
        groups.append(Group(subgraph, split, (split,)))
    return tuple(groups)


def topological_order(network: Network, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    label = {index: number for number, layer in enumerate(layers) for index in layer}
    if sorted(label) != list(range(len(network.graph))) or sum(map(len, layers)) != len(label):
        raise DsaError(f"the layers hold {sum(map(len, layers))} operators, not each of {len(network.graph)} once")
    return partition_of(network.graph, [label[index] for index in range(len(label))], "layers").members


def group(
    network: Network, layers: Sequence[Layer], device: DsaDevice, *, up_sampling: UpSampling = "detect"
) -> tuple[Group, ...]:
    """Sub-graphs made of layers, in an order in which they can run. Raises DsaError if layers do not fit the graph.

    `layers` hold every operator once, and no two of them wait for each other.
    """
    grouping = _Grouping(network, topological_order(network, layers), device)

    def rule_one_holds(parts: Sequence[Group], ranks: Sequence[Rank], merged: Rank) -> bool:
        is_turned = samples_up(network, *parts) if up_sampling == "detect" else up_sampling == "everywhere"
        first, second = ranks
        return rule_one(first, second, merged, is_turned)

    def rule_two_holds(parts: Sequence[Group], ranks: Sequence[Rank], merged: Rank) -> bool:
        return rule_two(ranks, merged)

    rules = ((straights, rule_one_holds), (diamonds, rule_two_holds), (branches, rule_one_holds))
    changed = True
    while changed:  # lines 5 to 15: until no pattern can be merged
        changed = False
        for patterns, rule in rules:
            while grouping.merge_first(patterns(grouping.graph), rule):
                changed = True
    return tuple(grouping.groups[node] for node in grouping.graph.order())


def samples_up(network: Network, first: Group, second: Group) -> bool:
    """Whether the second of two sub-graphs makes a feature map of more pixels than the first, by sampling up."""
    operators = network.graph.operators
    ops = {operators[index].op for layer in second.subgraph.layers for index in layer}
    before, after = (prod(network.shapes[each.subgraph.primary][2:]) for each in (first, second))
    return after > before and not ops.isdisjoint(_UP_SAMPLING)


Rule = Callable[[Sequence[Group], Sequence[Rank], Rank], bool]
"""Whether sub-graphs, of these factors, may become one of that factor."""


class _Grouping:
    """Groups by the nodes of a graph of them; each is made of some of the layers."""

    def __init__(self, network: Network, layers: tuple[Layer, ...], device: DsaDevice) -> None:
        self.network, self.layers, self.device = network, layers, device
        self.group_of_parts = cache(self._group_of_parts)
        self.probes = cache(lambda subgraph, axis: tuple(probes(network, subgraph, axis)))
        self.splits: dict[object, tuple[Split, ...]] = {}
        """By the structure of a sub-graph."""
        self.merged: dict[tuple[Pattern, tuple[Group, ...]], Group | None] = {}
        """By pattern and its groups, the results of earlier attempts."""
        label = {index: number for number, layer in enumerate(layers) for index in layer}
        users = (
            {label[user] for index in layer for user in network.graph.successors[index]} - {number}
            for number, layer in enumerate(layers)
        )
        self.graph = Quotient(dict(enumerate(users)))
        self.parts: dict[int, tuple[int, ...]] = {number: (number,) for number in range(len(layers))}
        self.groups = {number: self.group_of_parts(parts) for number, parts in self.parts.items()}

    def merge_first(self, patterns: Iterator[Pattern], rule: Rule) -> bool:
        """Merge the first pattern that a rule allows, and say whether there is one."""
        for nodes in patterns:
            parts = tuple(sorted(part for node in nodes for part in self.parts[node]))
            groups = tuple(self.groups[node] for node in nodes)
            if (nodes, groups) not in self.merged:
                self.merged[nodes, groups] = self._merge_groups(groups, parts, rule)
            merged = self.merged[nodes, groups]
            if merged is not None:
                result = self.graph.merge(nodes)
                for node in nodes:
                    del self.groups[node], self.parts[node]
                self.groups[result], self.parts[result] = merged, parts
                return True
        return False

    def _merge_groups(self, groups: tuple[Group, ...], parts: tuple[int, ...], rule: Rule) -> Group | None:
        """The result, split along the best of the dimensions for which the rule holds; None if there is none.

        Only dimensions that split the most operators count.
        """
        whole = self.group_of_parts(parts)
        for option in (option for option in whole.options if option.ops == whole.split.ops):
            ranks = [part.rank(self._axes_of_part(whole.subgraph, option.path, part)) for part in groups]
            if rule(groups, ranks, option.rank):
                return replace(whole, split=option)
        return None

    def _axes_of_part(self, whole: SubGraph, path: tuple[int, ...], part: Group) -> tuple[int, ...] | None:
        """The axes of a part's primary output that go with axes of the whole's; None if they do not."""
        value = part.subgraph.primary
        axes = path
        if value != whole.primary:
            moved = (moved_axis(self.network, value, self.probes(whole, axis)) for axis in path)
            axes = tuple(axis for axis in moved if axis is not None)
        return axes if len(axes) == len(path) else None

    def _group_of_parts(self, parts: tuple[int, ...]) -> Group:
        subgraph = sub_graph(self.network, [self.layers[part] for part in parts])
        key = structure_of(self.network, subgraph)
        if key not in self.splits:  # networks repeat their blocks
            self.splits[key] = splits_of(self.network, subgraph, self.device)
        options = self.splits[key]
        return Group(subgraph, options[0], options)


# Splitting information: Algorithm 1 and equation 1 of GraphTurbo (OSDI 2023, section 3.1).
#
# How the text is read if it leaves a choice:
#
# - `peak` is the most that inputs, intermediate tensors and outputs take at once, from layer to layer; weights have a
# buffer of their own. Instead of peak / v, which is what one of v instances takes when they share nothing, the exact
# parts that an instance needs are counted. They have to fit the LBs of the cores that the instance can use.
# - Factors divide the extent of the output, for the instances of a sub-graph are homogeneous (section 3.3).
# - n_d counts the operators of those intermediate tensors that are split, which is what the text defines it as, though
# line 9 adds the others too. Tensors of which instances need parts that overlap, under the windows of a convolution,
# are not split: so a batch is preferred to rows of pixels. Without intermediate tensors there is a tuple all the same.
# - If no single dimension makes instances small enough, the best one is split completely, then the next, "by gradually
# partitioning multiple loop dimensions" (section 6). What still does not fit is split for the GB.

@dataclass(frozen=True, order=True)
class SplitInfo:
    """The 4D tuple (split_d, n_d, f_d, d): `dimension` of the output is cut into `factor`, which splits `ops`."""

    split: int
    ops: int
    factor: int
    dimension: int


@dataclass(frozen=True)
class Split:
    """A way to cut a sub-graph into instances, each of which fits the buffers of `level`.

    `factors` are per axis of the primary output, and `path` the axes in the order in which they were chosen; `info` is
    the tuple of the last one, None if nothing is split. `footprint` is the most bytes that an instance takes.
    """

    level: Level
    path: tuple[int, ...]
    factors: tuple[int, ...]
    footprint: int
    info: SplitInfo | None = None

    @property
    def factor(self) -> int:
        """The splitting factor: the number of instances."""
        return prod(self.factors)

    @property
    def ops(self) -> int:
        """The number of operators that it splits, the first criterion of equation 1."""
        return self.info.ops if self.info else 0

    @property
    def rank(self) -> tuple[Level, int]:
        """The value that rules (i) and (ii) compare: a sub-graph that does not fit LB has no finite factor for it."""
        return self.level, self.factor


def preference(info: SplitInfo) -> tuple[int, int, int]:
    """The tuple of which equation 1 wants the lexicographical maximum: (n_d, -f_d, -d)."""
    return info.ops, -info.factor, -info.dimension


def best_split(infos: Iterable[SplitInfo]) -> SplitInfo | None:
    """Equation 1."""
    return max(infos, key=preference, default=None)


def factors_to_try(extent: int, cores: int) -> Iterator[int]:
    """Line 4: 1, 2, 4, 8, 9, ... up to the extent for eight cores: the divisors of the cores, then every number.

    Only those that divide the extent; the extent itself always.
    """
    for factor in range(1, extent + 1):
        if extent % factor == 0 and (factor >= cores or cores % factor == 0 or factor == extent):
            yield factor


def splits_of(network: Network, subgraph: SubGraph, device: DsaDevice) -> tuple[Split, ...]:
    """The ways to cut a sub-graph for the fastest level that its instances fit, the best by equation 1 first.

    It is not cut at all if that level is DDR.
    """
    splitter = _Splitter(network, subgraph, device)
    for level in (Level.LB, Level.GB):
        splits = tuple(splitter.split_gradually(level))
        if splits:
            return splits
    ones = (1,) * len(splitter.shape)
    return (Split(Level.DDR, (), ones, splitter.footprint(ones)),)


@dataclass(frozen=True)
class _Splitter:
    """Algorithm 1 for one sub-graph."""

    network: Network
    subgraph: SubGraph
    device: DsaDevice

    @cached_property
    def shape(self) -> Shape:
        return self.network.shapes[self.subgraph.primary]

    @cached_property
    def lifetimes(self) -> Lifetimes:
        return lifetimes(self.network, self.subgraph)

    @cached_property
    def whole_axes(self) -> frozenset[int]:
        producer = self.network.graph.values[self.subgraph.primary].producer
        assert producer is not None
        return whole_axes(self.network.graph.operators[producer], len(self.shape))

    @cached_property
    def probes(self) -> tuple[tuple[Mapping[int, Box], ...], ...]:
        return tuple(tuple(probes(self.network, self.subgraph, axis)) for axis in range(len(self.shape)))

    def split_gradually(self, level: Level) -> Iterator[Split]:
        """Split dimension after dimension, each but the last completely."""
        path: tuple[int, ...] = ()
        factors = (1,) * len(self.shape)
        if not self.shape and self.fits(level, factors):
            yield Split(level, path, factors, self.footprint(factors))
        while True:
            infos = sorted(self.infos(level, factors), key=preference, reverse=True)
            for info in infos:
                cut = _with(factors, info.dimension, info.factor)
                yield Split(level, (*path, info.dimension), cut, self.footprint(cut), info)
            widest = best_split(self.complete_splits(factors))
            if infos or widest is None:
                return
            factors, path = _with(factors, widest.dimension, widest.factor), (*path, widest.dimension)

    def infos(self, level: Level, factors: tuple[int, ...]) -> Iterator[SplitInfo]:
        """Algorithm 1, with other dimensions already split."""
        for dimension, extent in enumerate(self.shape):
            if factors[dimension] == 1:
                for factor in factors_to_try(extent, self.device.cores):
                    if self.fits(level, _with(factors, dimension, factor)):
                        yield SplitInfo(1, self.ops(dimension, factor), factor, dimension)
                        break

    def complete_splits(self, factors: tuple[int, ...]) -> Iterator[SplitInfo]:
        """Dimensions that can be split completely, though instances do not fit then."""
        for dimension, extent in enumerate(self.shape):
            wider = _with(factors, dimension, extent)
            if factors[dimension] == 1 < extent and not self.is_excessive(wider):
                yield SplitInfo(1, self.ops(dimension, extent), extent, dimension)

    def fits(self, level: Level, factors: tuple[int, ...]) -> bool:
        """Line 5."""
        if level is Level.GB:
            capacity = self.device.global_buffer
        else:
            piece = tuple(extent // factor for extent, factor in zip(self.shape, factors, strict=True))
            cores = core_count(plain_binding(piece, self.device.cores, self.whole_axes))
            capacity = self.device.activation_buffer * cores
        return self.footprint(factors) <= capacity and not self.is_excessive(factors)

    @cached_property
    def footprint(self) -> Callable[[tuple[int, ...]], int]:
        """The most bytes an instance takes at once, by factors."""
        return cache(self._footprint)

    def _footprint(self, factors: tuple[int, ...]) -> int:
        cut = Pieces(self.network, self.subgraph, factors)
        needs = (self.middle(factors), *map(cut.needs, cut.samples[1:]))
        return max(peak_bytes(self.network, self.lifetimes, boxes) for boxes in needs)

    @cached_property
    def middle(self) -> Callable[[tuple[int, ...]], Mapping[int, Box]]:
        """What an instance in the middle needs, by factors."""
        return cache(lambda factors: (cut := Pieces(self.network, self.subgraph, factors)).needs(cut.samples[0]))

    def is_excessive(self, factors: tuple[int, ...]) -> bool:
        """Whether instances compute so much twice that fusing does not pay."""
        middle = self.middle(factors)
        return recomputation(self.network, self.subgraph, self.device, middle, prod(factors)).is_excessive

    def ops(self, dimension: int, factor: int) -> int:
        """Lines 6 to 11: the operators that a dimension splits, the one of the output included."""
        graph = self.network.graph
        ops = 1
        for value in self.subgraph.intermediates:
            extent = self._split_extent(value, dimension)
            if extent and extent % factor == 0:
                producer = graph.values[value].producer
                ops += next(len(layer) for layer in self.subgraph.layers if producer in layer)
        return ops

    def _split_extent(self, value: int, dimension: int) -> int:
        """The extent of the axis of an intermediate tensor that is split with a dimension; 0 if parts overlap."""
        axis = moved_axis(self.network, value, self.probes[dimension])
        if axis is None:
            return 0
        extent = self.network.shapes[value][axis]
        lengths = {box[value][axis][1] - box[value][axis][0] for box in self.probes[dimension]}
        return extent if {length * self.shape[dimension] for length in lengths} == {extent} else 0


@dataclass(frozen=True)
class Recomputation:
    """The cost model that keeps instances from computing too much twice (section 3.1).

    `spent` are seconds of one cluster for computing elements again: if the windows of convolutions overlap, or an
    intermediate tensor is not split with the output. `saved` are seconds that fusing saves: what layers inside a
    sub-graph hand on does not leave the local buffers.
    """

    spent: float
    saved: float

    @property
    def is_excessive(self) -> bool:
        """Whether it offsets the benefit of fusion."""
        return self.spent > self.saved


def recomputation(
    network: Network, subgraph: SubGraph, device: DsaDevice, instance: Mapping[int, Box], count: int
) -> Recomputation:
    """Weigh what `count` instances, each of which needs the parts `instance`, compute more than once.

    They save one write and one read of each intermediate tensor in the global buffer, or in DDR if it does not fit.
    """
    again = 0.0
    for index in subgraph.members:
        for result in network.graph.operators[index].outputs[:1]:
            share = size(instance.get(result)) / max(1, prod(network.shapes[result]))
            again += network.flops[index] * max(0.0, share * count - 1.0)
    saved = 0.0
    for value in subgraph.intermediates:
        amount = network.bytes(value)
        fits = amount <= device.global_buffer
        bandwidth = device.global_bandwidth if fits else device.ddr_bandwidth / device.clusters
        saved += 2 * amount / bandwidth
    return Recomputation(again / (2.0 * device.peak_macs), saved)


def _with(factors: tuple[int, ...], dimension: int, factor: int) -> tuple[int, ...]:
    return (*factors[:dimension], factor, *factors[dimension + 1 :])
