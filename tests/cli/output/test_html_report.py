"""``eqfuse optimize --report``: one HTML file that needs nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from eqfuse.driver.html_report import html_report
from eqfuse.driver.html_report.content import Arrangement, Box
from eqfuse.driver.html_report.layered import Drawing, Network, draw
from eqfuse.driver.html_report.markup import embed_json
from eqfuse.driver.optimize import Result, optimize_model
from eqfuse.driver.options import Options
from eqfuse.support.text import printable

from ...properties import examples
from ..command_line import CommandLine

HOSTILE = "<script>alert(1)</script>"
DATE = "2026-11-23 08:00"
VOID = frozenset({"meta", "input", "line"})


class Page(HTMLParser):
    """The elements of a page, in order; fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.data = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"] and self.elements[-1][1].get("id") == "data":
            self.data += data
        elif self.open[-1:] not in (["script"], ["style"]):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    @property
    def content(self) -> Any:
        return json.loads(self.data)

    def with_attribute(self, name: str) -> list[str | None]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]


def optimized(folder: Path, **options: Any) -> tuple[Result, Options]:
    """Two layers with a redundant Relu; one node has a name that is HTML."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], HOSTILE),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("MatMul", ["b", "w"], ["c"], "</script><b>"),
        helper.make_node("Softmax", ["c"], ["y"], "last"),
    ]
    model = CommandLine(folder, None).model("in.onnx", nodes, (4, 4), w=[[1.0, 2.0, 3.0, 4.0]] * 4)
    asked = Options(verify=False, **options)
    return optimize_model(model, None, asked), asked


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Options]:
    return optimized(tmp_path_factory.mktemp("joint"), partition="joint")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Options]:
    return optimized(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def text(joint: tuple[Result, Options]) -> str:
    return html_report("models/in.onnx", DATE, *joint)


# --- one file that needs nothing else


def test_it_names_no_other_place(text: str) -> None:
    assert re.findall(r"https?:|//[a-z]+\.|@import|url\(", text) == []


def test_it_refers_to_no_file(text: str) -> None:
    page = Page(text)
    assert page.with_attribute("src") + page.with_attribute("href") == []
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in page.elements}


def test_the_policy_allows_this_script_alone(text: str) -> None:
    (policy,) = (a["content"] for t, a in Page(text).elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert re.fullmatch(r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/=]{44}'", policy)


# --- what it says


def test_the_figures_are_there_without_the_script(joint: tuple[Result, Options], text: str) -> None:
    result, _ = joint
    shown = Page(text).text
    heading = ("models/in.onnx", DATE, "x: float32 4\u00d74", "verification: not asked for", "partition joint")
    for line in (*heading, "rewritten, then fused", "Softmax"):
        assert line in shown
    assert all(rule.name in shown for rule in result.saturation.matched)


def test_every_subgraph_has_a_row(joint: tuple[Result, Options], text: str) -> None:
    partition = joint[0].partition
    assert partition is not None
    assert Page(text).with_attribute("data-group") == [str(n) for n in range(partition.partition.count)]


def test_the_data_hold_both_graphs(text: str) -> None:
    graphs = Page(text).content["graphs"]
    assert [o[0] for o in graphs["before"]["operators"]] == [HOSTILE, "second", "</script><b>", "last"]
    assert [len(graphs[g]["operators"]) for g in ("before", "after")] == [4, 3]
    assert [view["name"] for view in graphs["after"]["views"]] == ["sub-graphs", "kernels", "operators"]


def test_operators_say_what_became_of_them_and_by_which_rules(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("Exp", ["b"], ["y"], "last"),
    ]
    model = CommandLine(tmp_path, None).model("in.onnx", nodes)
    asked = Options(verify=False)
    page = Page(html_report("in.onnx", DATE, optimize_model(model, None, asked, explain_seconds=60.0), asked))
    kinds, texts, graphs = (page.content[name] for name in ("kinds", "texts", "graphs"))
    marks = {o[0]: (kinds[o[9]], texts[o[10]], texts[o[11]]) for o in graphs["before"]["operators"]}
    assert marks == {
        "first": ("kept", "", ""),
        "second": ("fused", "fused into y", "relu-of-nonnegative"),
        "last": ("changed", "other operands or attributes", "relu-of-nonnegative"),
    }
    assert [kinds[o[9]] for o in graphs["after"]["operators"]] == ["kept", "changed"]


def test_the_shares_add_up_to_the_cost(joint: tuple[Result, Options], text: str) -> None:
    partition = joint[0].partition
    assert partition is not None
    operators = Page(text).content["graphs"]["after"]["operators"]
    assert sum(o[6] for o in operators) == pytest.approx(partition.seconds, rel=1e-3)


def test_it_works_without_a_partition(plain: tuple[Result, Options]) -> None:
    page = Page(html_report("models/in.onnx", DATE, *plain))
    assert "Latency by operator" in page.text
    assert page.with_attribute("data-group") == []
    assert [len(page.content["graphs"][g]["views"]) for g in ("before", "after")] == [1, 1]


def test_the_same_result_gives_the_same_bytes(joint: tuple[Result, Options], text: str) -> None:
    assert html_report("models/in.onnx", DATE, *joint) == text


# --- names that are HTML


def test_names_of_nodes_are_text(text: str) -> None:
    assert HOSTILE not in text
    assert text.count("<script") == 2


def test_the_name_of_the_model_is_text(plain: tuple[Result, Options]) -> None:
    page = Page(html_report(HOSTILE, DATE, *plain))
    assert HOSTILE in page.text
    assert sum(tag == "script" for tag, _ in page.elements) == 2


def test_a_name_that_is_no_text_is_shown_somehow(plain: tuple[Result, Options]) -> None:
    assert "bad?.onnx" in html_report("bad\udcff.onnx", DATE, *plain)


@examples(8)
@given(st.text())
def test_embedded_data_cannot_end_their_element(text: str) -> None:
    made = embed_json([text])
    assert not set("<>&\u2028\u2029") & set(made)
    assert json.loads(made) == [printable(text)]


# --- the drawing


@st.composite
def graphs(draw_: st.DrawFn) -> tuple[int, frozenset[tuple[int, int]]]:
    count = draw_(st.integers(1, 24))
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    return count, frozenset((a, b) for a, b in draw_(st.lists(ends, max_size=40)) if a < b)


def overlapping(frames: Sequence[tuple[float, float, float, float]]) -> list[tuple[int, int]]:
    """Pairs of rectangles (x, y, width, height) that overlap."""
    return [
        (i, j)
        for i, (x, y, w, h) in enumerate(frames)
        for j, (a, b, c, d) in enumerate(frames[:i])
        if x < a + c - 0.5 and a < x + w - 0.5 and y < b + d - 0.5 and b < y + h - 0.5
    ]


@given(graphs(), st.sampled_from([None, 0.3, 1.0, 3.0]))
def test_no_two_vertices_overlap(graph: tuple[int, frozenset[tuple[int, int]]], ratio: float | None) -> None:
    count, edges = graph
    sizes = [(40.0 + 7 * (i % 5), 30.0) for i in range(count)]
    drawn: Drawing = draw(Network(sizes, edges), ratio)
    assert overlapping([(*place, *size) for place, size in zip(drawn.places, sizes, strict=True)]) == []
    assert all(x >= -0.5 and x + w <= drawn.width + 0.5 for (x, _), (w, _) in zip(drawn.places, sizes, strict=True))


@given(graphs())
def test_unfolded_edges_go_down(graph: tuple[int, frozenset[tuple[int, int]]]) -> None:
    count, edges = graph
    drawn = draw(Network([(40.0, 30.0)] * count, edges), None)
    for source, target in edges:
        heights = [drawn.places[source][1], *(y for _, y in drawn.routes[source, target]), drawn.places[target][1]]
        assert heights == sorted(heights)


@given(graphs(), st.integers(1, 6), st.integers(1, 3))
def test_boxes_hold_what_is_theirs_and_nothing_else(
    graph: tuple[int, frozenset[tuple[int, int]]], large: int, small: int
) -> None:
    count, edges = graph
    outer, inner = [i // (large * small) for i in range(count)], [i // small for i in range(count)]
    drawn = Arrangement([(40.0, 30.0)] * count, sorted(edges), (outer, inner)).draw()
    assert set(drawn.routes) == edges
    boxes = [b for b in drawn.boxes if b.level == 0]
    assert overlapping([(b.x, b.y, b.width, b.height) for b in boxes]) == []
    for box in boxes:
        assert {v for v in range(count) if holds(box, *drawn.places[v])} == {
            v for v in range(count) if outer[v] == box.label
        }


def holds(box: Box, x: float, y: float) -> bool:
    return box.x <= x <= box.x + box.width - 40 and box.y <= y <= box.y + box.height - 30


# --- the option


def test_the_option_writes_it(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("optimize", "in.onnx", "-o", "out.onnx", "--partition", "ago", "--report", "out.html")
    assert outcome.code == 0
    assert outcome.out.endswith("written: out.onnx\nreport: out.html\n")
    assert eqfuse.files() == ["in.onnx", "out.html", "out.onnx"]
    assert "verification: passed" in Page((eqfuse.folder / "out.html").read_text(encoding="utf-8")).text


def test_json_is_printed_all_the_same(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("optimize", "in.onnx", "--report", "out.html", "--json")
    assert json.loads(outcome.out)["after"]["layers"] == 2
    assert eqfuse.files() == ["in.onnx", "out.html"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/out.html", "the folder none does not exist"),
        ("folder", "is a folder"),
        ("in.onnx", "is the input itself"),
        ("./out.onnx", "is the model to write"),
    ],
)
def test_what_cannot_be_written_is_found_first(eqfuse: CommandLine, name: str, message: str) -> None:
    eqfuse.small()
    (eqfuse.folder / "folder").mkdir()
    assert message in eqfuse.fail(2, "optimize", "in.onnx", "-o", "out.onnx", "--report", name)
    assert eqfuse.files() == ["folder", "in.onnx"]


def test_weights_of_the_model_stay(eqfuse: CommandLine) -> None:
    model = onnx.load(eqfuse.chain(3))
    onnx.save(model, eqfuse.folder / "in.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    weights = (eqfuse.folder / "weights").read_bytes()
    outcome = eqfuse.run("optimize", "in.onnx", "--report", "weights")
    assert "holds weights of the model" in outcome.error
    assert (eqfuse.folder / "weights").read_bytes() == weights


def test_nothing_is_written_where_verification_fails(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.rule("wrong.egg", '(rewrite (Add a b) a :ruleset explore :name "wrong")')
    outcome = eqfuse.run("optimize", "in.onnx", "--rules", "wrong.egg", "--trust-rules", "--report", "out.html")
    assert outcome.code == 3
    assert "out.html" not in eqfuse.files()


def test_a_graph_of_no_layers(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    model = CommandLine(tmp_path, None).model("in.onnx", nodes, (2, 2), w=[[1.0, 2.0]] * 2)
    asked = Options(verify=False, partition="ago")
    page = Page(html_report("in.onnx", DATE, optimize_model(model, None, asked), asked))
    assert page.content["graphs"]["after"]["operators"] == []
