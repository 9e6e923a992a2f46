"""The simulated run of a program as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ....support.text import escape_html
from ..codegen.compiler import DsaProgram
from ..program.instructions import Level
from .order_picture import are_abreast, order_svg, running_order
from .timeline_svg import timeline_svg

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:24px;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:8px 0 24px}td,th{padding:3px 14px 3px 0;text-align:right}"
    "td:first-child,th:first-child{text-align:left}th{border-bottom:1px solid #999;font-weight:600}"
    "h2{font-size:16px;margin-bottom:4px}p{color:#555;margin:2px 0}.wide{overflow-x:auto}"
)


def report_page(title: str, made: DsaProgram) -> str:
    """The whole page; `title` names the model."""
    allocation, device = made.allocation, made.device
    head = f"<title>{escape_html(title)} on {escape_html(device.name)}</title><style>{_STYLE}</style>"
    policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    shared = (
        f"{allocation.batch} sample(s): {allocation.iterations} iteration(s) of {allocation.per_cluster} on each of "
        f"{allocation.clusters} cluster(s); variant {made.choices.variant.name}"
    )
    parts = [
        f"<h1>{escape_html(title)} on {escape_html(device.name)}</h1>",
        f"<p>{escape_html(shared)}</p>",
        *_table("Whole batch", ("", ""), _summary(made)),
        *_table("Tensors by level", ("level", "tensors", "bytes read", "bytes written"), _levels(made)),
        *_table("Bytes moved", ("from", "to", "bytes"), _traffic(made)),
        *_table("Units", ("unit", "occupied", "lower bound, cycles", "with these kernels, cycles"), _units(made)),
        *_order(made),
        *_table("Engines", ("engine", "busy, cycles", "share"), _engines(made)),
        "<h2>Timeline of one cluster</h2><p>Point at a bar to read what it is; trace.json opens in Perfetto.</p>",
        f'<div class="wide">{timeline_svg(made.timeline)}</div>',
    ]
    opening = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{policy}{head}</head><body>'
    return "\n".join((opening, *parts, "</body></html>\n"))


def _order(made: DsaProgram) -> Iterator[str]:
    flow = made.generated.residence.flow
    yield "<h2>Order of the instances</h2>"
    yield "<p>A row for each sub-graph, a box for each of its instances, with its place in the order.</p>"
    if are_abreast(flow):
        yield "<p>Instances of a row with consecutive numbers run layer by layer together.</p>"
    yield f'<div class="wide">{order_svg(flow.graph, running_order(flow))}</div>'


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"<h2>{escape_html(title)}</h2><table>"
    if any(columns):
        yield _row("th", columns)
    yield from (_row("td", row) for row in rows)
    yield "</table>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape_html(cell)}</{tag}>" for cell in cells) + "</tr>"


def _summary(made: DsaProgram) -> Iterator[tuple[str, str]]:
    figures, bound = made.figures(), made.report.bound
    yield "cycles", f"{made.cycles:,.0f}"
    yield "time", f"{1e6 * made.seconds:,.1f} µs"
    yield "throughput", f"{figures['throughput']:,.1f} samples/s"
    yield "instructions of one cluster", f"{figures['instructions']:,}"
    yield "lower bound of one iteration", f"{bound.cycles:,.0f} cycles"
    yield "lower bound / cycles", f"{made.report.bound_ratio:.3f}"


def _levels(made: DsaProgram) -> Iterator[tuple[str, ...]]:
    scopes = made.report.scopes
    counts = {Level.DDR: scopes.ddr, Level.GB: scopes.gb, Level.LB: scopes.lb}
    for each in made.report.levels:
        yield each.level.value, str(counts[each.level]), f"{each.read:,}", f"{each.written:,}"


def _traffic(made: DsaProgram) -> Iterator[tuple[str, ...]]:
    for each in made.report.traffic:
        yield each.source.value, each.target.value, f"{each.bytes:,}"


def _units(made: DsaProgram) -> Iterator[tuple[str, ...]]:
    bound, scheduled = dict(made.report.bound.compute), dict(made.report.scheduled)
    for unit, share in made.report.occupied:
        yield unit.value, f"{share:.1%}", f"{bound.get(unit, 0.0):,.0f}", f"{scheduled.get(unit, 0.0):,.0f}"


def _engines(made: DsaProgram) -> Iterator[tuple[str, ...]]:
    for each in made.report.utilisation:
        yield str(each.engine), f"{each.busy:,.0f}", f"{each.share:.1%}"
