"""Reports of models and of bundles in a real browser: Chromium, where it is installed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import runpy
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import onnx
import pytest

from eqfuse.cli import main, optimize

from ..lowering.dsa.small_networks import cnn

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

VISIT = """
const seen = [];
const after = document.querySelector("[data-graph=after]");
const level = name => [...after.querySelectorAll(".levels button")].find(b => b.textContent === name);
const press = (target, kind = "click") => target.dispatchEvent(new MouseEvent(kind, {bubbles: true}));
const rows = () => [...document.querySelectorAll("tr.selected")].map(row => row.dataset.group);
const note = (name, value) => seen.push([name, value]);

note("views", [...after.querySelectorAll(".levels button")].map(b => b.textContent));
press(level("sub-graphs"));
note("sub-graphs", after.querySelectorAll(".vertex").length);
press(after.querySelectorAll(".vertex")[1]);
note("row of a clicked sub-graph", rows());
note("marked sub-graphs", after.querySelectorAll(".vertex.chosen").length);
press(document.querySelector("tr[data-group='0']"));
note("row that was clicked", rows());
press(level("operators"));
note("operators", after.querySelectorAll(".vertex").length);
const find = after.querySelector("input");
find.value = "SOFTMAX";
find.dispatchEvent(new Event("input"));
note("found", after.querySelectorAll(".vertex.hit").length);
const vertex = after.querySelector(".vertex");
vertex.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: 100, clientY: 100}));
note("tip", document.getElementById("tip").textContent);
const tipOf = made => {
  made.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: 100, clientY: 100}));
  const names = [...document.querySelectorAll("#tip dt")];
  return Object.fromEntries(names.map(dt => [dt.textContent, dt.nextElementSibling.textContent]));
};
const before = document.querySelector("[data-graph=before]");
const marked = root => [...root.querySelectorAll(".vertex.marked")];
const marks = root => marked(root).map(made => [made.querySelector(".mark").classList[1], tipOf(made)]);
note("marks before", marks(before));
note("marks after", marks(after));
const [left, right] = [before, after].map(each => each.getBoundingClientRect());
note("side by side", left.top === right.top && left.right <= right.left);
const heading = [...document.querySelectorAll("th button")].find(b => b.textContent === "cost");
press(heading);
const costs = [...heading.closest("table").tBodies[0].rows].map(row => Number(row.cells[2].dataset.value));
note("sorted", costs.every((p, i) => !i || p <= costs[i - 1]));
const frame = heading.closest(".scroll");
const share = [...heading.closest("tr").cells].find(cell => cell.textContent === "share").getBoundingClientRect();
note("cost and share are in view", share.right <= frame.getBoundingClientRect().left + frame.clientWidth + 1);
"""
VISIT_BUNDLE = """
const seen = [];
const note = (name, value) => seen.push([name, value]);
const [steps, memory] = document.querySelectorAll(".lane");
const bars = [...steps.children], heights = [...memory.children];
const press = target => target.dispatchEvent(new MouseEvent("click", {bubbles: true}));
note("steps", bars.length);
const ends = made => { const {left, right} = made.getBoundingClientRect(); return [left, right]; };
note("steps fill the lane", [ends(bars[0])[0] - ends(steps)[0], ends(steps)[1] - ends(bars.at(-1))[1]]);
note("memory is below its step", bars.every((bar, n) => Math.abs(ends(bar)[0] - ends(heights[n])[0]) < 1));
note("highest", Math.max(...heights.map(made => made.getBoundingClientRect().height)) / memory.clientHeight);
bars[0].dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: 480, clientY: 100}));
note("tip", [...tip.children].map(line => line.textContent));
note("tip is in view", tip.getBoundingClientRect().right <= document.documentElement.clientWidth);
press(bars[0]);
note("rows", [...document.querySelectorAll("tr.selected")].map(row => row.cells[0].textContent));
note("marked points", document.querySelectorAll("circle.chosen").length);
const texts = [...document.querySelectorAll(".chart")].flatMap(chart => [...chart.querySelectorAll("text")].map(text =>
  [text.getBoundingClientRect(), chart.getBoundingClientRect()]));
note("texts are inside", texts.every(([a, b]) => a.left >= b.left - 1 && a.right <= b.right + 1));
"""
VISIT_ACCELERATOR = """
const seen = [];
const note = (name, value) => seen.push([name, value]);
const strips = [...document.querySelectorAll(".strip")], order = document.querySelector(".picture svg");
const names = strips.map(strip => strip.previousElementSibling.textContent);
const ends = made => { const {left, right} = made.getBoundingClientRect(); return [left, right]; };
note("memories", names.filter(name => /^(GB|LB)/.test(name)));
note("engines", names.filter(name => /^0[.]/.test(name)).length);
note("strips are below each other", strips.every(strip => ends(strip).join() === ends(strips[0]).join()));
note("wide enough", strips[0].clientWidth / document.documentElement.clientWidth);
const drawn = strips.flatMap(strip => [...strip.querySelectorAll("[class^=e-]")]);
const colours = drawn.map(made => getComputedStyle(made).fill);
note("colours", [...new Set(colours)].length);
const point = made => made.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: 480, clientY: 100}));
point(strips[0].querySelector("rect"));
note("tip of a memory", [...tip.children].map(line => line.textContent));
point(strips[names.indexOf("0.0.mme")].querySelector("rect"));
note("tip of an engine", [...tip.children].map(line => line.textContent));
note("tip is in view", tip.getBoundingClientRect().right <= document.documentElement.clientWidth);
note("instances", [...order.querySelectorAll(".instance text")].map(text => text.textContent));
note("tables", [...document.querySelectorAll("h2")].map(heading => heading.textContent));
"""
OUTCOME = """
note("requests", performance.getEntriesByType("resource").length);
note("wider than the window", document.documentElement.scrollWidth > document.documentElement.clientWidth);
const outcome = document.createElement("pre");
outcome.id = "outcome";
outcome.textContent = JSON.stringify(Object.fromEntries(seen));
document.body.append(outcome);
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the demo model, cut into sub-graphs."""
    folder = tmp_path_factory.mktemp("report")
    demo_model(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimize, "_EXPLAIN_SECONDS", 600.0)  # on a busy machine, too
        words = "optimize", str(folder / "demo.onnx"), "-q", "--partition", "ago", "--report", str(folder / "r.html")
        code = main(words)
    assert code in (0, 5)
    return folder / "r.html"


@pytest.fixture(scope="module")
def bundle_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the demo model as a bundle."""
    folder = tmp_path_factory.mktemp("bundle")
    words = "compile", str(demo_model(folder)), "-o", str(folder / "demo.bundle"), "--threads", "1", "-q"
    assert main(words) in (0, 5)
    assert main(("report", str(folder / "demo.bundle"), "-o", str(folder / "r.html"), "-q")) == 0
    return folder / "r.html"


