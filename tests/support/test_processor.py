"""What the system says of the processor, read from files that a test makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eqfuse.support import processor
from eqfuse.support.processor import (
    LEVELS,
    CacheLevel,
    ProcessorModel,
    available_cores,
    cache_levels,
    level_features,
    processor_level,
)


@pytest.fixture
def control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of eight cores whose control groups are folders of the test."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(processor, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(processor, "_OWN_CGROUPS", tmp_path / "self")
    return tmp_path


def group(path: Path, files: dict[str, str]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text, encoding="utf-8")


def test_cores_are_those_of_the_affinity(control_groups: Path) -> None:
    assert available_cores() == 8


@pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 2), ("max 100000", 8), ("50000 100000", 1)])
def test_a_quota_of_the_second_version_limits_cores(control_groups: Path, quota: str, cores: int) -> None:
    group(control_groups, {"self": "0::/a/b\n"})
    group(control_groups / "cgroup/a/b", {"cpu.max": "max 100000"})
    group(control_groups / "cgroup/a", {"cpu.max": quota})
    assert available_cores() == cores


@pytest.mark.parametrize(("quota", "cores"), [("300000", 3), ("-1", 8)])
def test_a_quota_of_the_first_version_limits_cores(control_groups: Path, quota: str, cores: int) -> None:
    group(control_groups, {"self": "3:cpuset:/\n2:cpuacct,cpu:/a\n"})
    group(control_groups / "cgroup/cpu/a", {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000"})
    assert available_cores() == cores


def test_data_caches_are_read_smallest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_CACHES", tmp_path)
    for number, (level, kind, size, ways) in enumerate(
        [("3", "Unified", "32M", "16"), ("1", "Instruction", "64K", "8"), ("1", "Data", "48K", "12")]
    ):
        files = {"level": level, "type": kind, "size": size, "ways_of_associativity": ways, "coherency_line_size": "64"}
        group(tmp_path / f"index{number}", files)
    assert cache_levels() == (CacheLevel(1, 48 << 10, 12, 64), CacheLevel(3, 32 << 20, 16, 64))


def test_levels_contain_each_other() -> None:
    rich, middle, poor = map(level_features, LEVELS)
    assert rich > middle > poor
    assert "avx512f" in rich - middle
    assert "avx2" in middle - poor


def test_the_level_is_that_of_what_the_system_shows_whatever_the_processor_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masked = processor.processor_features() | level_features("x86-64-v3")
    monkeypatch.setattr(processor, "processor_features", lambda: masked - {"avx512f"})
    assert processor_level() == "x86-64-v3"


@pytest.mark.parametrize(
    ("stated", "model"),
    [
        ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "17"}, ProcessorModel("AuthenticAMD", 25, 17)),
        ({"CPU implementer": "0x41"}, ProcessorModel()),
        ({"vendor_id": "x", "cpu family": "unknown", "model": "1"}, ProcessorModel()),
    ],
)
def test_the_model_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, stated: dict[str, str], model: ProcessorModel
) -> None:
    monkeypatch.setattr(processor, "_stated_facts", lambda: stated)
    assert processor.processor_model() == model
