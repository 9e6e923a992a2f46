"""The flow between layers: the steps of a schedule in running order, and who reads which part of a value.

A step is one layer of one instance, on all cores. What an instance makes of a value is a `Part`; its consumers are
steps of the same instance, and of others that it is handed to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ..network.boxes import Box, hull, intersection, piece, shape_of, size, whole
from ..schedule.instances import NETWORK, InstanceGraph, Part, Transfer
from ..tiles.core_parts import CorePart, LayerParts, Sharing

_FRAGMENT_GROWTH = 1.5
"""A core's fragment may grow by this factor, to hold what other instances read around it; they read it in place."""


class ReadKey(NamedTuple):
    """A value that a core reads for a step."""

    step: int
    core: int
    value: int


@dataclass(frozen=True)
class Source:
    """A box that is read, and the part that it lies in; None for inputs of the network."""

    part: Part | None
    box: Box


@dataclass(frozen=True)
class Read:
    """A core needs `box` of a value for a step, from these sources, which cover it."""

    step: int
    core: int
    value: int
    box: Box
    sources: tuple[Source, ...]

    @property
    def key(self) -> ReadKey:
        """The step, the core and the value."""
        return ReadKey(self.step, self.core, self.value)


@dataclass(frozen=True)
class Piecewise:
    """Steps whose tiles each read from one source, though together they read from several (see `cut_between_sources`).

    `cuts`: per step, into how many tiles its cores have to cut their first axis. `reads`: what replaces a read of
    several sources.
    """

    cuts: dict[int, int] = field(default_factory=dict)
    reads: dict[ReadKey, tuple[Read, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Flow:
    """The steps, in running order, and everything that they read."""

    graph: InstanceGraph
    steps: tuple[LayerParts, ...]
    cores: int
    pieces: Piecewise = field(default_factory=Piecewise)

    @cached_property
    def producing_step(self) -> dict[Part, int]:
        """The step that makes each part."""
        return {
            Part(step.instance, value): number
            for number, step in enumerate(self.steps)
            for core in step.cores
            if core is not None
            for value in core.made
        }

    def boxes_made(self, part: Part) -> list[Box | None]:
        """The box of a part that each core makes."""
        step = self.steps[self.producing_step[part]]
        return [None if core is None else core.made.get(part.value) for core in step.cores]

    def box(self, part: Part) -> Box:
        """The box of a whole part."""
        if part.instance == NETWORK:
            return whole(self.graph.network.shapes[part.value])
        return self.graph.instances[part.instance].needed[part.value]

    @cached_property
    def last_step(self) -> dict[Part, int]:
        """The last step that makes or reads each part."""
        return {
            part: max((read.step for read in reads), default=self.producing_step[part])
            for part, reads in self.readers.items()
        }

    @cached_property
    def reads(self) -> tuple[tuple[Read, ...], ...]:
        """Per step, what its cores read."""
        return tuple(
            tuple(
                self.read(number, core, value, box)
                for core, part in enumerate(step.cores)
                if part is not None
                for value, box in part.inputs.items()
            )
            for number, step in enumerate(self.steps)
        )

    @cached_property
    def read_of_core(self) -> dict[ReadKey, Read]:
        """What a core reads of a value for all its tiles of a step."""
        return {read.key: read for reads in self.reads for read in reads}

    def read(self, step: int, core: int, value: int, box: Box) -> Read:
        """The read of a box of a value by a core for a step."""
        return Read(step, core, value, box, self.sources(self.steps[step].instance, value, box))

    def sources(self, instance: int, value: int, box: Box) -> tuple[Source, ...]:
        """The parts in which an instance finds a box of a value."""
        own = Part(instance, value)
        if own in self.producing_step:
            return (Source(own, box),)
        sources = []
        for transfer in self._handed_to.get(own, ()):
            shared = intersection(transfer.box, box)
            if shared is not None:
                sources.append(Source(transfer.part, shared))
        return tuple(sources) or (Source(None, box),)

    @cached_property
    def _handed_to(self) -> dict[Part, list[Transfer]]:
        """By instance and value, what others hand to it."""
        transfers: dict[Part, list[Transfer]] = {}
        for instance, each in enumerate(self.graph.transfers):
            for transfer in each:
                transfers.setdefault(Part(instance, transfer.value), []).append(transfer)
        return transfers

    @cached_property
    def readers(self) -> dict[Part, list[Read]]:
        """Per part, the reads of some of it, in running order."""
        readers: dict[Part, list[Read]] = {part: [] for part in self.producing_step}
        for reads in self.reads:
            for read in reads:
                for source in read.sources:
                    if source.part is not None:
                        readers[source.part].append(read)
        return readers

    def uses(self, part: Part) -> list[int]:
        """The steps that make or read a part, ascending."""
        return sorted({self.producing_step[part], *(read.step for read in self.readers[part])})

    @cached_property
    def input_readers(self) -> dict[int, list[int]]:
        """Per input of the network, the steps that read it, ascending."""
        readers: dict[int, list[int]] = {}
        for number, reads in enumerate(self.reads):
            for value in sorted({read.value for read in reads if read.sources[0].part is None}):
                readers.setdefault(value, []).append(number)
        return readers

    @cached_property
    def fragments(self) -> dict[Part, tuple[Box | None, ...]]:
        """Per part, the box of it that each core holds in its LB: a hull of the boxes that it makes and reads."""
        return {part: self._fragments(part) for part in self.producing_step}

    def _fragments(self, part: Part) -> tuple[Box | None, ...]:
        made = self.boxes_made(part)
        held = list(made)
        for read in self.readers[part]:
            needed = next(source.box for source in read.sources if source.part == part)
            wider = hull(held[read.core], needed)
            is_inside = self.steps[read.step].instance == part.instance
            if is_inside or size(wider) <= _FRAGMENT_GROWTH * size(made[read.core]):
                held[read.core] = wider
        return tuple(held)


def cut_between_sources(flow: Flow, sharing: Sharing) -> Piecewise:
    """The coarsest cuts of steps such that each tile reads from one source, if there are such cuts.

    If an instance takes samples that several instances made (Fig. 8's concatenations), nothing has to be
    concatenated if its tiles are cut between the samples: each reads the part that one of them left in the LB.
    """
    pieces = Piecewise()
    for number, reads in enumerate(flow.reads):
        joint = [read for read in reads if len(read.sources) > 1]
        step = flow.steps[number]
        extents = {shape_of(part.made[step.primary])[0] for part in step.cores if part and part.made[step.primary]}
        for factor in range(2, min(extents, default=0) + 1) if joint else ():
            if all(extent % factor == 0 for extent in extents):
                by_tile = _tile_reads(flow, sharing, number, factor)
                if all(len(tile.sources) == 1 for read in joint for tile in by_tile[read.key]):
                    pieces.cuts[number] = factor
                    pieces.reads.update({read.key: by_tile[read.key] for read in joint})
                    break
    return pieces


def _tile_reads(flow: Flow, sharing: Sharing, number: int, factor: int) -> dict[ReadKey, tuple[Read, ...]]:
    """The reads of each core for each of `factor` tiles along the first axis."""
    reads: dict[ReadKey, tuple[Read, ...]] = {}
    for core, part in enumerate(flow.steps[number].cores):
        for tile in [] if part is None else _tiles(sharing, flow.steps[number], part, factor):
            for value, box in tile.inputs.items():
                read = flow.read(number, core, value, box)
                reads[read.key] = (*reads.get(read.key, ()), read)
    return reads


def _tiles(sharing: Sharing, step: LayerParts, part: CorePart, factor: int) -> Iterator[CorePart]:
    primary = part.made[step.primary]
    start, extent = primary[0][0], shape_of(primary)[0]
    for index in range(factor):
        ((first, last),) = piece((extent,), (factor,), (index,))
        rows = start + first, start + last
        made = {value: (rows, *box[1:]) for value, box in part.made.items() if box == primary}
        tile = sharing.part(step.instance, step.layer, made)
        assert tile is not None
        yield tile
