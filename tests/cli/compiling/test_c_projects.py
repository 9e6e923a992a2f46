"""``eqfuse compile --format c``: a project for this machine, its names, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from eqfuse.costmodels import device

from ..command_line import CommandLine

QUICK = ("--partition", "none", "--precision", "exact", "--threads", "1", "-q")
LEVEL = Path(device.__file__).parent / "devices" / "x86-64-v2.toml"


def test_a_project_is_verified_measured_and_runs_without_python(eqfuse: CommandLine) -> None:
    eqfuse.chain(2)
    assert eqfuse.run("compile", "in.onnx", "-o", "net", "--format", "c", "--prefix", "net", *QUICK).code == 0
    manifest = json.loads(Path("net/manifest.json").read_text())
    assert manifest["provenance"]["verification"].startswith("passed")
    assert (manifest["library"], manifest["measurement"]["timed"]) == ("plan.json", 1)
    assert not list(Path("net").glob("*.so"))
    sources = sorted(str(path) for path in Path("net").rglob("*.[cSo]"))
    command = ["gcc", "-Inet", "-Wa,-Inet", "-pthread", *sources, "-lm", "-o", "example"]
    subprocess.run(command, check=True, capture_output=True)
    (port,) = manifest["inputs"]
    x = np.random.default_rng(0).random(port["shape"], np.float32)
    np.save("x.npy", x)
    subprocess.run(["./example", "x.npy", "y.npy"], check=True)
    assert eqfuse.run("compile", "in.onnx", "-o", "build", *QUICK).code == 0
    assert eqfuse.run("run", "build", "--input", "x.npy", "--output", "z.npy", "-q").code == 0
    np.testing.assert_array_equal(np.load("y.npy"), np.load("z.npy"))


def test_what_is_for_another_program_is_refused(eqfuse: CommandLine) -> None:
    eqfuse.chain(1)
    outcome = eqfuse.run("compile", "in.onnx", "-o", "net", "--format", "c", "--no-verify", *QUICK[:-1])
    assert re.search(r"^memory: \d+ bytes for each context, \d+ bytes of weights for all$", outcome.out, re.MULTILINE)
    assert "is a C project for host; build it with CMake" in eqfuse.run("run", "net", "--random", "0").err
    assert "only those for 64-bit Arm are counted" in eqfuse.run("bench", "net", "--emulate").err


def test_a_device_file_for_x86_needs_no_tools_for_arm(eqfuse: CommandLine) -> None:
    eqfuse.chain(1)
    Path("mine.toml").write_text(LEVEL.read_text().replace('mcpu    = "x86-64-v2"', 'mcpu    = "nehalem"'))
    outcome = eqfuse.run("compile", "in.onnx", "-o", "net", "--target", "mine.toml", "--format", "c", *QUICK)
    assert (outcome.code, outcome.err) == (0, "")
    assert "emulated" not in json.loads(Path("net/manifest.json").read_text())["provenance"]["verification"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prefix", "net"), "--prefix: is for C projects; add format c"),
        (("--format", "c", "--prefix", "3d"), "--prefix 3d: must be up to 32 letters, digits and underscores"),
        (("--format", "bundle", "--target", "arm-cortex-a76"), "--format: a bundle runs on this machine; for arm-"),
        (("--format", "c", "--target", "dsa-goya"), "--format: is for processors"),
    ],
)
def test_options_that_do_not_fit(eqfuse: CommandLine, options: tuple[str, ...], message: str) -> None:
    eqfuse.chain(1)
    outcome = eqfuse.run("compile", "in.onnx", "-o", "net", *options)
    assert (outcome.code, message in outcome.err) == (2, True), outcome.err
