"""What flows between layers: the steps of a schedule in running order, and who reads which part of what.

A step is one layer of one instance, on all cores. What an instance makes of a value is a `Part`; its consumers are
steps of the same instance, and of others that it is handed to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ..network.boxes import Box, hull, intersection, size
from ..schedule.instances import InstanceGraph
from ..tiles.core_parts import LayerParts

_WIDER = 1.5
"""A fragment may grow so much by what other instances read around it: it is theirs then as it is."""

Part = tuple[int, int]
"""An instance, and a value that it makes."""


@dataclass(frozen=True)
class Source:
    """Some of what is read, and the part that it is of; None for inputs of the network."""

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


@dataclass(frozen=True)
class Flow:
    """The steps, in running order, and everything that they read."""

    graph: InstanceGraph
    steps: tuple[LayerParts, ...]
    cores: int
    pieces: Piecewise = field(default_factory=lambda: Piecewise())

    @cached_property
    def made_at(self) -> dict[Part, int]:
        """The step that makes each part."""
        return {
            (step.instance, value): number
            for number, step in enumerate(self.steps)
            for core in step.cores
            if core is not None
            for value in core.made
        }

    def made(self, part: Part) -> list[Box | None]:
        """What each core makes of a part."""
        step = self.steps[self.made_at[part]]
        return [None if core is None else core.made.get(part[1]) for core in step.cores]

    def box(self, part: Part) -> Box:
        """All of a part."""
        return self.graph.instances[part[0]].needed[part[1]]

    @cached_property
    def reads(self) -> tuple[tuple[Read, ...], ...]:
        """Per step, what its cores read."""
        return tuple(tuple(self._reads(number, step)) for number, step in enumerate(self.steps))

    def _reads(self, number: int, step: LayerParts) -> Iterator[Read]:
        for core, part in enumerate(step.cores):
            for value, box in ({} if part is None else part.inputs).items():
                yield Read(number, core, value, box, self.sources(step.instance, value, box))

    def sources(self, instance: int, value: int, box: Box) -> tuple[Source, ...]:
        """Where an instance finds a part of a value."""
        if (instance, value) in self.made_at:
            return (Source((instance, value), box),)
        found = []
        for transfer in self.graph.transfers[instance]:
            shared = intersection(transfer.box, box) if transfer.value == value else None
            if shared is not None:
                found.append(Source((transfer.producer, value), shared))
        return tuple(found) or (Source(None, box),)

    @cached_property
    def readers(self) -> dict[Part, list[Read]]:
        """Per part, what reads some of it, in running order."""
        found: dict[Part, list[Read]] = {part: [] for part in self.made_at}
        for reads in self.reads:
            for read in reads:
                for source in read.sources:
                    if source.part is not None:
                        found[source.part].append(read)
        return found

    @cached_property
    def fragments(self) -> dict[Part, tuple[Box | None, ...]]:
        """Per part, what each core holds of it in its LB: what it makes and what is needed there."""
        return {part: tuple(self._fragment(part)) for part in self.made_at}

    def _fragment(self, part: Part) -> Iterator[Box | None]:
        made = self.made(part)
        held = list(made)
        for read in self.readers[part]:
            wanted = next(source.box for source in read.sources if source.part == part)
            wider = hull(held[read.core], wanted)
            is_inside = self.steps[read.step].instance == part[0]
            if is_inside or size(wider) <= _WIDER * size(made[read.core]):
                held[read.core] = wider
        yield from held


@dataclass(frozen=True)
class Piecewise:
    """Steps whose tiles each read from one source, though together they read from several (see piecewise.py).

    `cuts`: per step, into how many tiles its cores have to cut their first axis. `reads`: what replaces a read of
    several sources, by (step, core, value).
    """

    cuts: dict[int, int] = field(default_factory=dict)
    reads: dict[tuple[int, int, int], tuple[Read, ...]] = field(default_factory=dict)


@dataclass
class Reading:
    """How the steps of one instance read a value that is not in their own LB: what each core holds of it meanwhile.

    Boxes are hulls of what the core reads over all steps `first` to `last`.
    """

    instance: int
    value: int
    boxes: list[Box | None]
    first: int
    last: int
    count: int = 0
    sources: set[Part | None] = field(default_factory=set)
