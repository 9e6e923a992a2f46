"""Pieces of HTML, and the whole page: every text that comes from outside is escaped here."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ...support.text import escape_html, printable
from ...support.version import __version__


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


def whole_page(title: str, content: str, data: Any) -> str:
    """The page, with its style and its script, for which `data` is. It loads nothing."""
    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape_html(policy)}">'
        + element("title", escape_html(f"{title} \u00b7 eqfuse"))
        + element("style", _asset("report.css"))
    )
    parts = (
        "<!doctype html>", '<html lang="en">', element("head", head), "<body>", content,
        element("footer", f"Written by eqfuse {__version__}. The page is this one file; it loads nothing."),
        '<div id="tip" role="tooltip" hidden></div>',
        element("script", embed_json(data), type="application/json", id="data"),
        element("script", script), "</body></html>\n",
    )  # fmt: skip
    return "\n".join(parts)


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").strip() + "\n"


def section(title: str, note: str, *content: str) -> str:
    """A panel with a title and a line about it."""
    heading = element("h2", escape_html(title)) + element("p", escape_html(note), class_="note")
    return element("section", heading + "".join(content))


def pair(*sections: str) -> str:
    """Panels side by side if there is room; one alone takes the whole width."""
    panels = [s for s in sections if s]
    return element("div", "".join(panels), class_="pair") if len(panels) > 1 else "".join(panels)


def card(name: str, figure: str, note: str) -> str:
    """A key figure with its name above it; `note` is HTML, the others are text."""
    parts = (("name", escape_html(name)), ("after", escape_html(figure)), ("from", note))
    return element("div", "".join(element("div", text, class_=kind) for kind, text in parts), class_="card")


def status_line(verification: str) -> str:
    """What verification said, in the colour of its first word."""
    kind = (verification.split(",")[0].split() or [""])[0]
    text = f"verification: {verification or 'not asked for'}"
    return element("div", escape_html(text), class_=f"status {kind}")


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
