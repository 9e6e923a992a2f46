"""Pieces of HTML: every text that comes from outside is escaped here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...support.text import escape_html, printable

_CHART = (660, 240)
_MARGIN = (64, 14, 40, 18)
"""Left, top, bottom, right."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the text, the number to sort by (the text itself without one), and a bar of 0 to 1."""

    text: str
    value: float | None = None
    bar: float | None = None
    is_text: bool = False


@dataclass(frozen=True)
class Bar:
    """One bar of a chart; `length` is 0 to 1, `kind` one of the styles `.fill.*`."""

    label: str
    length: float
    value: str
    kind: str = ""


def element(tag: str, content: str, **attributes: str) -> str:
    """``<tag ...>content</tag>``; `content` is HTML, attributes are text (`class_`: class, `data_x`: data-x)."""
    given = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape_html(text)}"' for name, text in attributes.items())
    return f"<{tag}{given}>{content}</{tag}>"


def section(title: str, note: str, *content: str) -> str:
    """A panel with a title and a line about it."""
    heading = element("h2", escape_html(title)) + element("p", escape_html(note), class_="note")
    return element("section", heading + "".join(content))


def pair(*sections: str) -> str:
    """Panels side by side if there is room; one alone takes the whole width."""
    panels = [s for s in sections if s]
    return element("div", "".join(panels), class_="pair") if len(panels) > 1 else "".join(panels)


def percent(share: float) -> str:
    """A width in CSS."""
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def bars(rows: Iterable[Bar], *, is_long: bool = False) -> str:
    """Horizontal bars with a label before and a value behind."""
    parts = []
    for row in rows:
        label = element("div", escape_html(row.label), class_="label", title=row.label)
        fill = element("div", "", class_=f"fill {row.kind}".strip(), style=f"width:{percent(row.length)}")
        value = element("div", escape_html(row.value), class_="value")
        parts.append(f"{label}{value}{element('div', fill, class_='track')}")
    return element("div", "".join(parts), class_="bars long" if is_long else "bars")


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], attributes: Sequence[dict[str, str]] = ()) -> str:
    """A table that can be sorted by a click on a heading; `attributes` are those of the rows."""
    lines = [list(row) for row in rows]
    is_text = [cell.is_text for cell in lines[0]] if lines else [False] * len(columns)
    head = "".join(
        element("th", element("button", escape_html(c), type="button"), **({"class_": "text"} if t else {}))
        for c, t in zip(columns, is_text, strict=True)
    )
    given = [*attributes, *({} for _ in lines[len(attributes) :])]
    body = "".join(element("tr", "".join(map(_cell, line)), **each) for line, each in zip(lines, given, strict=True))
    whole = element("thead", element("tr", head)) + element("tbody", body)
    return element("div", element("table", whole), class_="scroll")


def _cell(cell: Cell) -> str:
    attributes = {"class_": "text"} if cell.is_text else {}
    if cell.value is not None:
        attributes["data_value"] = f"{cell.value:.6g}"
    bar = ""
    if cell.bar is not None:
        bar = element("span", element("i", "", style=f"width:{percent(cell.bar)}"), class_="mini")
    return element("td", escape_html(cell.text) + bar, **attributes)


def curve(values: Sequence[float], across: str, upwards: str) -> str:
    """A line chart of `values` over 1, 2, ..., as SVG."""
    (width, height), (left, top, bottom, right) = _CHART, _MARGIN
    scale = 10.0 ** (len(str(int(max(1, *values)))) - 1)
    most = next(step * scale for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20) if step * scale >= max(values))
    last = max(1, len(values) - 1)
    points = [
        (left + (width - left - right) * i / last, height - bottom - (height - top - bottom) * v / most)
        for i, v in enumerate(values)
    ]
    base = height - bottom
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{base} {line} {points[-1][0]:.1f},{base}"
    parts = [_grid(most), *_numbers(len(values), points)]
    parts += [f'<polygon class="area" points="{area}"/>', f'<polyline class="curve" points="{line}"/>']
    if len(points) <= 40:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in points]
    middle = (left + width - right) / 2
    parts.append(f'<text x="{middle}" y="{height - 4}" text-anchor="middle">{escape_html(across)}</text>')
    label = escape_html(f"{upwards} by {across}")
    return f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _grid(most: float) -> str:
    (width, height), (left, top, bottom, right) = _CHART, _MARGIN
    parts = []
    for quarter in range(5):
        y = height - bottom - (height - top - bottom) * quarter / 4
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{most * quarter / 4:,.0f}</text>')
    return "".join(parts)


def _numbers(count: int, points: Sequence[tuple[float, float]]) -> Iterable[str]:
    step = max(1, -(-count // 12))
    y = _CHART[1] - _MARGIN[2] + 16
    return [f'<text x="{points[i][0]:.1f}" y="{y}" text-anchor="middle">{i + 1}</text>' for i in range(0, count, step)]


def embed_json(content: Any) -> str:
    """JSON for a script element: no text in it can end the element, or start a comment in it."""
    text = json.dumps(_printable(content), separators=(",", ":"), ensure_ascii=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _printable(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _printable(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_printable(value) for value in content]
    return printable(content) if isinstance(content, str) else content
