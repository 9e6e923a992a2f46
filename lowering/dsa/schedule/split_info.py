"""Splitting information: Algorithm 1 and equation 1 of GraphTurbo (OSDI 2023, section 3.1).

How the text is read if it leaves a choice:

- `peak` is the most that inputs, intermediate tensors and outputs take at once, from layer to layer; weights have a
  buffer of their own. Instead of peak / v, which is what one of v instances takes when they share nothing, the exact
  parts that an instance needs are counted. They have to fit the LBs of the cores that the instance can use.
- Factors divide the extent of the output, for the instances of a sub-graph are homogeneous (section 3.3).
- n_d counts the operators of those intermediate tensors that are split, which is what the text defines it as, though
  line 9 adds the others too. Tensors of which instances need parts that overlap, under the windows of a convolution,
  are not split: so a batch is preferred to rows of pixels. Without intermediate tensors there is a tuple all the same.
- If no single dimension makes instances small enough, the best one is split completely, then the next,
  "by gradually partitioning multiple loop dimensions" (section 6). What still does not fit is split for the GB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ....costmodels.dsa_device import DsaDevice
from ..network.boxes import Box, Shape, size
from ..network.core_factors import core_count, plain_binding
from ..network.graph import Network
from ..network.operand_boxes import whole_axes
from ..network.subgraphs import Lifetimes, SubGraph, lifetimes, moved_axis, peak_bytes
from ..program.instructions import Level
from .pieces import Pieces, probes


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

    def footprint(self, factors: tuple[int, ...]) -> int:
        """The most bytes an instance takes at once."""
        cut = Pieces(self.network, self.subgraph, factors)
        return max(peak_bytes(self.network, self.lifetimes, cut.needs(place)) for place in cut.samples)

    def is_excessive(self, factors: tuple[int, ...]) -> bool:
        """Whether instances compute so much twice that fusing does not pay."""
        cut = Pieces(self.network, self.subgraph, factors)
        middle = cut.needs(cut.samples[0])
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
