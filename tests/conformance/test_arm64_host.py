"""eqfuse on 64-bit Arm: in the folder of ``benchmarks/arm64_root.sh --eqfuse``, under QEMU's user emulation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import parser

from eqfuse.cli import main

pytestmark = pytest.mark.conformance

ROOT = Path(os.environ.get("EQFUSE_ARM64_ROOT", "/nonexistent"))
CHECKOUT = Path(__file__).parents[2]
PACKAGES = ROOT / "usr/lib/python3/dist-packages"
MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[4,8] x, float[8,8] w) => (float[4,8] y) {
    a = MatMul(x, w) b = Relu(a) c = Relu(b) d = Add(c, c)
    e = Transpose<perm=[1,0]>(d) y = Transpose<perm=[1,0]>(e)
}"""


@pytest.mark.skipif(
    not (PACKAGES / "eqfuse").is_dir(),
    reason="EQFUSE_ARM64_ROOT names no folder that benchmarks/arm64_root.sh --eqfuse made",
)
def test_optimize_writes_on_arm_what_it_writes_here(tmp_path: Path) -> None:
    renew = sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", PACKAGES, CHECKOUT
    subprocess.run(renew, check=True)
    model, result = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(parser.parse_model(MODEL), model)
    words = "optimize", model, "-o", result, "--time-limit", "1200"
    done = subprocess.run(
        [ROOT / "usr/bin/python", "-m", "eqfuse", *words],
        capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)}, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "verification: passed" in done.stdout
    here = tmp_path / "here.onnx"
    assert main(["optimize", str(model), "-o", str(here), "-q"]) == 0
    assert len(onnx.load(here).graph.node) == 3
    assert result.read_bytes() == here.read_bytes()
