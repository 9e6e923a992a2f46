"""The order of sub-graph instances as an SVG picture, as Fig. 3b of GraphTurbo (OSDI 2023) draws it.

There is a row for each sub-graph, and in it a box for each of its instances with its timestamp: 1 for the one that runs
first. A row is as wide as any other, so the wider a box, the larger the part of the batch (or whatever is split) that
an instance has. Boxes of a row are in the order in which they run; those of one sub-graph do the same work on other
parts (section 3.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from ....support.text import escape_html
from ..codegen.flow import Flow
from ..schedule.grouping import Group
from ..schedule.instances import InstanceGraph
from ..schedule.orders import Order

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
