"""The parts of benchmarks/sweep.py: what is swept, rows that stay, and what the table says of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from eqfuse.benchmarks import sweep
from eqfuse.benchmarks.architectures import ARCHITECTURES, Architecture, Form, Input
from eqfuse.benchmarks.architectures.environments import ENVIRONMENTS
from eqfuse.benchmarks.architectures.exporting import Export
from eqfuse.benchmarks.judging.subjects import exported_subject
from eqfuse.benchmarks.sweeping import stages
from eqfuse.benchmarks.sweeping.commands import run_command
from eqfuse.benchmarks.sweeping.networks import list_forms
from eqfuse.benchmarks.sweeping.rows import Compiled, Optimized, Peer, Ratio, Row, Timed, read_row, write_row
from eqfuse.benchmarks.sweeping.tables import causes_of, count, page_lines

ROW = Row(
    "timm-one.ts.fixed", "timm",
    Optimized(0, "", 2.0, 1.5, 300.0, (20, 10), (4e6, 3e6), Ratio(0.9, 0.88, 0.92), 0.95),
    {"onnxsim": Peer(0.5, "", 15, Ratio(0.95, 0.94, 0.96)), "onnxslim": Peer(0.1, "wrong: y differs")},
    Compiled(0, "", 20.0, 18.0, 500.0, 12, 5, (), ("Loop.1",), (), {"compile": 15.0, "verify": 2.0}),
    Timed({"eqfuse": 1e-3, "MNN": 2e-3}, "MNN", Ratio(2.0, 1.9, 2.1), 5e-4, 0.0, ()),
    {"optimize": "a", "peers": "b", "compile": "c", "speed": "d"}, "2026-01-02",
)  # fmt: skip


def test_networks_are_many_and_have_tools() -> None:
    libraries = Counter(each.library for each in ARCHITECTURES.values())
    assert len(ARCHITECTURES) >= 200
    assert min(libraries["timm"], libraries["transformers"] + libraries["cached"]) >= 80
    assert set(libraries) == set(ENVIRONMENTS)


def test_forty_architectures_are_swept_in_all_forms() -> None:
    numbers = Counter(map(len, list_forms(has_all_forms=True).values()))
    assert numbers == {1: len(ARCHITECTURES) - 40, 4: 40}


def test_a_row_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_row(ROW, tmp_path / "row.json")
    row = read_row(tmp_path / "row.json")
    assert row is not None
    assert list(page_lines([row], True)) == list(page_lines([ROW], True))
    assert row.digests == ROW.digests
    assert read_row(tmp_path / "other.json") is None


@pytest.mark.parametrize(
    ("options", "due"),
    [([], ["speed"]), (["--changed"], ["compile", "speed"]), (["--again"], ["optimize", "peers", "compile", "speed"])],
)
def test_stages_are_due_if_missing_changed_or_asked_for(
    options: list[str], due: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {"optimize": "a", "peers": "b", "compile": "new", "speed": "d"}
    monkeypatch.setattr(sweep, "digest_of", now.__getitem__)
    row = replace(ROW, digests={stage: digest for stage, digest in ROW.digests.items() if stage != "speed"})
    parsed = sweep.parser().parse_args(["--work", "folder", *options])
    assert [stage for stage in parsed.stages if sweep.is_due(stage, row, parsed)] == due


def test_a_change_of_lowering_touches_compiling_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "source_digest", lambda *packages: "with" if "lowering" in packages else "without")
    stages.digest_of.cache_clear()
    digests = [stages.digest_of(stage) for stage in ("optimize", "peers", "compile", "speed")]
    stages.digest_of.cache_clear()
    assert digests == ["without", "peers", "with", "with"]


def test_the_table_counts_what_misses() -> None:
    slowed = replace(ROW.optimized, latency=Ratio(1.1, 1.05, 1.2))  # type: ignore[type-var]
    refused = replace(ROW.compiled, code=4, message="verification failed: y | differs")  # type: ignore[type-var]
    behind = replace(ROW.timed, ratio=Ratio(0.8, 0.7, 0.9))  # type: ignore[type-var]
    rows = [ROW, replace(ROW, optimized=slowed), replace(ROW, compiled=refused, timed=None), replace(ROW, timed=behind)]
    figures = dict(count(rows))
    assert figures["optimize: slower than the original in ONNX Runtime"] == "1 of 4"
    assert figures["optimize: above 1.02 of the best peer's latency"] == "1 of 4"
    assert figures["compile: refused or crashed"] == "1 of 4"
    assert figures["compiled, slower than the best peer beyond chance"] == "1 of 3"


def test_predictions_are_compared_where_latency_changes() -> None:
    found = [(0.5, 0.4), (0.7, 0.6), (0.9, 0.8), (0.99, 0.1)]
    assert ROW.optimized is not None
    rows = [
        replace(ROW, optimized=replace(ROW.optimized, latency=Ratio(latency, 0.0, 2.0), predicted=predicted))
        for latency, predicted in found
    ]
    (figure,) = (figure for name, figure in count(rows) if "rank correlation" in name)
    assert figure == "1.00 of 3"


def test_the_table_says_why_a_row_misses() -> None:
    assert list(causes_of(ROW)) == []
    failed = Compiled(4, "verification failed: y | differs", 1.0, 1.0, 1.0)
    left = Compiled(0, "", 200.0, 1.0, 1.0, left=("Foo.1: no kernel computes it",), seconds={"compile": 190.0})
    assert list(causes_of(replace(ROW, compiled=failed))) == ["compile ended with 4: verification failed: y / differs"]
    assert list(causes_of(replace(ROW, compiled=left))) == [
        "left to ONNX Runtime: Foo.1: no kernel computes it",
        "compiled in 200 s (1 s of processor time), 190 of them compile",
    ]  # fmt: skip


def test_the_table_replaces_what_stands_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- sweep -->\nold\n<!-- end of sweep -->\nafter\n")
    write_row(ROW, tmp_path / "rows" / "one.json")
    sweep.main(["--work", str(tmp_path), "--table", str(page)])
    text = page.read_text()
    assert text.startswith("before\n<!-- sweep -->\n")
    assert text.endswith("\n<!-- end of sweep -->\nafter\n")
    assert "old" not in text
    assert "| timm-one.ts.fixed | 20 → 10 | 2.0 | 0.90 | 0.95 onnxsim | 20 | 12 → 5 | 0, 1 | 2.00 " in text


def test_a_page_has_a_section_for_each_processor(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    others = "before\n<!-- sweep -->\nother\n<!-- end of sweep -->\n"
    page.write_text(others + "<!-- sweep mine -->\nold\n<!-- end of sweep mine -->\n")
    write_row(ROW, tmp_path / "rows" / "one.json")
    sweep.main(["--work", str(tmp_path), "--table", str(page), "--section", "mine"])
    kept, mine = page.read_text().split("<!-- sweep mine -->")
    assert kept == others
    assert "| timm-one.ts.fixed |" in mine


def test_inputs_have_the_names_and_types_of_an_export(tmp_path: Path) -> None:
    architecture = Architecture("keras", "Words", {}, (Input("x", (1, 3), "integers", 7),))
    export = Export(architecture, Form("tf2onnx", False), tmp_path)
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (int32[1, 3] words) => (int32[1, 3] y) '
                                    "{ y = Neg (words) }")  # fmt: skip
    onnx.save(model, export.path)
    ((name, drawn),) = exported_subject(export).draw(0).items()
    assert (name, drawn.dtype, drawn.shape) == ("words", np.dtype(np.int32), (1, 3))


def test_a_command_is_told_of_with_its_last_line() -> None:
    ended = run_command(["sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3"])
    assert (ended.code, ended.printed, ended.message) == (3, "out\n", "last")
