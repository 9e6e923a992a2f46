"""The report of a run as one HTML file that needs no network and no other file.

``Result -> GraphCosts, twice -> drawings (both in content.py) -> page``. page.py writes the parts that
need no script; report.js draws the graphs from the data that content.py writes.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from importlib import resources
from pathlib import Path

from ...engine.onnx.model import external_name, reads
from ...support import units
from ...support.errors import UsageError
from ...support.files import write_text
from ...support.text import escape_html
from ...support.version import __version__
from ..optimize import Result
from ..options import Options
from . import page
from .content import graph_costs, marks_of, page_data
from .markup import element, embed_json


def write_report(path: Path, model: Path, result: Result, options: Options) -> None:
    """Write the report on a model whole. Raises EqfuseError if it would replace weights of the model."""
    weights = result.path and result.path.with_name(external_name(result.path))
    if reads(result.original.model, path) or (weights and path.resolve() == weights.resolve()):
        raise UsageError(f"{path}: holds weights of the model; name another file for the report")
    write_text(path, html_report(str(model), f"{datetime.now():%Y-%m-%d %H:%M}", result, options))


def html_report(title: str, date: str, result: Result, options: Options) -> str:
    """The whole page. `title` is the path of the model."""
    title = title.encode(errors="replace").decode()  # a file's name may be no text
    before, after = graph_costs(result, options)
    data = page_data(before, after, marks_of(result, before, after), units.seconds)
    script = _asset("report.js")
    content = (
        page.header(title, date, result, options, before, after),
        page.main(result, before, after, options.device),
        element("footer", f"Written by eqfuse {__version__}. The page is this one file; it loads nothing."),
        '<div id="tip" role="tooltip" hidden></div>',
        element(
            "script",
            embed_json(data),
            type="application/json",
            id="data",
        ),
        element("script", script),
    )
    opening = ("<!doctype html>", '<html lang="en">', _head(title, script), "<body>")
    return "\n".join((*opening, *content, "</body></html>\n"))


def _head(title: str, script: str) -> str:
    """The head of the page, whose policy lets the browser run only this script and load nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return element(
        "head",
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape_html(policy)}">'
        + element("title", escape_html(f"{title} \u00b7 eqfuse"))
        + element("style", _asset("report.css")),
    )


def _asset(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8").strip() + "\n"
