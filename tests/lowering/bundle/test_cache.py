"""Bundles that are kept: for this machine and for others."""

from __future__ import annotations

from pathlib import Path

import pytest

import eqfuse

from ..small_models import chain, saved


@pytest.mark.representatives(1)
@pytest.mark.parametrize("target", ["host", "arm-cortex-a76"])
def test_the_second_compile_is_taken_from_the_cache(tmp_path: Path, target: str) -> None:
    path = saved(chain(), tmp_path / "in.onnx")
    compiled = [eqfuse.compile(path, tmp_path / name, target=target, threads=1, verify=False) for name in ("a", "b")]
    assert compiled[1].from_cache
    assert compiled[0].manifest == compiled[1].manifest
