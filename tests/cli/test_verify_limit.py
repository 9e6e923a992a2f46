"""Models whose verification does not end: a limit, and signals, end it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from .command_line import CommandLine


def endless(eqfuse: CommandLine) -> None:
    """Write a model with a Loop without a count whose condition stays true."""
    tensor = helper.make_tensor_value_info
    nodes = [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Add", ["sum", "x"], ["more"])]
    counters = [("i", TensorProto.INT64, []), ("on", TensorProto.BOOL, []), ("sum", TensorProto.FLOAT, [2, 3])]
    results = [("still", TensorProto.BOOL, []), ("more", TensorProto.FLOAT, [2, 3])]
    body = helper.make_graph(nodes, "body", [tensor(*c) for c in counters], [tensor(*r) for r in results])
    cast = helper.make_node("Cast", ["one"], ["true"], to=TensorProto.BOOL)
    eqfuse.model("in.onnx", [cast, helper.make_node("Loop", ["", "true", "x"], ["y"], body=body)], one=np.asarray(1))


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (("optimize", "in.onnx", "out.onnx"), "; nothing was written; --no-verify does without"),
        (("verify", "in.onnx", "in.onnx"), ""),
    ],
)
def test_a_limit_ends_it(eqfuse: CommandLine, command: tuple[str, ...], advice: str) -> None:
    endless(eqfuse)
    error = eqfuse.fail(3, *command, "--verify-limit", "0.5")
    assert error.startswith("in.onnx")
    assert error.endswith(f"verification took longer than 0.5 s; --verify-limit gives it more{advice}")
    assert eqfuse.files() == ["in.onnx"]


def test_a_time_limit_ends_it_too(eqfuse: CommandLine) -> None:
    endless(eqfuse)
    error = eqfuse.fail(3, "optimize", "in.onnx", "out.onnx", "--time-limit", "2")
    seconds = re.search(r"verification took longer than ([0-9.]+) s; --verify-limit gives it more; nothing", error)
    assert seconds is not None
    assert 0 < float(seconds[1]) <= 2
    assert eqfuse.files() == ["in.onnx"]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it(eqfuse: CommandLine, sent: signal.Signals, code: int) -> None:
    endless(eqfuse)
    command = eqfuse.command("verify", "in.onnx", "in.onnx")
    environment = eqfuse.environment() | {"TMPDIR": str(eqfuse.folder)}
    process = subprocess.Popen(command, cwd=eqfuse.folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        while not is_running_the_model(eqfuse.folder) and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(sent)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert "Traceback" not in error
    assert eqfuse.files() == ["in.onnx"]


def is_running_the_model(folder: Path) -> bool:
    """Whether the process that verifies has noted in its temporary folder that it begins to run a model."""
    return any("model" in files for _, _, files in os.walk(folder))


def test_onnx_runtime_keeps_no_books_on_the_user(eqfuse: CommandLine) -> None:
    """Neither this process nor those it starts, which run models to fold constants and to verify."""
    eqfuse.small()
    cache = eqfuse.folder / "cache"
    cache.mkdir()
    command = eqfuse.command("verify", "in.onnx", "in.onnx")
    environment = {k: v for k, v in eqfuse.environment().items() if k != "ORT_DISABLE_TELEMETRY"}
    subprocess.run(command, env=environment | {"XDG_CACHE_HOME": str(cache), "HOME": str(cache)}, check=True)
    assert list(cache.rglob("*")) == []
