"""The ratios of benchmarks/peers.py, and what it writes and reads again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eqfuse.benchmarks import peers
from eqfuse.benchmarks.latency import MNN, OPENVINO, OURS, REFERENCE, Record
from eqfuse.benchmarks.measuring.contestants import ContestantError, Sample
from eqfuse.benchmarks.measuring.packages import PACKAGED, unpack


def record(**seconds: float) -> Record:
    names = {"ours": OURS, "ort": REFERENCE, "openvino": OPENVINO, "mnn": MNN}
    return Record("a", "a", {(names[tool], 1): [Sample(time, time)] * 3 for tool, time in seconds.items()})


def test_best_peer_is_the_fastest() -> None:
    best = peers.best_ratio(record(ours=1.0, ort=3.0, openvino=2.0, mnn=5.0), 1)
    assert best is not None
    assert best.median == 2.0


@pytest.mark.parametrize("present", [{"ours": 1.0}, {"ort": 1.0, "mnn": 2.0}])
def test_there_is_no_best_ratio_without_both(present: dict[str, float]) -> None:
    assert peers.best_ratio(record(**present), 1) is None


def test_records_are_read_as_they_were_written() -> None:
    before = record(ours=1.0, ort=3.0)
    after = Record.of(json.loads(json.dumps(before.as_dict())))
    assert (after.name, after.samples) == (before.name, before.samples)


def test_package_that_is_not_to_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ContestantError, match="cannot fetch nudenet"):
        unpack(PACKAGED["nudenet"], tmp_path)
