"""Tuning through TVM's RPC on a device for 64-bit Arm, an emulated one (opt-in: EQFUSE_ARM64_ROOT names its root).

What its clock says means nothing, so no test looks at it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from onnx import helper

import eqfuse
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.toolchain import Tool, find, missing
from eqfuse.lowering.tuning.records import RecordDatabase
from eqfuse.lowering.tuning.runners.measuring import KernelObject
from eqfuse.lowering.tuning.runners.rpc_runner import RpcRunner

from ..small_models import model, saved, weights
from .compiled import CRASH, HANG, adding, in_c
from .runners.test_rpc_runner import NO_TRACKER, Farm, free_port

ROOT = os.environ.get("EQFUSE_ARM64_ROOT", "")
PYTHON = Path(ROOT, "usr/bin/python")
ABSENT = missing(*Tool)
pytestmark = [
    pytest.mark.skipif(
        not ROOT or not PYTHON.exists(),
        reason="EQFUSE_ARM64_ROOT names no folder that benchmarks/arm64_root.sh --tvm made",
    ),
    pytest.mark.skipif(NO_TRACKER, reason="tornado: not found; pip install tornado"),
    pytest.mark.skipif(bool(ABSENT), reason=ABSENT),
]
KEY = "board"
TARGET = "arm-cortex-a76"
START_SECONDS = 120
"""An emulated Python imports TVM twice before its server registers."""


def start_device(farm: Farm) -> None:
    """A server for 64-bit Arm, once it has registered."""
    port = free_port()
    place = ["--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1)]
    command = [PYTHON, "-m", "tvm.exec.rpc_server", *place, "--tracker", farm.address, "--key", KEY]
    device = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    farm.processes.append(device)
    for _ in range(START_SECONDS):
        if farm.servers(KEY) or device.poll() is not None:
            break
        time.sleep(1.0)
    assert farm.servers(KEY) == 1


@pytest.fixture(scope="module")
def device() -> Iterator[str]:
    """The address of a tracker that knows the device."""
    farm = Farm()
    try:
        start_device(farm)
        yield farm.address
    finally:
        farm.close()


def for_arm(folder: Path, symbol: str, body: str) -> KernelObject:
    kernel = in_c(folder, symbol, body)
    subprocess.run([find(Tool.CROSS_COMPILER), "-fPIC", "-c", f"{symbol}.c"], cwd=folder, check=True)
    return kernel


@pytest.mark.parametrize("threads", [1, 4])
def test_a_model_is_tuned(device: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pointwise convolution and a depthwise one, which can be joined: three kernels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["y"], group=16, pads=[1, 1, 1, 1]),
    ]
    stored = {"v": weights(16, 16, 1, 1), "w": weights(16, 1, 3, 3)}
    path = saved(model(nodes, {"x": (1, 16, 12, 12)}, {"y": (1, 16, 12, 12)}, **stored), tmp_path / "in.onnx")
    tuning = {"trials": 8, "tracker": device, "device_key": KEY}
    compiled = eqfuse.compile(path, tmp_path / "build", target=TARGET, threads=threads, tuning=tuning)

    summary = compiled.manifest.tuning
    assert summary is not None
    assert (summary.runner, summary.trials, summary.failed) == ("rpc", 8, 0)
    assert not summary.problem
    assert summary.ratio > 0
    assert compiled.manifest.provenance.verification.startswith("passed")
    records = RecordDatabase.open().all(runner=f"rpc:{KEY}")
    assert len(records) == 8
    assert all(record.latency is not None and record.device == f"{TARGET}/{threads}" for record in records)


def test_a_kernel_that_crashes_or_hangs_costs_itself_alone(device: str, tmp_path: Path) -> None:
    target = target_of(TARGET, 1)
    bad = [for_arm(tmp_path, "crash", CRASH), for_arm(tmp_path, "hang", HANG)]
    with closing(RpcRunner(device, KEY, target.triple, target.threads, 10.0)) as runner:
        crash, hang, good = runner.measure([*bad, adding(tmp_path, target=target)])
    assert good.problem is None
    assert crash.problem
    assert hang.problem == "took longer than 10 s"
