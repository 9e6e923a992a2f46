"""Plots as SVG: curves and points over two axes, and lanes over an axis of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from ...support.text import escape_html
from .markup import element, percent

Place = tuple[float, float]
_WIDTH, _LEFT, _TOP, _BOTTOM, _RIGHT = 660, 76, 32, 44, 18
"""Pixels of a plot, and of its margins."""
_INTERVALS = 6
"""Ticks of a linear axis are at most one more than this number."""


@dataclass(frozen=True)
class Axis:
    """From `least` to `most`; those of a logarithmic axis are positive. `text` writes a number at a tick."""

    label: str
    least: float
    most: float
    text: Callable[[float], str]
    is_log: bool = False

    def share(self, value: float) -> float:
        """Where a number is: 0 at the start, 1 at the end."""
        least, most, value = (log10(each) if self.is_log else each for each in (self.least, self.most, value))
        return (value - least) / ((most - least) or 1.0)

    def ticks(self) -> Sequence[float]:
        """Powers of ten, or round numbers at equal distances."""
        if self.is_log:
            return [10.0**power for power in range(ceil(log10(self.least) - 1e-9), floor(log10(self.most) + 1e-9) + 1)]
        step = _round_up((self.most - self.least) / _INTERVALS)
        return [step * number for number in range(ceil(self.least / step), floor(self.most / step + 1e-9) + 1)]


def linear(label: str, values: Iterable[float], text: Callable[[float], str]) -> Axis:
    """An axis from 0 to a round number that is at least each of the values."""
    most = max(values, default=0.0) or 1.0
    step = _round_up(most / _INTERVALS)
    return Axis(label, 0.0, step * ceil(most / step - 1e-9), text)


def logarithmic(label: str, values: Iterable[float], text: Callable[[float], str]) -> Axis:
    """An axis around all of the positive values, from a power of ten to another one."""
    found = [value for value in values if value > 0] or [1.0]
    least, most = floor(log10(min(found))), ceil(log10(max(found)))
    return Axis(label, 10.0**least, 10.0 ** max(most, least + 1), text, is_log=True)


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    scale = 10.0 ** floor(log10(value))
    return next(step * scale for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * scale >= value * (1 - 1e-9))


@dataclass(frozen=True)
class Mark:
    """A point of a plot, the text that is shown if it is pointed at, and the row of the table that it stands for."""

    place: Place
    kind: str
    tip: str
    group: int | None = None


@dataclass(frozen=True)
class Line:
    """A line through some points, with a style and a label beside one of them."""

    points: Sequence[Place]
    kind: str
    label: str = ""
    label_at: int = -1


def plot(across: Axis, upwards: Axis, lines: Iterable[Line], marks: Iterable[Mark], height: int = 260) -> str:
    """The plot, with a grid at the ticks."""

    def place(x: float, y: float) -> Place:
        width, tall = _WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM
        return _LEFT + width * across.share(x), height - _BOTTOM - tall * upwards.share(y)

    base, end = height - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for value in upwards.ticks():
        y = place(across.least, value)[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(upwards.text(value), _LEFT - 8, y + 4, "end"))
    for value in across.ticks():
        x = place(value, upwards.least)[0]
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{base}"/>')
        parts.append(_text(across.text(value), x, base + 16, "middle"))
    for line in lines:
        drawn = [place(*each) for each in line.points]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
        parts.append(f'<polyline class="{line.kind}" points="{points}"/>')
        x, y = drawn[line.label_at]
        parts.append(_text(line.label, x - 6, y - 6, "end") if line.label else "")
    parts += [_circle(mark, place(*mark.place)) for mark in marks]
    parts.append(_text(across.label, (_LEFT + end) / 2, height - 6, "middle"))
    parts.append(_text(upwards.label, 0, _TOP - 12, "start"))
    label = escape_html(f"{upwards.label} by {across.label}")
    return f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def curve(points: Sequence[Place], across: Axis, upwards: Axis) -> str:
    """A plot of one curve, with the area below it, and its points if they are few."""
    (first, _), (last, _) = points[0], points[-1]
    area = [(first, upwards.least), *points, (last, upwards.least)]
    marks = [Mark(each, "", f"{across.text(each[0])}: {upwards.text(each[1])}") for each in points]
    return plot(across, upwards, [Line(area, "area"), Line(points, "curve")], marks if len(points) <= 40 else ())


def _circle(mark: Mark, place: Place) -> str:
    x, y = place
    content = {"class_": f"mark {mark.kind}".strip(), "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "3.4"}
    return element("circle", "", **content, **_attributes(mark.tip, mark.group))


def _attributes(tip: str, group: int | None) -> dict[str, str]:
    return {"data_tip": tip, **({} if group is None else {"data_group": str(group)})}


def _text(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape_html(text)}</text>'


# --- lanes over time, as wide as the page


@dataclass(frozen=True)
class Span:
    """What happens from a `start` to an `end`."""

    start: float
    end: float
    kind: str
    tip: str
    group: int


def lane(label: str, spans: Sequence[Span], whole: float, heights: Sequence[float] = ()) -> str:
    """A bar for each span, at its place in the `whole`; with `heights`, each is as high as its share of the highest."""
    most = max(heights, default=0.0) or 1.0
    bars = []
    for number, span in enumerate(spans):
        style = f"left:{percent(span.start / whole)};width:{percent((span.end - span.start) / whole)}"
        style += f";height:{percent(heights[number] / most)}" if heights else ""
        bars.append(element("i", "", class_=span.kind, style=style, **_attributes(span.tip, span.group)))
    kind = "lane high" if heights else "lane"
    return element("div", escape_html(label), class_="soft") + element("div", "".join(bars), class_=kind)


def scale(whole: float, text: Callable[[float], str]) -> str:
    """Five numbers below lanes, from 0 to the whole."""
    numbers = (element("span", escape_html(text(whole * quarter / 4))) for quarter in range(5))
    return element("div", "".join(numbers), class_="scale soft")
