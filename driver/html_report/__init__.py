"""Reports as HTML files that need no network and no other file.

That of `optimize` is ``Result -> GraphCosts, twice -> drawings (both in content.py) -> page``. page.py writes the parts
that need no script; report.js draws the graphs from the data that content.py writes. That of a bundle is in bundle.py.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from ...engine.onnx.model import external_name, reads
from ...support import units
from ...support.errors import UsageError
from ...support.files import write_text
from ..optimize import Result
from ..options import Options
from . import page
from .content import graph_costs, marks_of, page_data
from .markup import whole_page


def write_report(path: Path, title: str, result: Result, options: Options) -> None:
    """Write the whole report, with a title. Raises UsageError if it would replace weights of the model."""
    weights = result.path and result.path.with_name(external_name(result.path))
    if reads(result.original.model, path) or (weights and path.resolve() == weights.resolve()):
        raise UsageError(f"{path}: holds weights of the model; name another file for the report")
    write_text(path, html_report(title, f"{datetime.now():%Y-%m-%d %H:%M}", result, options))


def html_report(title: str, date: str, result: Result, options: Options) -> str:
    """The whole page. `title` is the path of the model."""
    title = title.encode(errors="replace").decode()  # a file's name may be no text
    before, after = graph_costs(result, options)
    data = page_data(before, after, marks_of(result, before, after), units.seconds)
    header = page.header(title, date, result, options, before, after)
    return whole_page(title, header + "\n" + page.main(result, before, after, options.device), data)
