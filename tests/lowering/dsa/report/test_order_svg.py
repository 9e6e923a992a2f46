from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from eqfuse.lowering.dsa.report.order_svg import order_svg
from eqfuse.lowering.dsa.schedule.instances import InstanceGraph
from eqfuse.lowering.dsa.schedule.orders import Order, dfs_order
from eqfuse.lowering.dsa.schedule.scheduler import Schedule

from ..graphs import HALVING_LOCAL_BYTES, Builder, accelerator, halving_stages
from ..scheduled import schedule

SVG = "{http://www.w3.org/2000/svg}"


def four_stages() -> Schedule:
    builder, result = halving_stages()
    return schedule(builder.graph(result), builder.layers, accelerator(HALVING_LOCAL_BYTES))


def drawn(graph: InstanceGraph, order: Order) -> ElementTree.Element:
    return ElementTree.fromstring(order_svg(graph, order))


def boxes(picture: ElementTree.Element) -> list[tuple[ElementTree.Element, int]]:
    """The rectangle of each instance, and the number in it."""
    found = []
    for group in picture.iter(f"{SVG}g"):
        rectangle, text = group.find(f"{SVG}rect"), group.findtext(f"{SVG}text")
        assert rectangle is not None
        assert text is not None
        found.append((rectangle, int(text)))
    return found


def rows(picture: ElementTree.Element) -> list[list[int]]:
    """The timestamps of each row from left to right, from the top row down."""
    found: dict[float, list[tuple[float, int]]] = {}
    for rectangle, time in boxes(picture):
        found.setdefault(float(rectangle.attrib["y"]), []).append((float(rectangle.attrib["x"]), time))
    return [[time for _, time in sorted(row)] for _, row in sorted(found.items())]


def test_a_box_for_each_instance() -> None:
    found = four_stages()
    assert sorted(time for _, time in boxes(drawn(found.graph, found.order))) == list(range(1, 16))


def test_the_timestamps_are_those_of_figure_3b() -> None:
    graph = four_stages().graph
    assert rows(drawn(graph, dfs_order(graph))) == [[1, 2, 4, 5, 8, 9, 11, 12], [3, 6, 10, 13], [7, 14], [15]]


def test_a_line_for_each_edge_of_figure_6() -> None:
    found = four_stages()
    lines = list(drawn(found.graph, found.order).iter(f"{SVG}line"))
    assert len(lines) == 8 + 4 + 2


def test_lines_past_other_rows_are_dashed() -> None:
    """Of two branches to a sum, the shorter one begins rows before it."""
    builder = Builder()
    x = builder.value((8, 8, 8, 8))
    first, other = builder.relu(x), builder.relu(x)
    result = builder.sum(builder.relu(builder.relu(first)), other)
    found = schedule(builder.graph(result), builder.layers, accelerator(1 << 20), instances=False)
    lines = list(drawn(found.graph, found.order).iter(f"{SVG}line"))
    rows_passed = [round((float(line.attrib["y2"]) - float(line.attrib["y1"])) // 50) for line in lines]
    assert ["stroke-dasharray" in line.attrib for line in lines] == [count > 0 for count in rows_passed]
    assert any(rows_passed)


def test_all_rows_are_equally_wide() -> None:
    found = four_stages()
    right: dict[str, float] = {}
    for rectangle, _ in boxes(drawn(found.graph, found.order)):
        end = float(rectangle.attrib["x"]) + float(rectangle.attrib["width"])
        right[rectangle.attrib["y"]] = max(end, right.get(rectangle.attrib["y"], 0.0))
    assert len(set(right.values())) == 1


def test_names_of_values_are_escaped() -> None:
    builder, result = halving_stages()
    graph = builder.graph(result)
    named = replace(graph, values=tuple(replace(v, name=f"<{v.name} & more>") for v in graph.values))
    found = schedule(named, builder.layers, accelerator(HALVING_LOCAL_BYTES))
    titles = [title.text or "" for title in drawn(found.graph, found.order).iter(f"{SVG}title")]
    assert all(" & more>[" in title for title in titles)
