"""Tuning budgets of sub-graphs at growing sizes: AGO's Fig. 8 (Xu et al., INFOCOM 2023), for which Eq. (1) is a fit.

Three structures, each at four sizes: a 3x3 convolution with padding 1 at batch 1, the same with a sum behind it (the
text names this one, of 32 and 64 channels at 28 x 28), and with a sum and a Relu. They read and write channels last, so
that each is one kernel without copies. The *budget* is the number of trials after which a search has come within 2 % of
the best that it finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import median

import numpy as np
import onnx

from eqfuse.benchmarks.networks.folded import FoldedNetwork
from eqfuse.benchmarks.searches.results import Search
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.extract.partition.baselines.weights import weights

STABLE = 1.02
"""A search is stable within this factor of its last best; the text says "stable performance" without a figure."""
SIZES = ((16, 32, 28), (32, 64, 28), (64, 128, 28), (64, 128, 56))
"""Input channels, output channels, and height and width; the second is printed."""
STRUCTURES: Mapping[str, Sequence[str]] = {"Conv": (), "Conv + Add": ("Add",), "Conv + Add + Relu": ("Add", "Relu")}
"""What stands behind the convolution. The text prints the name of the second alone."""


def build(behind: Sequence[str], size: tuple[int, int, int]) -> onnx.ModelProto:
    """One sub-graph, channels last at both ends; the sum's other operand is an input."""
    inputs, outputs, side = size
    net = FoldedNetwork("sub_graph")

    def read(name: str, channels: int) -> str:
        read_in = net.add("Transpose", net.input(name, (1, side, side, channels)), perm=[0, 3, 1, 2])
        net.channels[read_in] = channels
        return read_in

    y = net.conv(read("x", inputs), outputs, 3)
    for op in behind:
        y = net.add(op, y, *([read("z", outputs)] if op == "Add" else []))
    return net.model({net.add("Transpose", y, perm=[0, 2, 3, 1]): (1, side, side, outputs)})


def budget_of(search: Search) -> int:
    """The trials after which the search stayed within `STABLE` of its best; 0 of one without a curve."""
    curve = search.measured
    return next((point.trials for point in curve if point.latency <= STABLE * curve[-1].latency), 0)


@dataclass(frozen=True)
class Row:
    """One sub-graph: its weight by Eq. (1), and the budget of each search."""

    structure: str
    size: tuple[int, int, int]
    weight: float
    budgets: tuple[int, ...]

    @property
    def budget(self) -> float:
        """The median over the searches."""
        return median(self.budgets)


def weight_of(proto: onnx.ModelProto) -> float:
    """The sum over the operators; the changes of layout at the ends are not the structure's."""
    partition = optimize_model(proto, None, Options(partition="joint", verify=False), None).partition
    assert partition is not None
    graph = partition.partition.graph
    return sum(w for operator, w in zip(graph.operators, weights(graph), strict=True) if operator.op != "Transpose")


@dataclass(frozen=True)
class Fit:
    """The line of least squares of budgets over weights, and how it fits."""

    slope: float
    bias: float
    correlation: float


def fit(rows: Sequence[Row]) -> Fit:
    """Of all searches of at least two sub-graphs. The correlation is Pearson's; nan where nothing varies."""
    points = np.array([(row.weight, budget) for row in rows for budget in row.budgets])
    slope, bias = np.polyfit(points[:, 0], points[:, 1], 1)
    varies = bool(np.ptp(points, axis=0).all())
    return Fit(float(slope), float(bias), float(np.corrcoef(points.T)[0, 1]) if varies else nan)


_WIDTH, _HEIGHT, _MARGIN = 520, 360, 50
"""Pixels."""
_COLOURS = ("#2563a8", "#2f9e77", "#b8413b")


def budgets_svg(rows: Sequence[Row]) -> str:
    """Budgets over weights: a dot for each search, a colour for each structure, the fitted line dashed."""
    line, top = fit(rows), max(budget for row in rows for budget in row.budgets)
    last = max(row.weight for row in rows)

    def place(weight: float, budget: float) -> tuple[float, float]:
        across, up = weight / last, min(max(budget / top, 0.0), 1.0)
        return _MARGIN + across * (_WIDTH - 2 * _MARGIN), _HEIGHT - _MARGIN - up * (_HEIGHT - 2 * _MARGIN)

    (x0, y0), (x1, y1) = (place(w, line.slope * w + line.bias) for w in (0.0, last))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        f'font-size="11"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="#555" stroke-dasharray="5 4"/>',
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">weight by Eq. (1), up to {last:.0f}</text>',
        f'<text x="{_MARGIN}" y="{_MARGIN - 8}">trials until within 2 %, up to {top}</text>',
    ]
    for number, name in enumerate(dict.fromkeys(row.structure for row in rows)):
        colour, of_it = _COLOURS[number % len(_COLOURS)], [row for row in rows if row.structure == name]
        for x, y in (place(row.weight, budget) for row in of_it for budget in row.budgets):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{_MARGIN + 110 * number}" y="20" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
