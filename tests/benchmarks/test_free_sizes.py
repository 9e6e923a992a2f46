"""Cases of benchmarks/measuring/packages.py, and what benchmarks/measuring/free_sizes.py says of rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eqfuse.benchmarks.latency import OURS, REFERENCE
from eqfuse.benchmarks.measuring.contestants import Sample
from eqfuse.benchmarks.measuring.free_sizes import STATIC, TYPICAL, Row
from eqfuse.benchmarks.measuring.packages import PACKAGED, Case, draw_inputs
from eqfuse.lowering.base.ports import Port

PORTS = (Port("a:0", "float32", ("N", 3, "`x.2`", 40)), Port("sr", "int64", ()))


def test_a_case_names_shapes_and_values() -> None:
    case = Case.read("a:0:2,3,30,40 sr=8000")
    assert case.sizes(PORTS) == {"N": 2, "x.2": 30}
    drawn = draw_inputs(PORTS, case, 0)
    assert drawn["a:0"].shape == (2, 3, 30, 40)
    assert drawn["sr"] == 8000
    assert str(case) == "2 x 3 x 30 x 40"


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_models_run_at_five_sizes_or_at_none(name: str) -> None:
    assert len({str(case.shapes) + str(case.values) for case in PACKAGED[name].cases}) in (0, 1, 5)


def row(verdict: str = "right", fallback: str = "none", **seconds: float) -> Row:
    names = {"ours": OURS, "ort": REFERENCE, "typical": TYPICAL, "static": STATIC}
    samples = {(names[who], 1): [Sample(time, time)] * 3 for who, time in seconds.items()}
    return Row("a", "a", samples, verdict=verdict, fallback=fallback)


def test_a_row_says_what_it_misses() -> None:
    assert row(ours=1.0, ort=2.0, typical=1.0, static=1.0).misses() == []
    assert row("wrong", "Foo", ours=2.0, ort=1.0, typical=1.5, static=1.0).misses() == [
        "wrong", "Foo", "0.50 1 thread(s)", "1.50 typical / static",
    ]  # fmt: skip


def test_rows_are_read_as_they_were_written() -> None:
    before = row(ours=1.0, ort=2.0)
    after = Row.of(json.loads(json.dumps(before.as_dict())))
    assert (after.verdict, after.fallback, after.ratios()) == ("right", "none", before.ratios())


def test_pages_have_dark_signs_on_bright_paper() -> None:
    page = draw_inputs([Port("x", "float32", (1, 3, 96, 96))], Case({}, {}), 0)["x"]
    assert np.median(page) > 0.5
    assert page.min() < -0.5
