"""The simulated run of a program as one HTML page that needs nothing else.

It shows the order of sub-graph instances as an SVG picture, as Fig. 3b of GraphTurbo (OSDI 2023) draws it. There is a
row for each sub-graph, and in it a box for each of its instances with its timestamp: 1 for the one that runs first. A
row is as wide as any other, so the wider a box, the larger the part of the batch (or whatever is split) that an
instance has. Boxes of a row are in the order in which they run; those of one sub-graph do the same work on other parts
(section 3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from ....support.text import escape_html
from ..codegen.compiler import DsaProgram
from ..codegen.flow import Flow
from ..program.instructions import Level
from ..schedule.grouping import Group
from ..schedule.instances import InstanceGraph
from ..schedule.orders import Order
from .timeline_svg import timeline_svg

_LEFT, _TOP, _MARGIN = 176, 12, 12
_BOX, _ROW = 24, 50
_NARROWEST, _WIDTH = 26, 640
"""Pixels of the narrowest box that holds a number, and of a row, if its boxes need no more."""
_INSET = 2
"""Pixels between a box and the place that it has in its row."""
_ASIDE = 18
"""Lines over boxes keep clear of the numbers in them."""


def running_order(flow: Flow) -> Order:
    """The instances by their first step."""
    return tuple(dict.fromkeys(step.instance for step in flow.steps))


def are_abreast(flow: Flow) -> bool:
    """Whether some instances take turns, layer by layer."""
    return len(list(groupby(flow.steps, key=lambda step: step.instance))) > len(flow.graph)


def order_svg(graph: InstanceGraph, order: Sequence[int]) -> str:
    """The picture of an order of all instances of `graph`.

    Lines go from the instances that one waits for down to it; those that longer paths imply are left out. Those that go
    past other rows are dashed.
    """
    view = _OrderView(graph, tuple(order))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{view.width}" height="{view.height}" '
        f'viewBox="0 0 {view.width} {view.height}" font-family="system-ui, sans-serif" font-size="11">',
        f'<rect width="{view.width}" height="{view.height}" fill="#ffffff"/>',
        *(_label(view, number, group) for number, group in enumerate(graph.groups)),
        *_edges(view, far=False),
        *(_box(view, instance) for instance in view.order),
        *_edges(view, far=True),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class _OrderView:
    """Where everything is, in pixels."""

    graph: InstanceGraph
    order: Order

    @cached_property
    def timestamps(self) -> Mapping[int, int]:
        return {instance: time for time, instance in enumerate(self.order, 1)}

    @cached_property
    def columns(self) -> Mapping[int, tuple[int, int]]:
        """Per instance, how many of its sub-graph run before it, and how many there are."""
        rows: dict[int, list[int]] = {}
        for instance in self.order:
            rows.setdefault(self.graph.instances[instance].subgraph, []).append(instance)
        return {instance: (number, len(row)) for row in rows.values() for number, instance in enumerate(row)}

    @cached_property
    def row_width(self) -> int:
        return max(_WIDTH, _NARROWEST * max((count for _, count in self.columns.values()), default=1))

    @property
    def width(self) -> int:
        return _LEFT + self.row_width + _MARGIN

    @property
    def height(self) -> int:
        return _TOP + _ROW * max(len(self.graph.groups) - 1, 0) + _BOX + _MARGIN

    def top(self, instance: int) -> int:
        return _TOP + _ROW * self.graph.instances[instance].subgraph

    def span(self, instance: int) -> tuple[float, float]:
        """Left side and width of a box."""
        number, count = self.columns[instance]
        each = self.row_width / count
        return _LEFT + number * each + _INSET, each - 2 * _INSET

    def middle(self, instance: int) -> float:
        left, width = self.span(instance)
        return left + width / 2


def _label(view: _OrderView, number: int, group: Group) -> str:
    layers, factor = len(group.subgraph.layers), group.split.factor
    text = f"{number + 1}: {layers} layer{'s' * (layers > 1)}, {factor} instance{'s' * (factor > 1)}"
    return f'<text x="{_MARGIN}" y="{_TOP + _ROW * number + 16}">{text}</text>'


def _edges(view: _OrderView, *, far: bool) -> Iterator[str]:
    """Draw the edges to the next row, or those that are `far`."""
    aside, style = (_ASIDE, ' stroke-dasharray="4 3"') if far else (0, "")
    for instance in view.order:
        for producer in view.graph.earlier[instance]:
            if far == (view.top(instance) > view.top(producer) + _ROW):
                yield (
                    f'<line x1="{view.middle(producer) + aside:.1f}" y1="{view.top(producer) + _BOX}" '
                    f'x2="{view.middle(instance) + aside:.1f}" y2="{view.top(instance)}" stroke="#8899aa"{style}/>'
                )


def _box(view: _OrderView, instance: int) -> str:
    (left, width), top = view.span(instance), view.top(instance)
    time = view.timestamps[instance]
    return (
        f'<g class="instance"><title>{escape_html(_describe(view, instance))}</title>'
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_BOX}" rx="3" '
        'fill="#d4e6f7" stroke="#445566"/>'
        f'<text x="{left + width / 2:.1f}" y="{top + 16}" text-anchor="middle">{time}</text></g>'
    )


def _describe(view: _OrderView, instance: int) -> str:
    """The outputs of an instance, and the most bytes that it takes at once."""
    subgraph, written = view.graph.instances[instance].subgraph, view.graph.instances[instance].written
    outputs = []
    for value, box in written.items():
        slices = ", ".join(f"{start}:{stop}" for start, stop in box)
        outputs.append(f"{view.graph.network.graph.values[value].name}[{slices}]")
    footprint = view.graph.groups[subgraph].split.footprint
    return f"{view.timestamps[instance]}: {', '.join(outputs)}; at most {footprint:,} bytes at once"


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
        yield _table_row("th", columns)
    yield from (_table_row("td", row) for row in rows)
    yield "</table>"


def _table_row(tag: str, cells: Iterable[str]) -> str:
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
