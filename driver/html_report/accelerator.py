"""The report of a program for an accelerator: its engines and memories over time, the order of its instances, and what
its layers take, as simulated.

``CompiledNetwork -> RunPicture -> page``
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...lowering.dsa.back_end import CompiledNetwork, EngineRow, Filling, RunPicture, TimeReport
from ...lowering.plan.manifest import Manifest
from ...support import units
from ...support.text import escape_html
from .markup import Cell, card, element, pair, section, status_line, table, whole_page
from .plots import scale

_WIDTH, _HEIGHT = 1200, 100
"""Units of a strip, which is stretched to the width of the page."""
_WIDE = 3.0
"""Units from which on a span can be pointed at."""
_STEPS = 60
"""Places of a memory's strip that can be pointed at."""


def accelerator_page(title: str, manifest: Manifest, made: CompiledNetwork) -> str:
    """The whole page; `title` names the model."""
    title, picture, report = title.encode(errors="replace").decode(), made.picture, made.program.report
    tables = pair(_units(report), _levels(report))
    main = _over_time(picture) + _order(picture) + tables + _layers(picture)
    header = element("header", _header(title, manifest, made))
    return whole_page(f"{title} on {made.program.device.name}", header + element("main", main), {})


def _header(title: str, manifest: Manifest, made: CompiledNetwork) -> str:
    program, report = made.program, made.program.report
    figures = program.figures()
    lines = [
        f"{program.device.name}, simulated \u00b7 variant {program.choices.variant.name}",
        f"batch {program.allocation}",
        " \u00b7 ".join(map(str, (*manifest.inputs, *manifest.outputs))),
    ]
    cards = (
        card("whole batch, simulated", units.seconds(program.seconds), f"{program.cycles:,.0f} cycles"),
        card("throughput, simulated", f"{figures['throughput']:,.0f}", "samples/s"),
        card("lower bound / cycles", f"{report.bound_ratio:.3f}", f"bound {report.bound.cycles:,.0f} cycles"),
        card("instructions", f"{figures['instructions']:,}", f"{made.tiles:,} of them tiles"),
    )
    return (
        element("h1", escape_html(title))
        + "".join(element("div", escape_html(line), class_="soft") for line in lines)
        + status_line(manifest.provenance.verification)
        + element("div", "".join(cards), class_="cards", style="--columns:4")
    )


# --- over time


def _over_time(picture: RunPicture) -> str:
    """A strip for each memory and each engine, on one axis of time."""
    kinds = dict.fromkeys(span.kind for row in picture.engines for span in row.spans)
    legend = "".join(element("span", f'<i class="swatch e-{kind}"></i>{escape_html(kind)}') for kind in kinds)
    strips = [
        *(line for memory in picture.memories for line in _memory(memory, picture.cycles)),
        *(line for row in picture.engines for line in _engine(row, picture.cycles)),
        "<div></div>", scale(picture.cycles, lambda cycles: f"{cycles:,.0f}"), "<div></div>",
    ]  # fmt: skip
    note = (
        "One iteration of one cluster, in cycles, or of all if they run different programs. Memories: the bytes of "
        "live buffers at each time, and the most of them. Engines: what they do, and the share of the time that they "
        "do it. Point at a place; trace.json in the bundle opens in Perfetto."
    )
    return section(
        "A run over time",
        note,
        element("div", legend, class_="legend"),
        element("div", "".join(strips), class_="strips"),
    )


