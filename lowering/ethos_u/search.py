"""The graph and the setting of Vela that give the best program by Vela's own estimate.

Vela's defaults on the model as exported come first: no choice may be worse. Then come the model as the rules rewrote
it, graphs that differ in one place (alternatives/), and settings: Vela misses cascades that it finds with less room, so
it is given other limits, and its scheduler is asked to do without some features. Where the arena lies in SRAM that the
processor shares, SRAM is what is scarce: the least is wanted at hardly more cycles. Elsewhere cycles are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product

from ...costmodels.ethos_device import EthosDevice
from ..base.errors import LoweringError
from .alternatives import alternatives
from .tosa.flatbuffer import to_bytes
from .tosa.graph import Graph
from .vela import Program, Setting, compile_by_vela

_SLACK = 1.02
"""The factor of cycles that less SRAM may cost, where SRAM is shared."""
_FEATURES: tuple[tuple[str, ...], ...] = ((), ("WeightBuffering",), ("Grouping",), ("Grouping", "WeightBuffering"))
_SHARED_PARTS = (0.5, 0.25, 0.35, 0.7, 0.85, 0.18)
_DEDICATED_PARTS = (0.75, 0.67, 0.85, 0.58, 0.5, 0.92, 0.42, 0.33)
"""Parts of the SRAM in use, or of that which there is, that Vela is given; those that helped most networks first."""
_REFINEMENTS = (0.97, 1.03, 0.94, 1.06, 0.985, 1.015)
"""Factors of the best limit that are tried at the end: estimates jump where one more cascade fits."""
_FOR_GRAPHS, _FOR_SETTINGS = 0.45, 0.75
"""Parts of the time that is left for graphs under Vela's defaults, and of the rest for settings."""
_ALIGNMENT = 1024


@dataclass(frozen=True)
class Choice:
    """A graph, in words how it came about, and a setting of Vela for it. `form` is the place of the form of the model
    that the graph came from."""

    label: str
    graph: Graph = field(repr=False)
    setting: Setting = field(default_factory=Setting)
    form: int = 0

    def __str__(self) -> str:
        return f"{self.label}; {self.setting}"


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

    def run(self, forms: Sequence[tuple[str, Graph]]) -> Outcome:
        """Improve one thing at a time: graphs under Vela's defaults, settings, graphs under the best of these, and
        limits near the best one."""
        for number, (label, graph) in enumerate(forms, 1):
            self._try(Choice(label, graph, form=number), by_cycles=True)
        with self._share_of_time(_FOR_GRAPHS):
            self._improve_graph(by_cycles=True)
        with self._share_of_time(_FOR_SETTINGS):
            for setting in _settings(self._device, self._best):
                self._try_setting(setting)
        self._improve_graph(by_cycles=False)
        if (limit := self._chosen.setting.arena) is not None:
            for factor in _REFINEMENTS:
                arena = _aligned(limit * factor)
                self._try_setting(Setting(self._chosen.setting.optimise, arena, self._chosen.setting.disabled))
        return Outcome(self._chosen, self._best, self._first, self._plain, self._count, tuple(self._refused))

    @contextmanager
    def _share_of_time(self, share: float) -> Iterator[None]:
        """Within, the end is nearer."""
        end, now = self._end, time.monotonic()
        self._end = now + share * max(0.0, end - now)
        yield
        self._end = end

    def _improve_graph(self, *, by_cycles: bool) -> None:
        """Take alternatives while one is better, each kind of place once."""
        labels: set[str] = set()
        improved = True
        while improved and not self._is_late():
            improved = False
            for other in alternatives(self._chosen.graph):
                if other.label in labels:
                    continue
                labels.add(other.label)
                label = f"{self._chosen.label}, {other.label}"
                choice = Choice(label, other.graph, self._chosen.setting, self._chosen.form)
                if self._try(choice, by_cycles=by_cycles):
                    improved = True
                    break

    def _try_setting(self, setting: Setting) -> None:
        self._try(Choice(self._chosen.label, self._chosen.graph, setting, self._chosen.form), by_cycles=False)

    def _try(self, choice: Choice, *, by_cycles: bool) -> bool:
        """Whether a choice is better than the best, which it becomes."""
        known = self._tried.setdefault(choice.graph.digest, set())
        if choice.setting in known or self._is_late():
            return False
        known.add(choice.setting)
        begin = time.monotonic()
        try:
            program = compile_by_vela(to_bytes(choice.graph), self._device, choice.setting)
        except LoweringError as error:
            line = f"{choice.label}: {error}"
            if line not in self._refused:
                self._observer(line)
            self._refused[line] = None
            return False
        finally:
            self._longest = max(self._longest, time.monotonic() - begin)
        self._count += 1
        if self._rank(program, by_cycles) >= self._rank(self._best, by_cycles):
            return False
        self._best, self._chosen = program, choice
        self._observer(f"{program.estimate.cycles:,} cycles, {program.estimate.sram:,} bytes of SRAM: {choice}")
        return True

    def _is_late(self) -> bool:
        """Whether another program would not be there in time."""
        return time.monotonic() + self._longest > self._end

    def _rank(self, program: Program, by_cycles: bool) -> tuple[float, ...]:
        estimate = program.estimate
        if by_cycles or self._device.arena is not None:
            return (estimate.cpu_operators, estimate.cycles, estimate.sram)
        is_slow = estimate.cycles > _SLACK * self._plain.estimate.cycles
        return (estimate.cpu_operators, is_slow, estimate.sram, estimate.cycles)


def _settings(device: EthosDevice, best: Program) -> Iterator[Setting]:
    if device.arena is None:
        yield Setting("Size")
    room = device.arena or best.estimate.sram
    parts = (1.0, *(_DEDICATED_PARTS if device.arena else _SHARED_PARTS))
    for disabled, part in product(_FEATURES, parts):
        yield Setting("Performance", _aligned(room * part), disabled)


def _aligned(size: float) -> int:
    return max(1, int(size) // _ALIGNMENT) * _ALIGNMENT
