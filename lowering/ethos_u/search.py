"""The graph and the setting of Vela that give the best program by Vela's own estimate.

Vela's defaults on the model as exported come first: no choice may be worse. Then come the model as the rules rewrote
it, graphs that differ in some places (alternatives/), and settings: Vela misses cascades that it finds with less room,
so it is given other limits, and its scheduler is asked to do without some features. If the processor shares the SRAM of
the arena, the least SRAM at hardly more cycles is best; otherwise the fewest cycles are.

A whole network takes Vela seconds, and the neighbourhood of one place milliseconds. So Vela estimates alternatives in
their neighbourhoods, and the fastest of each place are tried together in the whole network; if they are no better, each
half of them is tried, and so on. What changes where maps lie does not show in a neighbourhood: it is tried in the whole
network where operators of the best program wait for memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product

from ...costmodels.ethos_device import EthosDevice
from ..base.errors import LoweringError
from .alternatives import Alternative, alternatives, other_places, products_in_parts, rows_in_parts
from .neighbourhood import around
from .tosa.flatbuffer import to_bytes
from .tosa.graph import Graph
from .vela import Program, Setting, compile_by_vela

_SLACK, _PLENTY = 1.02, 256 * 1024
"""Less SRAM may take this factor of the cycles if SRAM is shared, and none if the first program has at most this many
bytes."""
_FEATURES: tuple[tuple[str, ...], ...] = ((), ("WeightBuffering",), ("Grouping",), ("Grouping", "WeightBuffering"))
_DEDICATED_PARTS = (0.75, 0.67, 0.85, 0.58, 0.5, 0.92, 0.42, 0.33)
"""Parts of the memory that there is, which Vela is given; those that helped most networks first."""
_SPAN, _HALVINGS = 16, 6
"""How often the least limit that is tried fits in the memory in use, and how many limits between them are tried."""
_REFINEMENTS = (0.97, 1.03, 0.94, 1.06, 0.985, 1.015)
"""Factors of the best limit that are tried at the end: estimates jump where one more cascade fits."""
_FOR_GRAPHS, _FOR_GRAPHS_FIRST, _FOR_SETTINGS, _FOR_ESTIMATES = 0.5, 0.25, 0.65, 0.5
"""Parts of the time that is left for graphs under Vela's defaults (the lesser one if SRAM counts more than cycles), of
the rest for settings, and of the time for graphs for estimates of alternatives."""
_PLACES, _NEXT_BEST, _CLEARLY_LESS = 2, 3, 0.8
"""At this many places, those that save most, up to this many alternatives are tried beside the fastest. Each saves at
most this part of the cycles that the one before saves."""
_WAIT = 0.005
"""The part of all cycles that operators have to wait for memory, for alternatives to be tried there."""
_LARGEST_LOSS = 0.002
"""The part of all cycles that an alternative may lose where it is, and still be tried: its neighbours may gain."""
_FEW = 3
"""Alternatives that the name of a choice lists; the number of others follows."""
_ALIGNMENT = 1024


@dataclass(frozen=True)
class Choice:
    """A graph, in words how it came about, and a setting of Vela for it. `form` is the place of the form of the model
    that the graph came from, `changes` are the alternatives that were taken."""

    label: str
    graph: Graph = field(repr=False)
    setting: Setting = field(default_factory=Setting)
    form: int = 0
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = (f"{len(self.changes) - _FEW} other changes",) if len(self.changes) > _FEW else ()
        return f"{', '.join((self.label, *self.changes[:_FEW], *more))}; {self.setting}"


@dataclass(frozen=True)
class Outcome:
    """The best program and the choice that gave it, the program of Vela's defaults on the `first` form, how many
    programs were made, and in a line each what Vela did not take."""

    choice: Choice
    program: Program
    first: Choice
    plain: Program
    candidates: int
    refused: tuple[str, ...]


def search(
    forms: Sequence[tuple[str, Graph]], device: EthosDevice, seconds: float, observer: Callable[[str], None]
) -> Outcome:
    """The best program that is found within `seconds`, of forms of one model by name, the one as exported first.

    Raises LoweringError if Vela refuses that one.
    """
    label, graph = forms[0]
    begin = time.monotonic()
    plain = compile_by_vela(to_bytes(graph), device, Setting())
    now = time.monotonic()
    return _Search(device, plain, Choice(label, graph), begin + seconds, now - begin, observer).run(forms[1:])


class _Search:
    def __init__(
        self, device: EthosDevice, plain: Program, first: Choice, end: float, longest: float,
        observer: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._device, self._plain, self._end, self._longest = device, plain, end, longest
        self._best, self._chosen, self._first, self._count = plain, first, first, 1
        self._observer = observer
        self._refused: dict[str, None] = {}
        self._tried = {first.graph.digest: {first.setting}}
        self._estimates: dict[str, float] = {}
        self._wants_cycles = True

    def run(self, forms: Sequence[tuple[str, Graph]]) -> Outcome:
        """Improve one thing at a time while that helps: graphs under Vela's defaults first, then settings, graphs under
        the best of these, and limits near the best one."""
        for number, (label, graph) in enumerate(forms, 1):
            self._try(Choice(label, graph, form=number))
        is_scarce = self._device.arena is None and self._plain.estimate.sram > _PLENTY
        with self._share_of_time(_FOR_GRAPHS_FIRST if is_scarce else _FOR_GRAPHS):
            while self._improve_waits() or self._improve_places():
                pass
            self._improve_graph()
        self._wants_cycles = self._device.arena is not None
        if not self._wants_cycles:
            self._improve_memory()
        before = None
        while self._chosen != before:
            before = self._chosen
            with self._share_of_time(_FOR_SETTINGS):
                self._improve_setting()
            self._improve_waits()
            self._improve_places()
            self._improve_graph()
            if (limit := self._chosen.setting.arena) is not None:
                for factor in _REFINEMENTS:
                    self._try_setting(replace(self._chosen.setting, arena=_aligned(limit * factor)))
        return Outcome(self._chosen, self._best, self._first, self._plain, self._count, tuple(self._refused))

    @contextmanager
    def _share_of_time(self, share: float) -> Iterator[None]:
        """Within, the end is nearer."""
        end, now = self._end, time.monotonic()
        self._end = now + share * max(0.0, end - now)
        yield
        self._end = end

    def _improve_places(self) -> bool:
        """Take the alternatives that cost least where they are: all of them if that is better, else parts of them.

        Of the places that matter most, some that save clearly less are tried, too: a cascade may prefer them.
        """
        base = self._chosen
        found: dict[str, list[tuple[float, Alternative]]] = {}
        with self._share_of_time(_FOR_ESTIMATES):
            for other in alternatives(base.graph):
                if time.monotonic() >= self._end:
                    break
                if (saved := self._saved(base.graph, other)) > 0:
                    found.setdefault(other.place, []).append((saved, other))
        ranked = [sorted(each, key=lambda pair: -pair[0]) for each in found.values()]
        ranked.sort(key=lambda each: -each[0][0])
        improved = self._take(base, [best[1] for best, *_ in ranked])
        for (least, _), *others in ranked[:_PLACES]:
            count = 0
            for saved, other in others:
                if saved < _CLEARLY_LESS * least and count < _NEXT_BEST:
                    improved = self._take(base, [other]) or improved
                    count, least = count + 1, saved
        return improved

    def _improve_waits(self) -> bool:
        """Take alternatives where the program waits for memory, whatever they save by themselves: in a neighbourhood
        alone maps lie in fast memory, which in the whole network lie in slow memory."""
        if self._device.arena is None:
            return False  # all maps lie in one memory
        base, waits = self._chosen, self._best.waits
        least = _WAIT * self._best.estimate.cycles
        found: dict[str, list[tuple[float, Alternative]]] = {}
        for other in other_places(base.graph):
            if other.graph is not None:
                before, _ = around(base.graph, other.graph)
                wait = sum(waits.get(each.output, 0) for each in before.operators)
                if wait > least:
                    found.setdefault(other.place, []).append((wait, other))
        places = sorted(found.values(), key=lambda each: -each[0][0])
        improved = False
        for number in range(max(map(len, places), default=0)):
            others = [each[number][1] for each in places if len(each) > number]
            improved = self._take(self._chosen, others) or improved
        return improved

    def _saved(self, graph: Graph, other: Alternative) -> float:
        """The cycles that an alternative saves by the estimate of its neighbourhood alone."""
        if other.graph is None:
            return 0.0
        before, after = around(graph, other.graph)
        return self._estimate(before) - self._estimate(after)

    def _estimate(self, graph: Graph) -> float:
        if graph.form not in self._estimates:
            try:
                cycles = float(compile_by_vela(to_bytes(graph), self._device, Setting()).estimate.cycles)
            except LoweringError:
                cycles = math.inf
            self._estimates[graph.form] = cycles
        return self._estimates[graph.form]

    def _take(self, base: Choice, others: Sequence[Alternative]) -> bool:
        """Whether a graph with these alternatives, or with some of them, is better than the best."""
        if not others or self._is_late():
            return False
        graph, labels = base.graph, []
        for other in others:
            key = (other.place, other.label)
            made = next((each.graph for each in alternatives(graph) if (each.place, each.label) == key), None)
            if made is not None:
                graph = made
                labels.append(other.label)
        if self._try(replace(base, graph=graph, changes=(*base.changes, *labels))):
            return True
        half = (len(others) + 1) // 2
        if len(others) == 1:
            return False
        first = self._take(base, others[:half])
        return self._take(self._chosen if first else base, others[half:]) or first

    def _improve_memory(self) -> None:
        """Fewer integers of 32 bits at a time. The peak is that of all places, so one alone would not be better."""
        for kind in (rows_in_parts, products_in_parts):
            base = self._chosen
            for other in kind(base.graph):
                if other.graph is not None:
                    self._try(replace(base, graph=other.graph, changes=(*base.changes, other.label)))

    def _improve_setting(self) -> None:
        """Where memory is shared, the limit with which Vela uses least is bisected; else limits are tried in turn."""
        if self._device.arena is not None:
            for disabled, part in product(_FEATURES, (1.0, *_DEDICATED_PARTS)):
                arena = None if part == 1 else _aligned(self._device.arena * part)
                self._try_setting(Setting("Performance", arena, disabled))
            return
        self._try_setting(Setting("Size"))
        low, high = self._best.estimate.sram / _SPAN, float(self._best.estimate.sram)
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            if self._try_setting(Setting("Performance", _aligned(middle))):
                high = self._best.estimate.sram
            else:
                low = middle
        for disabled in _FEATURES[1:]:
            self._try_setting(replace(self._chosen.setting, disabled=disabled))

    def _improve_graph(self) -> None:
        """Try alternatives one by one while one is better, those that save most where they are first."""
        known: set[tuple[str, str]] = set()
        improved = True
        while improved and not self._is_late():
            improved = False
            least = -_LARGEST_LOSS * self._best.estimate.cycles
            graph = self._chosen.graph
            estimated = []
            for other in alternatives(graph):
                if self._is_late():
                    break
                if (other.place, other.label) not in known:
                    estimated.append((self._saved(graph, other), other))
            for saved, other in sorted(estimated, key=lambda each: -each[0]):
                known.add((other.place, other.label))
                if saved >= least and self._take(self._chosen, [other]):
                    improved = True
                    break

    def _try_setting(self, setting: Setting) -> bool:
        return self._try(replace(self._chosen, setting=setting))

    def _try(self, choice: Choice) -> bool:
        """Whether a choice is better than the best, which it becomes."""
        known = self._tried.setdefault(choice.graph.digest, set())
        if choice.setting in known or self._is_late():
            return False
        known.add(choice.setting)
        begin = time.monotonic()
        try:
            program = compile_by_vela(to_bytes(choice.graph), self._device, choice.setting)
        except LoweringError as error:
            line = f"{', '.join((choice.label, *choice.changes[len(self._chosen.changes) :][:_FEW]))}: {error}"
            if line not in self._refused:
                self._observer(line)
            self._refused[line] = None
            return False
        finally:
            self._longest = max(self._longest, time.monotonic() - begin)
        self._count += 1
        if self._rank(program) >= self._rank(self._best):
            return False
        self._best, self._chosen = program, choice
        self._observer(f"{program.estimate.cycles:,} cycles, {program.estimate.sram:,} bytes of SRAM: {choice}")
        return True

    def _is_late(self) -> bool:
        """Whether another program would not be there in time."""
        return time.monotonic() + self._longest > self._end

    def _rank(self, program: Program) -> tuple[float, ...]:
        estimate = program.estimate
        if self._wants_cycles:
            return (estimate.cpu_operators, estimate.cycles, estimate.sram)
        plain = self._plain.estimate
        is_slow = estimate.cycles > plain.cycles * (_SLACK if plain.sram > _PLENTY else 1.0)
        return (estimate.cpu_operators, is_slow, estimate.sram, estimate.cycles)


def _aligned(size: float) -> int:
    return max(1, int(size) // _ALIGNMENT) * _ALIGNMENT