def _memory(memory: Filling, cycles: float) -> Iterator[str]:
    """A memory's name, its filling over time, and how full it is at most."""
    parts = len(memory.most)
    width = _WIDTH / parts
    heights = [min(1.0, used / memory.capacity) * _HEIGHT for used in memory.most]
    steps = "".join(f"V{_HEIGHT - height:.1f}H{(n + 1) * width:.1f}" for n, height in enumerate(heights))
    drawn = [f'<path class="held" d="M0 {_HEIGHT}{steps}V{_HEIGHT}z"/>']
    each = max(1, parts // _STEPS)
    for first in range(0, parts, each):
        last = min(parts, first + each)
        most = max(memory.most[first:last])
        times = f"cycles {first * cycles / parts:,.0f} to {last * cycles / parts:,.0f}"
        tip = f"{memory.name}\n{times}\nat most {units.memory(most)} of {units.memory(memory.capacity)}"
        drawn.append(_box(first * width, (last - first) * width, "place", tip))
    yield element("div", escape_html(memory.name), class_="soft")
    yield _strip(drawn, "strip high")
    yield element("div", units.percentage(max(memory.most) / memory.capacity), class_="soft")


def _engine(row: EngineRow, cycles: float) -> Iterator[str]:
    """An engine's name, its spans, and the share of the run that it is busy."""
    drawn = []
    thin: dict[str, list[str]] = {}
    for span in row.spans:
        left, width = span.start / cycles * _WIDTH, max((span.end - span.start) / cycles * _WIDTH, 0.6)
        if width < _WIDE:
            thin.setdefault(span.kind, []).append(f"M{left:.1f} 0h{width:.1f}v{_HEIGHT}h-{width:.1f}z")
        else:
            tip = f"{span.title}\n{span.kind} on {row.name}\ncycles {span.start:,.0f} to {span.end:,.0f}"
            drawn.append(_box(left, width, f"e-{span.kind}", tip))
    drawn += [f'<path class="e-{kind}" d="{"".join(paths)}"/>' for kind, paths in thin.items()]
    yield element("div", escape_html(row.name), class_="soft")
    yield _strip(drawn, "strip")
    yield element("div", units.percentage(row.share), class_="soft")


def _strip(drawn: Iterable[str], kind: str) -> str:
    view = f"0 0 {_WIDTH} {_HEIGHT}"
    return f'<svg class="{kind}" viewBox="{view}" preserveAspectRatio="none">{"".join(drawn)}</svg>'


def _box(left: float, width: float, kind: str, tip: str) -> str:
    place = {"x": f"{left:.1f}", "y": "0", "width": f"{width:.1f}", "height": str(_HEIGHT)}
    return element("rect", "", class_=kind, **place, data_tip=tip)


# --- the other parts


def _order(picture: RunPicture) -> str:
    note = "A row for each sub-graph, a box for each of its instances, with its place in the order. "
    if picture.is_abreast:
        note += "Instances of a row with consecutive numbers run layer by layer together. "
    return section("Order of the instances", note, element("div", picture.order, class_="scroll picture"))


def _units(report: TimeReport) -> str:
    bound, scheduled = dict(report.bound.compute), dict(report.scheduled)
    rows = [
        [
            Cell(unit.value, is_text=True),
            Cell(f"{share:.1%}", share, share),
            *_numbers((scheduled.get(unit, 0.0), bound.get(unit, 0.0))),
        ]
        for unit, share in report.occupied
    ]
    note = (
        "The mean share of the time that units of a kind work; their cycles if the tiles were spread evenly; and the "
        "cycles at their peak rates."
    )
    return section("Units", note, table(("unit", "occupied", "these tiles", "at the peak"), rows))


def _levels(report: TimeReport) -> str:
    scopes = {"ddr": report.scopes.ddr, "gb": report.scopes.gb, "lb": report.scopes.lb}
    kept = ", ".join(f"{count} in {level.upper()}" for level, count in scopes.items())
    rows = [
        [Cell(f"{each.source.value} to {each.target.value}", is_text=True), Cell(units.memory(each.bytes), each.bytes)]
        for each in report.traffic
    ]
    note = f"Bytes that transfers move from level to level; a multicast counts each of its targets. Tensors: {kept}."
    return section("Bytes moved", note, table(("from and to", "bytes"), rows))


def _layers(picture: RunPicture) -> str:
    longest = max((row.cycles for row in picture.layers), default=0.0) or 1.0
    rows = [
        [
            Cell(row.name, is_text=True),
            Cell(f"{row.cycles:,.0f}", row.cycles, row.cycles / longest),
            Cell(row.unit, is_text=False),
            Cell(f"{row.tiles:,}", row.tiles),
            *_numbers((row.start, row.end)),
        ]
        for row in picture.layers
    ]
    columns = ("result", "cycles", "of unit", "tiles", "from", "to")
    note = (
        "Layers by the names of their results, in the order in which they begin. Cycles are those of the unit that a "
        "layer uses most, in the mean of all cores; from and to, when its first tile starts and its last one ends."
    )
    return section("Layers", note, table(columns, rows))


def _numbers(values: Sequence[float]) -> list[Cell]:
    return [Cell(f"{value:,.0f}", value) for value in values]
