"""The sections of the page, from top to bottom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...engine.verification import Verification
from ...extract.partition.groups import Partition
from ...support import units
from ...support.text import escape_html
from ..optimize import Result
from ..options import Options
from ..summary_rows import operator_rows, summary_rows
from .content import CATEGORIES, KINDS, GraphCosts, operators_of, shape
from .markup import Bar, Cell, bars, card, element, pair, section, table
from .plots import Axis, curve, linear

_MOST_KERNELS = 24
"""Only this many of the slowest kernels have a bar."""


def header(title: str, date: str, result: Result, options: Options, before: GraphCosts, after: GraphCosts) -> str:
    """The path of the model, the date, the shapes of its inputs, the options, the verdict, and the key figures."""
    asked = f"device {options.device} \u00b7 cost {options.cost} \u00b7 precision {options.precision}"
    if result.partition:
        asked += f" \u00b7 partition {result.partition.partition.method}"
    inputs = (value for value in before.graph.values if value.producer is None and not value.is_constant)
    shapes = " \u00b7 ".join(f"{value.name}: {shape(value.type)}" for value in inputs)
    lines = (f"{date} \u00b7 {asked}", shapes, *result.before.notes)
    cards = list(_cards(result, before, after))
    columns = next((c for c in (4, 6, 5) if len(cards) % c == 0), 4)
    return element(
        "header",
        element("h1", escape_html(title))
        + "".join(element("div", escape_html(line), class_="soft") for line in lines)
        + _verdict(result.verification)
        + element("div", "".join(cards), class_="cards", style=f"--columns:{columns}"),
    )


def _verdict(verification: Verification | None) -> str:
    if verification is None:
        return element("div", "verification: not asked for", class_="status")
    line = f"verification: {verification.summary}"
    lines = element("div", escape_html(line), class_=f"status {verification.status.split()[0]}")
    more = " \u00b7 ".join(filter(None, (verification.numeric_effect, verification.accuracy)))
    return lines + (element("div", escape_html(more), class_="soft") if more else "")


def _cards(result: Result, before: GraphCosts, after: GraphCosts) -> Iterator[str]:
    if after.partition is not None:
        old, new = before.seconds, after.seconds
        yield _change("latency, compiled (predicted)", units.seconds(old), units.seconds(new), units.change(old, new))
        kernels, operators = len(after.kernels), len(before.graph)
        yield _change("groups", str(operators), str(kernels), units.change(operators, kernels))
    if result.partition is not None:
        figures = result.partition.figures()
        first, last = figures["intermediate_bytes_original"], figures["intermediate_bytes"]
        yield _change(
            "intermediate bytes, fused", units.memory(first), units.memory(last), units.change(first, last)
        )
    rows = summary_rows(result.before, result.after)
    for name, *figures_ in rows if after.partition is None else rows[1:]:
        rewritten = ", rewritten" if after.partition is not None and name[0] in "ip" else ""
        yield _change(name + rewritten, *figures_)


def _change(name: str, before: str, after: str, change: str) -> str:
    is_zero = not any(digit in change for digit in "123456789")
    kind = "same" if is_zero else {"-": "less", "+": "more"}.get(change[0], "same")
    moved = element("b", escape_html("unchanged" if change == "=" else change).replace(" ", "&nbsp;"), class_=kind)
    origin = moved if change == "=" else f"from {escape_html(before)} \u00b7 {moved}"
    return card(name, after, origin)


def costs(result: Result, before: GraphCosts, after: GraphCosts, device: str) -> str:
    """Bars of the cost of each way to rewrite and fuse."""
    joint = result.partition.costs if result.partition else None
    if joint is not None:
        kinds = ("", "", "", "", "best", "bound")
        rows = [(*cost, kind) for cost, kind in zip(joint.by_name(), kinds, strict=True)]
    elif after.partition is None:
        rows = [("original", before.seconds, ""), ("rewritten", after.seconds, "best")]
    else:
        rows = [
            ("original, unfused", before.seconds, ""),
            ("rewritten only", after.alone, ""),
            ("rewritten, then fused", after.seconds, "best"),
        ]
    whole = max((seconds for _, seconds, _ in rows), default=0.0) or 1.0
    shown = [Bar(label, seconds / whole, _times(seconds, rows[0][1]), kind) for label, seconds, kind in rows]
    note = f"Predicted when compiled, for the device {device}: each operator or kernel at the roofline, and its launch."
    return section("What a run costs", note, bars(shown))


def _times(seconds: float, first: float) -> str:
    ratio = f" \u00b7 {first / seconds:.2f}\u00d7" if seconds and seconds != first else ""
    return units.seconds(seconds) + ratio


def graphs(after: GraphCosts) -> str:
    """Frames for the script to draw into."""
    note = (
        "Drag to move, click and then turn the wheel to zoom, point at an operator for its details: what became of it, "
        "and the rules that did it. "
        "Operators run from top to bottom, columns from left to right."
    )
    if after.partition is not None:
        note += " Click a sub-graph to mark it here and in the table; a double click opens it."
    frames = _viewer("before", "before") + _viewer("after", "after")
    legend = [element("span", _swatch(f"c{n}") + escape_html(name)) for n, name in enumerate(CATEGORIES)]
    legend.append(element("span", _swatch("heat") + "part of the cost"))
    legend += [element("span", _swatch(f"k{n}") + kind) for n, kind in enumerate(KINDS) if n]
    if after.partition is not None:
        legend += ["<span>solid frame: sub-graph</span>", "<span>dashed frame: kernel</span>"]
    return section(
        "The graphs", note, element("div", frames, class_="graphs"), element("div", "".join(legend), class_="legend")
    )


def _swatch(kind: str) -> str:
    return element("i", "", class_=f"swatch {kind}")


def _viewer(key: str, title: str) -> str:
    buttons = "".join(
        element("button", text, type="button", title=what, data_do=do, **extra)
        for do, text, what, extra in (
            ("out", "\u2212", "smaller", {}),
            ("in", "+", "larger", {}),
            ("fit", "fit", "show everything", {}),
            ("wide", "wide", "this graph alone", {"class_": "wide-button"}),
        )
    )
    heading = element("div", element("h3", escape_html(title)) + element("span", "", class_="levels"), class_="toolbar")
    tools = (
        f'<input type="search" placeholder="find a node" aria-label="find a node in the graph {key}">'
        + element("span", "", class_="found", aria_live="polite")
        + buttons
    )
    canvas = f'<svg class="canvas" tabindex="0" role="img" aria-label="the graph {key}"></svg>'
    return f'<div class="viewer" data-graph="{key}">{heading}{element("div", tools, class_="toolbar")}{canvas}</div>'


def subgraphs(after: GraphCosts) -> str:
    """One row for each sub-graph."""
    if after.partition is None:
        return ""
    rows = [_subgraph(after, after.partition, number) for number in range(after.partition.count)]
    columns = ("sub-graph", "operators", "cost", "share", "count", "kernels", "reads", "weights", "writes")
    attributes = [{"data_group": str(number)} for number in range(len(rows))]
    note = "In the order they run. Click a row to see it in the graph."
    return section("Sub-graphs", note, table(columns, rows, attributes))


def _subgraph(after: GraphCosts, partition: Partition, number: int) -> list[Cell]:
    members, seconds, values = partition.members[number], after.group_seconds[number], partition.graph.values
    read = [values[v] for v in partition.inputs[number]]
    kernels = len({after.kernel_of[m] for m in members})
    share = seconds / after.seconds if after.seconds else 0.0
    longest = max(after.group_seconds) or 1.0
    return [
        Cell(str(number), number),
        Cell(operators_of(partition.graph, members, 5), is_text=True),
        Cell(units.seconds(seconds), seconds),
        Cell(f"{100 * share:.1f} %", share, seconds / longest),
        Cell(str(len(members)), len(members)),
        Cell(str(kernels), kernels),
        _bytes(v.extent.bytes for v in read if not v.is_constant),
        _bytes(v.extent.bytes for v in read if v.is_constant),
        _bytes(values[v].extent.bytes for v in partition.outputs[number]),
    ]


def _bytes(sizes: Iterable[int]) -> Cell:
    total = sum(sizes)
    return Cell(units.memory(total), total)


def kernels(after: GraphCosts) -> str:
    """Bars of the kernels that take longest."""
    members = after.kernels or tuple((i,) for i in range(len(after.graph)))
    seconds = after.kernel_seconds or after.shares
    order = sorted(range(len(members)), key=lambda k: (-seconds[k], k))
    top = order[:_MOST_KERNELS]
    longest = max(seconds, default=0.0) or 1.0
    rows = []
    for k in top:
        if after.partition is None:
            operator = after.graph.operators[k]
            label = operator.name if operator.name.startswith(operator.op) else f"{operator.op} {operator.name}"
        else:
            group = after.partition.group[members[k][0]]
            label = f"{k} (sub-graph {group}): {operators_of(after.graph, members[k], 3)}"
        rows.append(Bar(label, seconds[k] / longest, units.seconds(seconds[k])))
    rest = order[_MOST_KERNELS:]
    what = "kernel" if after.kernels else "operator"
    note = f"The {len(top)} longest of {len(members)}." if rest else f"All {len(members)}, the longest first."
    if rest:
        note += f" The other {len(rest)} take {units.seconds(sum(seconds[k] for k in rest))} together."
    if after.kernels:
        note += " Without launches, of which each sub-graph has one."
    return section(f"Latency by {what}", note, bars(rows, is_long=True))


def search(result: Result) -> str:
    """How the e-graph grew, and why it stopped."""
    saturation = result.saturation
    note = (
        f"{saturation.stop_reason} after {saturation.iterations} iterations: {result.classes:,} e-classes, "
        f"{result.enodes:,} e-nodes. Extraction: {result.proof}."
    )
    if result.cut_short:
        note += f" The time limit ended {', '.join(result.cut_short)}."
    points = [(float(number), float(count)) for number, count in enumerate(saturation.growth, 1)]
    across = Axis("iteration", 1.0, max(2.0, len(points)), "{:.0f}".format)
    upwards = linear("e-nodes", saturation.growth, "{:,.0f}".format)
    return section("Growth of the e-graph", note, curve(points, across, upwards) if points else "")


def rules(result: Result) -> str:
    """The rules that matched, with their time."""
    fired = sorted(result.saturation.matched, key=lambda r: (-r.matches, r.name))
    slowest = max((r.seconds for r in fired), default=0.0) or 1.0
    rows = [
        [
            Cell(r.name, is_text=True),
            Cell(str(r.matches), r.matches),
            Cell(units.rule_seconds(r.seconds), r.seconds, r.seconds / slowest),
        ]
        for r in fired
    ]
    taken = sum(r.seconds for r in fired)
    note = f"{len(fired)} rules matched {sum(r.matches for r in fired):,} times"
    note += f" and took {units.seconds(taken)} of {units.seconds(result.saturation.seconds)}." if taken else "."
    return section("Rules that matched", note, table(("rule", "matches", "time"), rows))


def operators(result: Result) -> str:
    """Counts of operators before and after."""
    before, after = result.before.operators, result.after.operators
    most = max((*before.values(), *after.values()), default=1)
    rows = [
        [
            Cell(name, is_text=True),
            Cell(old, int(old), int(old) / most),
            Cell(new, int(new), int(new) / most),
            Cell("" if change == "=" else change, int(new) - int(old)),
        ]
        for name, old, new, change in operator_rows(before, after)
    ]
    note = "Layers by operator, those that changed first."
    return section("What the rules did", note, table(("operator", "before", "after", "change"), rows))


def phases(result: Result) -> str:
    """Wall-clock seconds."""
    longest = max(result.phases.values(), default=0.0) or 1.0
    rows = [Bar(name, taken / longest, units.seconds(taken)) for name, taken in result.phases.items()]
    return section("Where the time went", f"{units.seconds(sum(result.phases.values()))} in all.", bars(rows))


def main(result: Result, before: GraphCosts, after: GraphCosts, device: str) -> str:
    """Everything below the header."""
    return element(
        "main",
        costs(result, before, after, device)
        + graphs(after)
        + subgraphs(after)
        + pair(kernels(after), operators(result))
        + pair(rules(result), element("div", search(result) + phases(result), class_="stack")),
    )
