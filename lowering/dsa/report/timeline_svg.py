"""A simulated run as an SVG picture: a row for each engine, time to the right, colours by kind of instruction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....support.text import escape_html
from ..program.instructions import Engine
from ..simulate.time_report import busy_cycles
from ..simulate.timing import Timeline
from .trace import event_name, kind_of

COLOURS = {
    "mme": "#2563a8",
    "vme": "#2f9e77",
    "vector": "#e0a021",
    "dma": "#b8413b",
    "hoist": "#8a5bb5",
    "copy": "#6b7785",
    "redistribute": "#d2709e",
    "gather": "#8c6239",
    "barrier": "#222222",
}
"""Colours by kind of instruction, which differ in grey, too."""

_WIDTH, _ROW, _BAR = 1200, 14, 11
_LEFT, _TOP, _RIGHT, _BOTTOM = 76, 44, 64, 22
_GAP = 8
"""Pixels between the rows of two clusters."""
_TICKS = 8
"""Ticks of the time axis at most: their numbers must not touch."""
_WIDE = 3.0
"""Pixels from which on a span can be pointed at, and has a title."""


@dataclass(frozen=True)
class _Span:
    kind: str
    start: float
    end: float
    title: str


@dataclass(frozen=True)
class _Frame:
    """The height in pixels, and pixels per cycle."""

    height: int
    scale: float


def timeline_svg(timeline: Timeline) -> str:
    """The picture. A span shorter than a pixel joins the one before it of its kind."""
    engines = timeline.program.engines()
    rows = _rows(engines)
    height = max((*rows.values(), _TOP)) + _ROW + _BOTTOM
    view = _Frame(height, (_WIDTH - _LEFT - _RIGHT) / (timeline.cycles or 1.0))
    spans = _spans(timeline, 0.5 / view.scale)
    shares = {engine: busy / (timeline.cycles or 1.0) for engine, busy in busy_cycles(timeline).items()}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend({span.kind for each in spans.values() for span in each}),
        *_axis(timeline, view),
        *(each for engine, row in rows.items() for each in _lane(engine, row, spans[engine], shares[engine], view)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rows(engines: list[Engine]) -> dict[Engine, int]:
    """The top of each engine's row."""
    rows: dict[Engine, int] = {}
    top = _TOP
    for engine, before in zip(engines, [*engines[:1], *engines], strict=False):
        top += _GAP if engine.cluster != before.cluster else 0
        rows[engine] = top
        top += _ROW
    return rows


def _spans(timeline: Timeline, gap: float) -> dict[Engine, list[_Span]]:
    spans: dict[Engine, list[_Span]] = {engine: [] for engine in timeline.program.engines()}
    for index, instruction in enumerate(timeline.program.instructions):
        kind = kind_of(instruction)
        for engine, start, end in timeline.occupied_engines(index):
            _add(spans[engine], _Span(kind, start, end, f"#{index} {event_name(instruction)}"), gap)
    return spans


def _add(row: list[_Span], span: _Span, gap: float) -> None:
    """Add a span; one that is too small to see joins the one before."""
    last = row[-1] if row else None
    if last and last.kind == span.kind and span.start - last.end < gap and span.end - span.start < 2 * gap:
        row[-1] = _Span(last.kind, last.start, span.end, f"{last.title.removesuffix(' and more')} and more")
    else:
        row.append(span)


def _legend(kinds: set[str]) -> Iterator[str]:
    left = _LEFT
    for kind, colour in COLOURS.items():
        if kind in kinds:
            yield f'<rect x="{left}" y="8" width="11" height="11" fill="{colour}"/>'
            yield f'<text x="{left + 16}" y="17" fill="#222">{kind}</text>'
            left += 34 + 7 * len(kind)


def _axis(timeline: Timeline, view: _Frame) -> Iterator[str]:
    step = _round_step(timeline.cycles / _TICKS)
    for tick in range(int(timeline.cycles / step) + 1):
        x = _LEFT + tick * step * view.scale
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{view.height - _BOTTOM}" stroke="#dddddd"/>'
        yield f'<text x="{x:.1f}" y="{_TOP - 9}" fill="#555" text-anchor="middle">{tick * step:,.0f}</text>'
    seconds = timeline.cycles / timeline.device.clock
    total = f"cycles; {timeline.cycles:,.0f} in all, {seconds * 1e6:,.1f} µs at {timeline.device.clock / 1e9:g} GHz"
    yield f'<text x="{_LEFT}" y="{view.height - 7}" fill="#555">{total}</text>'


def _round_step(wanted: float) -> float:
    """1, 2 or 5 times a power of ten, not below `wanted`; 1 if there is nothing to show."""
    power = 1.0
    while power * 10 <= wanted:
        power *= 10
    return next(power * step for step in (1, 2, 5, 10) if power * step >= wanted)


def _lane(engine: Engine, top: int, spans: list[_Span], share: float, view: _Frame) -> Iterator[str]:
    yield f'<text x="{_LEFT - 6}" y="{top + _BAR - 1}" fill="#222" text-anchor="end">{engine}</text>'
    yield f'<text x="{_WIDTH - _RIGHT + 6}" y="{top + _BAR - 1}" fill="#555">{share:.0%}</text>'
    thin: dict[str, list[str]] = {}
    for span in spans:
        x, length = _LEFT + span.start * view.scale, max((span.end - span.start) * view.scale, 0.6)
        if length < _WIDE:
            thin.setdefault(span.kind, []).append(f"M{x:.1f} {top}h{length:.1f}v{_BAR}h-{length:.1f}z")
        else:
            title = escape_html(f"{span.title}: {span.start:,.0f} to {span.end:,.0f}")
            shape = f'x="{x:.1f}" y="{top}" width="{length:.1f}" height="{_BAR}"'
            yield f'<rect {shape} fill="{COLOURS[span.kind]}"><title>{title}</title></rect>'
    for kind, paths in thin.items():
        yield f'<path fill="{COLOURS[kind]}" d="{"".join(paths)}"/>'
