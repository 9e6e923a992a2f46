"""Curves of searches as an SVG picture: the best run time so far, over trials on the left and over seconds beside it.

Run times are on a logarithmic scale. A curve is a staircase: what was found counts from when it was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from eqfuse.benchmarks.searches.results import (
    LONG_PEER,
    NO_INTENSIVE,
    NO_REFORMER,
    PEER,
    PLAIN,
    REFERENCE,
    TUNED,
    Point,
    Search,
)

COLOURS = {
    TUNED: "#2563a8",
    NO_INTENSIVE: "#2f9e77",
    NO_REFORMER: "#e0a021",
    PEER: "#b8413b",
    LONG_PEER: "#8a5bb5",
    REFERENCE: "#222222",
    PLAIN: "#6b7785",
}
_WIDTH, _HEIGHT = 1000, 380
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 62, 16, 44
_BETWEEN = 64
_LEGEND = 150
"""Pixels of an entry."""
_TICKS = 6
_STEPS = (1.0, 2.0, 3.0, 5.0, 7.0)
"""Times a power of ten, where there is a line for a run time."""


@dataclass(frozen=True)
class _Panel:
    """Where one diagram is, in pixels, and what its borders mean: `last` across, and run times upwards in seconds."""

    left: float
    width: float
    last: float
    lowest: float
    highest: float

    def x(self, value: float) -> float:
        return self.left + self.width * value / self.last

    def y(self, latency: float) -> float:
        share = (log10(latency) - log10(self.lowest)) / (log10(self.highest) - log10(self.lowest))
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def curves_svg(title: str, searches: Mapping[str, Search], levels: Mapping[str, float]) -> str:
    """The picture of at least one curve. `levels` are seconds of others, which are drawn as dashed lines."""
    curves = {name: search.measured for name, search in searches.items() if search.measured}
    latencies = [*levels.values(), *(point.latency for curve in curves.values() for point in curve)]
    lowest, highest = 0.9 * min(latencies), 1.1 * max(latencies)
    width = (_WIDTH - _LEFT - _RIGHT - _BETWEEN) / 2
    axes: list[tuple[str, Callable[[Point], float]]] = [
        ("trials", lambda point: float(point.trials)),
        ("seconds of search", lambda point: point.seconds),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14" fill="#222">{escape(title)}</text>',
        *_legend([*curves, *levels], set(levels)),
    ]
    for number, (name, across) in enumerate(axes):
        last = max(across(curve[-1]) for curve in curves.values())
        panel = _Panel(_LEFT + number * (width + _BETWEEN), width, last, lowest, highest)
        parts += _panel(panel, name, {who: _steps(curve, across) for who, curve in curves.items()}, levels)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _steps(curve: Sequence[Point], across: Callable[[Point], float]) -> list[tuple[float, float]]:
    """Corners of the staircase: along first, then down."""
    found = [(across(curve[0]), curve[0].latency)]
    for point in curve[1:]:
        found += [(across(point), found[-1][1]), (across(point), point.latency)]
    return found


def _panel(
    panel: _Panel, across: str, curves: Mapping[str, Sequence[tuple[float, float]]], levels: Mapping[str, float]
) -> Iterator[str]:
    yield from _grid(panel)
    middle = panel.left + panel.width / 2
    yield f'<text x="{middle:.1f}" y="{_HEIGHT - 8}" fill="#555" text-anchor="middle">{across}</text>'
    for who, seconds in levels.items():
        y, right = panel.y(seconds), panel.left + panel.width
        line = f'x1="{panel.left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
        yield f'<line {line} stroke="{COLOURS[who]}" stroke-dasharray="5 4"/>'
    for who, corners in curves.items():
        path = " ".join(f"{panel.x(x):.1f},{panel.y(latency):.1f}" for x, latency in corners)
        cx, cy = path.rpartition(" ")[2].split(",")
        yield f'<polyline points="{path}" fill="none" stroke="{COLOURS[who]}" stroke-width="2"/>'
        yield f'<circle cx="{cx}" cy="{cy}" r="3" fill="{COLOURS[who]}"/>'


def _grid(panel: _Panel) -> Iterator[str]:
    right, bottom = panel.left + panel.width, _HEIGHT - _BOTTOM
    for seconds in run_time_ticks(panel.lowest, panel.highest):
        y = panel.y(seconds)
        yield f'<line x1="{panel.left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        label = f"{1e3 * seconds:.3g} ms"
        yield f'<text x="{panel.left - 6:.1f}" y="{y + 4:.1f}" fill="#555" text-anchor="end">{label}</text>'
    step = round_step(panel.last / _TICKS)
    for number in range(int(panel.last / step) + 1):
        x = panel.x(number * step)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}" stroke="#eeeeee"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" fill="#555" text-anchor="middle">{number * step:g}</text>'
    frame = f'x="{panel.left:.1f}" y="{_TOP}" width="{panel.width:.1f}" height="{bottom - _TOP}"'
    yield f'<rect {frame} fill="none" stroke="#999999"/>'


def run_time_ticks(lowest: float, highest: float) -> list[float]:
    """Round numbers between two run times, both above 0."""
    powers = range(floor(log10(lowest)), ceil(log10(highest)) + 1)
    return [tick for power in powers for step in _STEPS if lowest <= (tick := step * 10.0**power) <= highest]


def round_step(wanted: float) -> float:
    """1, 2 or 5 times a power of ten, not below `wanted`, which is above 0."""
    power = 10.0 ** floor(log10(wanted))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= wanted)


def _legend(names: Sequence[str], dashed: set[str]) -> Iterator[str]:
    for number, name in enumerate(names):
        x = _LEFT + number * _LEGEND
        style = ' stroke-dasharray="5 4"' if name in dashed else ' stroke-width="2"'
        label = f"{name}, end to end" if name in dashed else name
        yield f'<line x1="{x}" x2="{x + 18}" y1="40" y2="40" stroke="{COLOURS[name]}"{style}/>'
        yield f'<text x="{x + 23}" y="44" fill="#222">{escape(label)}</text>'
