"""A simulated run as a report draws it: what engines do over time, how full memories are, and when layers run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..clusters.compiler import DsaProgram
from ..program.instructions import INITIAL, Compute, Engine, Level, Memory, Role, Unit
from ..simulate.timing import Timeline
from .order_svg import are_abreast, order_svg, running_order
from .trace import event_name, kind_of


@dataclass(frozen=True)
class Span:
    """What an engine does from a cycle to another one: a kind of instruction (`kind_of`), and the first of them."""

    kind: str
    start: float
    end: float
    title: str


@dataclass(frozen=True)
class EngineRow:
    """An engine, the share of the run that it is busy, and its spans in order."""

    name: str
    share: float
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Filling:
    """How full a memory is: the most bytes of live buffers in each of equal parts of the run."""

    name: str
    capacity: int
    most: tuple[int, ...]


@dataclass(frozen=True)
class LayerRow:
    """A layer by the name of its result: its tiles, the cycles of the unit that it uses most, in the mean of all cores,
    and from when until when it runs."""

    name: str
    tiles: int
    unit: str
    cycles: float
    start: float
    end: float


@dataclass(frozen=True)
class RunPicture:
    """The longest run of a program. `order` is the picture of its instances; `is_abreast`: some take turns."""

    cycles: float
    engines: tuple[EngineRow, ...]
    memories: tuple[Filling, ...]
    layers: tuple[LayerRow, ...]
    order: str
    is_abreast: bool


_SHORTEST = 1 / 2400
"""Spans of one kind that are shorter than this part of the run, and not farther apart, are drawn together."""
_PARTS = 240
"""Parts of the run for which the filling of memories is told."""


def picture_of(made: DsaProgram) -> RunPicture:
    """What a report shows of a program."""
    timeline, flow = made.timeline, made.generated.residence.flow
    shares = {each.engine: each.share for each in made.report.utilisation}
    return RunPicture(
        timeline.cycles,
        tuple(EngineRow(str(engine), shares[engine], row) for engine, row in engine_spans(timeline).items()),
        tuple(fillings(timeline)),
        tuple(layer_rows(timeline)),
        order_svg(flow.graph, running_order(flow)),
        are_abreast(flow),
    )


def engine_spans(timeline: Timeline) -> dict[Engine, tuple[Span, ...]]:
    """Per engine, its spans in order; those that are too short to be seen are put together."""
    gap = timeline.cycles * _SHORTEST
    spans: dict[Engine, list[Span]] = {engine: [] for engine in timeline.program.engines()}
    for index, instruction in enumerate(timeline.program.instructions):
        kind, name = kind_of(instruction), f"#{index} {event_name(instruction)}"
        for engine, start, end in timeline.occupied_engines(index):
            row = spans[engine]
            last = row[-1] if row else None
            if last and last.kind == kind and start - last.end < gap and end - start < 2 * gap:
                row[-1] = Span(kind, last.start, end, f"{last.title.removesuffix(' and more')} and more")
            else:
                row.append(Span(kind, start, end, name))
    return {engine: tuple(row) for engine, row in spans.items()}


def fillings(timeline: Timeline) -> Iterator[Filling]:
    """Of the GBs and the LBs. A buffer takes its bytes from its first use to its last one; inputs and constants are
    there from the start, and outputs stay."""
    program, cycles = timeline.program, timeline.cycles or 1.0
    lives: dict[str, tuple[float, float]] = {}
    for instruction, start, end in zip(program.instructions, timeline.starts, timeline.ends, strict=True):
        for region in (*instruction.reads, *instruction.writes):
            first, last = lives.get(region.buffer, (start, end))
            lives[region.buffer] = min(first, start), max(last, end)
    changes: dict[Memory, list[tuple[float, int]]] = {}
    for buffer in program.buffers:
        if buffer.memory.level is Level.DDR or buffer.name not in lives:
            continue
        start, end = lives[buffer.name]
        start = 0.0 if buffer.role in INITIAL else start
        end = cycles if buffer.role is Role.OUTPUT else end
        changes.setdefault(buffer.memory, []).extend(((start, buffer.size), (end, -buffer.size)))
    for memory in sorted(changes, key=lambda each: (each.level is Level.LB, each.cluster, each.core)):
        yield Filling(str(memory), timeline.cost.capacity(memory), _most(changes[memory], cycles))


def _most(changes: Iterable[tuple[float, int]], cycles: float) -> tuple[int, ...]:
    """The most bytes in each part of the run. What ends makes room for what begins at the same time."""
    moments, sizes = zip(*sorted(changes), strict=True)
    parts = np.array(moments) / cycles * _PARTS
    held = np.concatenate(([0], np.cumsum(sizes)))  # before the first change, and after each
    most = held[np.searchsorted(parts, np.arange(_PARTS), side="left")]
    np.maximum.at(most, np.minimum(parts.astype(int), _PARTS - 1), held[1:])
    return tuple(most.tolist())


def layer_rows(timeline: Timeline) -> Iterator[LayerRow]:
    """Layers in the order in which they begin."""
    tiles: dict[str, int] = {}
    busy: dict[str, dict[Unit, float]] = {}
    spans: dict[str, tuple[float, float]] = {}
    cores: set[tuple[int, int | None]] = set()
    for index, instruction in enumerate(timeline.program.instructions):
        if not isinstance(instruction, Compute):
            continue
        name, start, end = instruction.label, timeline.starts[index], timeline.ends[index]
        cores.add((instruction.cluster, instruction.core))
        tiles[name] = tiles.get(name, 0) + 1
        first, last = spans.get(name, (start, end))
        spans[name] = min(first, start), max(last, end)
        used = busy.setdefault(name, {})
        for engine, begun, done in timeline.occupied_engines(index):
            used[engine.unit] = used.get(engine.unit, 0.0) + done - begun
    for name in sorted(spans, key=spans.__getitem__):
        unit = max(busy[name], key=busy[name].__getitem__)
        yield LayerRow(name, tiles[name], unit.value, busy[name][unit] / len(cores), *spans[name])
