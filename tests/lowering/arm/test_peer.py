"""ONNX Runtime for 64-bit Arm: finding its root, and counting in one (opt-in: EQFUSE_ARM64_ROOT names it)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from eqfuse.costmodels.device import load_device
from eqfuse.lowering.arm.emulate import Arm64Root
from eqfuse.support.processes.program import ToolError

from ..small_models import chain, saved

ROOT = os.environ.get("EQFUSE_ARM64_ROOT", "")
DEVICE = load_device("arm-cortex-a76")


def test_a_root_says_its_version(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/python3/dist-packages/onnxruntime-1.22.1.dist-info").mkdir(parents=True)
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/python3").touch()
    assert Arm64Root.at(tmp_path) == Arm64Root(tmp_path, "1.22.1")


def test_a_folder_without_onnx_runtime_is_no_root(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="has no Python with ONNX Runtime for arm64"):
        Arm64Root.at(tmp_path)


@pytest.mark.skipif(not ROOT, reason="EQFUSE_ARM64_ROOT names no folder that benchmarks/arm64_root.sh made")
def test_onnx_runtime_counts_the_same_twice(tmp_path: Path) -> None:
    path, x = saved(chain(), tmp_path / "in.onnx"), np.ones((4, 8), np.float32)
    first, second = (Arm64Root.at(Path(ROOT)).count(path, {"x": x}, DEVICE) for _ in range(2))
    assert first == second
    assert first.multiply_adds >= 2 * 4 * 8 * 8