@pytest.fixture(scope="module")
def accelerator_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small network for an accelerator."""
    folder = tmp_path_factory.mktemp("accelerator")
    onnx.save(cnn(), folder / "cnn.onnx")
    words = "--target", "dsa-stcp920", "--batch", "8", "-o", str(folder / "cnn.bundle"), "-q"
    assert main(("compile", str(folder / "cnn.onnx"), *words)) in (0, 5)
    assert main(("report", str(folder / "cnn.bundle"), "-o", str(folder / "r.html"), "-q")) == 0
    return folder / "r.html"


def demo_model(folder: Path) -> Path:
    """The demo model, in a folder."""
    demo = runpy.run_path(str(ROOT / "examples/demo_model.py"))["demo_model"]()
    (folder / "demo.onnx").write_bytes(demo.SerializeToString())
    return folder / "demo.onnx"


def visited(report: Path, width: int, visit: str = VISIT) -> tuple[dict[str, Any], list[str]]:
    """What a visitor of the page finds, and what the browser complains of. The page's policy stays in force."""
    script = visit + OUTCOME
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = report.read_text(encoding="utf-8")
    text = text.replace("script-src ", f"script-src &#x27;sha256-{digest}&#x27; ", 1)
    page = report.with_name("visited.html")
    page.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            f"--user-data-dir={report.parent / 'profile'}", f"--window-size={width},900", "--virtual-time-budget=2000",
            "--enable-logging=stderr", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = re.search(r'<pre id="outcome">(.*?)</pre>', done.stdout, re.DOTALL)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(unescape(found[1])) if found else {}, complaints


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1400, 500])
def test_it_works_in_a_browser(report: Path, width: int) -> None:
    seen, complaints = visited(report, width)
    assert complaints == []
    assert seen["views"] == ["sub-graphs", "kernels", "operators"]
    assert seen["row of a clicked sub-graph"] == ["1"]
    assert seen["marked sub-graphs"] == 1
    assert seen["row that was clicked"] == ["0"]
    assert seen["operators"] > seen["sub-graphs"] > 1
    assert seen["found"] > 0
    assert "cost" in seen["tip"]
    assert {kind for kind, _ in seen["marks before"]} == {"k1", "k2"}  # changed and fused
    assert {kind for kind, _ in seen["marks after"]} == {"k1", "k4"}  # changed and added
    tips = [tip for side in ("before", "after") for _, tip in seen[f"marks {side}"]]
    assert all(tip["change"] for tip in tips)
    assert any("conv-batch-normalization" in tip.get("rules", "") for tip in tips)
    assert seen["side by side"] is (width > 1000)
    assert seen["sorted"] is True
    assert seen["cost and share are in view"] is True
    assert seen["requests"] == 0
    assert seen["wider than the window"] is False


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1400, 500])
def test_a_bundle_is_drawn_over_time(bundle_report: Path, width: int) -> None:
    seen, complaints = visited(bundle_report, width, VISIT_BUNDLE)
    assert complaints == []
    assert seen["steps"] > 20
    assert seen["steps fill the lane"] == pytest.approx([0, 0], abs=2)
    assert seen["memory is below its step"] is True
    assert seen["highest"] == pytest.approx(1.0, abs=0.02)
    assert seen["tip"][0].startswith("kernel_")
    assert seen["tip is in view"] is True
    assert seen["rows"] == [seen["tip"][0]]
    assert seen["marked points"] == 2  # measured and predicted
    assert seen["texts are inside"] is True
    assert seen["requests"] == 0
    assert seen["wider than the window"] is False


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1400, 500])
def test_a_program_for_an_accelerator_is_drawn_over_time(accelerator_report: Path, width: int) -> None:
    seen, complaints = visited(accelerator_report, width, VISIT_ACCELERATOR)
    assert complaints == []
    assert seen["memories"] == ["GB[0]", *(f"LB[0.{core}]" for core in range(8))]
    assert seen["engines"] > 8 * 3
    assert seen["strips are below each other"] is True
    assert seen["wide enough"] > 0.5
    assert seen["colours"] > 3
    assert seen["tip of a memory"][0] == "GB[0]"
    assert seen["tip of a memory"][2].startswith("at most ")
    assert seen["tip of an engine"][1] == "mme on 0.0.mme"
    assert seen["tip is in view"] is True
    assert sorted(map(int, seen["instances"])) == list(range(1, len(seen["instances"]) + 1))
    assert seen["tables"] == ["A run over time", "Order of the instances", "Units", "Bytes moved", "Layers"]
    assert seen["requests"] == 0
    assert seen["wider than the window"] is False
