"""Bundles for a level of x86-64: nothing else is in them, and nothing less runs them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eqfuse.lowering.base import target
from eqfuse.lowering.bundle import bundle
from eqfuse.support.processor import X86, level_features, processor_level

from ...onnx_runtime import outputs_of
from ..command_line import CommandLine

pytestmark = pytest.mark.skipif(platform.machine() != X86, reason="about x86-64")
EMULATOR = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
OLDER = {"x86-64-v2": "Nehalem", "x86-64-v3": "Haswell"}
"""Processors of QEMU's that have one level and nothing beyond; its emulation has no AVX-512 at all."""


def compiled(eqfuse: CommandLine, level: str, *options: str) -> None:
    eqfuse.chain(3)
    outcome = eqfuse.run("compile", "in.onnx", "-o", "build", "--target", level, "--threads", "1", "-q", *options)
    assert (outcome.code, outcome.err) == (0, "")


def registers(library: Path) -> set[str]:
    """The kinds of vector registers that occur in a library."""
    text = subprocess.run(["objdump", "-d", library], capture_output=True, text=True, check=True).stdout
    return {kind for kind in ("xmm", "ymm", "zmm") if f"%{kind}" in text}


@pytest.mark.representatives(1)
@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump")
@pytest.mark.parametrize(("level", "wide"), [("x86-64-v2", {"ymm", "zmm"}), ("x86-64-v3", {"zmm"})])
def test_a_library_has_no_registers_beyond_its_level(eqfuse: CommandLine, level: str, wide: set[str]) -> None:
    compiled(eqfuse, level)
    found = registers(eqfuse.folder / "build" / "model.so")
    assert "xmm" in found
    assert not found & wide


def test_a_bundle_is_refused_where_its_instructions_are_missing(
    eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(eqfuse, "x86-64-v2")
    monkeypatch.setattr(bundle, "processor_features", lambda: level_features("x86-64-v2") - {"sse4_2"})
    error = eqfuse.fail(1, "run", "build", "--random", "0")
    assert "was compiled for x86-64-v2, and this processor has no" in error
    assert "sse4_2" in error


def test_what_cannot_run_here_is_compiled_unverified_or_not_at_all(
    eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    eqfuse.chain(3)
    monkeypatch.setattr(target, "processor_features", lambda: level_features("x86-64-v2"))
    words = ("compile", "in.onnx", "-o", "build", "--target", "x86-64-v3", "--threads", "1")
    error = eqfuse.fail(2, *words)
    assert "this machine has no abm, avx, avx2" in error
    assert "--no-verify" in error
    assert not (eqfuse.folder / "build").exists()
    written = eqfuse.run(*words, "--no-verify")
    assert written.code == 0
    assert "verification: none (--no-verify)" in written.out


SCRIPT = """
import sys
import numpy
import eqfuse

try:
    model = eqfuse.load("build")
except eqfuse.EqfuseError as error:
    raise SystemExit(f"refused: {error}")
(port,) = model.inputs
x = numpy.random.default_rng(0).standard_normal(port.shape).astype(port.dtype)
numpy.savez("there.npz", x=x, y=model(x))
"""
"""Loads the bundle in its own process: a child of it would run on the real processor."""


def emulated(folder: Path, processor: str) -> subprocess.CompletedProcess[str]:
    """The script on an emulated processor."""
    assert EMULATOR is not None
    path = os.pathsep.join(p for p in sys.path if p)
    core = {"OPENBLAS_CORETYPE": "Nehalem"}  # numpy's library takes a processor that it does not know for a newer one
    return subprocess.run(
        [EMULATOR, "-cpu", processor, sys.executable, "-c", SCRIPT],
        env={**os.environ, **core, "PYTHONPATH": path}, capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip


def unverified_if_needed(level: str) -> tuple[str, ...]:
    """What lets a level be compiled on a machine that lacks it."""
    return () if processor_level() != "x86-64-v2" or level == "x86-64-v2" else ("--no-verify",)


@pytest.mark.conformance
@pytest.mark.skipif(EMULATOR is None, reason="no emulator of x86-64 (Debian: qemu-user)")
@pytest.mark.parametrize("level", OLDER)
def test_a_bundle_runs_on_an_emulated_processor_of_its_level(eqfuse: CommandLine, level: str) -> None:
    compiled(eqfuse, level, *unverified_if_needed(level))
    done = emulated(eqfuse.folder, OLDER[level])
    assert done.returncode == 0, done.stderr
    there = np.load(eqfuse.folder / "there.npz")
    (expected,) = outputs_of(eqfuse.folder / "in.onnx", {"x": there["x"]})
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(there["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.conformance
@pytest.mark.skipif(EMULATOR is None, reason="no emulator of x86-64 (Debian: qemu-user)")
def test_a_bundle_is_refused_on_an_emulated_processor_below_its_level(eqfuse: CommandLine) -> None:
    compiled(eqfuse, "x86-64-v3", *unverified_if_needed("x86-64-v3"))
    done = emulated(eqfuse.folder, OLDER["x86-64-v2"])
    assert done.returncode == 1
    assert "refused: build: was compiled for x86-64-v3, and this processor has no" in done.stderr
