"""``eqfuse report``: a compiled model over time, beside its roofline, in one file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import log10
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.driver.html_report.bundle import BundleRun, bundle_page, live_bytes, run_for_report
from eqfuse.driver.html_report.plots import linear, logarithmic
from eqfuse.driver.options import BenchOptions
from eqfuse.ir.sizes import symbol
from eqfuse.lowering.bundle.bundle import read_manifest, write_manifest
from eqfuse.lowering.plan.arena import plan_arena
from eqfuse.lowering.plan.manifest import Point, TuningSummary
from eqfuse.lowering.plan.plan import Buffer

from ...lowering.plan.plans import chain
from ..command_line import CommandLine
from .test_html_report import HOSTILE, Page

CURVE = (Point(16, 1.0, 4e-4), Point(32, 2.0, 3e-4), Point(48, 3.0, 2.5e-4))
TUNING = TuningSummary(48, 2, 3, 1, 0, 9.0, "local", 1.25, "tuned", learned=True, curve=CURVE)


def compiled(eqfuse: CommandLine, *options: object) -> Path:
    """Three products of matrices of one shape, of which the second has a hostile name."""
    eqfuse.chain(3)
    fixed = ("--partition", "none", "--precision", "exact", "--no-verify", "-q")
    assert eqfuse.run("compile", "in.onnx", "-o", "build", *fixed, *options).code == 0
    return Path("build")


def run_of(bundle: Path, **options: object) -> BundleRun:
    return run_for_report(bundle, read_manifest(bundle), BenchOptions(**options))


def widths(page: Page) -> list[float]:
    """The width in percent of each step, by the style of its bar."""
    found = (re.search(r"width:([\d.]+)%", attributes.get("style") or "") for _, attributes in steps(page))
    return [float(each[1]) for each in found if each is not None]


def steps(page: Page) -> list[tuple[str, dict[str, str | None]]]:
    """The bars in the lane of steps; those in the lane of memory have heights."""
    bars = [each for each in page.elements if each[0] == "i" and "data-tip" in each[1]]
    return [each for each in bars if "height" not in (each[1].get("style") or "")]


def test_each_step_of_a_measured_run_is_at_its_place_in_time(eqfuse: CommandLine) -> None:
    compiled(eqfuse, "--threads", "1")
    outcome = eqfuse.run("report", "build", "--repeat", "3")
    assert (outcome.code, outcome.out) == (0, f"written: {Path('build.html').resolve()}\n")
    page = Page(Path("build.html").read_text(encoding="utf-8"))
    assert len(steps(page)) == len(run_of(Path("build")).steps) >= 3
    assert sum(widths(page)) == pytest.approx(100.0, abs=0.1)
    assert "one run, CPU time" in page.text
    assert {"mark predicted", "mark measured"} <= {attributes.get("class") for _, attributes in page.elements}
    assert "peak" in page.text
    assert [a["data-group"] for tag, a in page.elements if tag == "tr" and a] == ["0"]  # one kernel, called three times


def test_the_page_needs_nothing_else_and_obeys_no_name(eqfuse: CommandLine) -> None:
    run = run_of(compiled(eqfuse, "--threads", "1"), repeat=1)
    text = bundle_page(HOSTILE, "2026-11-29", replace(run, steps=[replace(s, nodes=(HOSTILE,)) for s in run.steps]))
    assert HOSTILE not in text
    assert re.findall(r"https?:|//[a-z]+\.|@import|url\(", text) == []
    assert all(HOSTILE in (attributes["data-tip"] or "") for _, attributes in steps(Page(text)))


def test_times_of_a_c_project_are_predicted(eqfuse: CommandLine) -> None:
    run = run_of(compiled(eqfuse, "--format", "c"))
    assert run.breakdown is None
    (kernel,) = run.facts
    assert [step.seconds for step in run.steps] == [kernel.predicted] * 3
    page = Page(bundle_page("build", "2026-11-29", run))
    assert "Nothing was run" in page.text
    assert "mark measured" not in {attributes.get("class") for _, attributes in page.elements}
    error = eqfuse.fail(2, "report", "build", "--repeat", "3")
    assert error == "build: is a C project, whose times are predicted; nothing is run here"


def test_a_search_is_a_curve_over_its_candidates(eqfuse: CommandLine) -> None:
    run = run_of(compiled(eqfuse, "--threads", "1"), repeat=1)
    tuned = replace(run, manifest=replace(run.manifest, tuning=TUNING))
    text = Page(bundle_page("build", "2026-11-29", tuned)).text
    assert "48 candidates, 2 failed" in text
    assert "the tuned bundle is kept, the tuned one is 1.25\u00d7 as fast" in text
    write_manifest(Path("build"), tuned.manifest)
    kept = read_manifest(Path("build")).tuning
    assert kept is not None
    assert kept.curve == CURVE


def test_a_search_that_did_not_reach_all_kernels_says_why_it_has_no_curve(eqfuse: CommandLine) -> None:
    run = run_of(compiled(eqfuse, "--threads", "1"), repeat=1)
    tuned = replace(run, manifest=replace(run.manifest, tuning=replace(TUNING, trials=2, failed=0, curve=())))
    text = Page(bundle_page("build", "2026-11-29", tuned)).text
    assert "No curve: not all of 3 kernels had a candidate" in text
    assert "2 candidates, 0 failed" in text


def test_where_the_report_goes(eqfuse: CommandLine) -> None:
    compiled(eqfuse, "--threads", "1")
    content = json.loads(eqfuse.run("report", "build", "-o", "r.html", "--repeat", "1", "--json").out)
    assert (content["bundle"], content["output"]) == ("build", "r.html")
    error = eqfuse.fail(2, "report", "build", "-o", "none/r.html")
    assert error == "none/r.html: the folder none does not exist"
    assert "no such folder" in eqfuse.fail(1, "report", "nosuch")


# --- memory and axes


def test_memory_is_that_of_the_intermediates_that_are_alive() -> None:
    plan = chain(16, 32, 48, 16)  # x -> 128 bytes -> 192 bytes -> y
    assert live_bytes(plan, [(16,)]) == [128, 128 + 192, 192]
    assert max(live_bytes(plan, [(16,)])) == plan_arena(plan).size


def test_dynamic_sizes_are_those_of_the_call() -> None:
    plan = chain(16, 32, 16)
    buffers = (Buffer("x", "float32", (symbol("N"),)), Buffer("a", "float32", (symbol("N"), 2)), plan.buffers[2])
    assert live_bytes(replace(plan, buffers=buffers), [(40,)]) == [320, 320]


@given(st.lists(st.floats(1e-12, 1e15), min_size=1))
def test_axes_hold_all_values_and_have_ticks(values: list[float]) -> None:
    for axis in (linear("", values, str), logarithmic("", values, str)):
        assert all(-1e-9 <= axis.share(value) <= 1 + 1e-9 for value in values)
        assert all(-1e-9 <= axis.share(tick) <= 1 + 1e-9 for tick in axis.ticks())
        assert 2 <= len(axis.ticks()) <= max(8, log10(axis.most / max(axis.least, 1e-99)) + 2)


def test_axis_of_nothing() -> None:
    assert linear("", [], str).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert logarithmic("", [0.0], str).ticks() == [1.0, 10.0]
