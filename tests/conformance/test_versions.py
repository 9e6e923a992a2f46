"""The lowest and the newest versions that pyproject.toml admits, on every Python that it names.

uv makes an environment for each and runs fast tests of every part in it. Interpreters are those of this machine; wheels
come from the package index, and only wheels: a version that would have to be built is nobody's lowest version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
TESTS = (
    "tests/engine/onnx/test_inference_faults.py",
    "tests/engine/egraph/test_emit.py",
    "tests/engine/shapes/test_inference.py",
    "tests/engine/verification/test_oracle.py",
    "tests/engine/verification/test_verify.py",
    "tests/extract/extraction/test_solvers.py",
    "tests/extract/partition/annotations/test_local_functions.py",
    "tests/support/test_directed_graphs.py",
    "tests/tools/checking/proving/test_equality.py",
    "tests/lowering/tuning/test_cost_model.py",
    "tests/lowering/tuning/runners/test_builders.py",
    "tests/cli/test_optimize.py",
    "tests/cli/rules/test_rules.py",
    "tests/cli/compiling/test_compile.py",
)
"""Tests of behaviour that differs between versions: files, shapes, runtimes, solvers, TVM."""
OUT_OF_REACH = ("Failed to fetch", "error sending request", "network was disabled")
"""How uv says that it cannot download; that no version fits the bounds is said in other words, and fails."""
LIMIT = 1800.0
"""Seconds for one command, so that a hung index does not hold the tests for ever; the tests take one or two minutes."""


def uv(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = pytest.importorskip("uv").find_uv_bin()
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, timeout=LIMIT)


def interpreters(version: str) -> Iterator[str]:
    """What may be that Python: on the PATH, where a name may be a shim that cannot start, or installed by pyenv."""
    found = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return filter(None, (found, *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}")))))


def interpreter(version: str) -> str:
    """One that starts, or the test is skipped."""
    for path in interpreters(version):
        said = subprocess.run([path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
        if said.returncode == 0:
            return said.stdout.strip()
    pytest.skip(f"there is no Python {version} on this machine")


def environment_of(folder: Path) -> Mapping[str, str]:
    """The tree as the package eqfuse, and caches that no other version wrote."""
    (folder / "source").mkdir()
    (folder / "source" / "eqfuse").symlink_to(ROOT)
    caches = {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **caches, "PYTHONPATH": str(folder / "source")}


@pytest.mark.conformance
@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_tests_pass(version: str, resolution: str, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    made = uv("venv", "--python", interpreter(version), tmp_path / "venv")
    assert made.returncode == 0, made.stderr
    where = ("--python", python, "--resolution", resolution, "--only-binary", ":all:")
    installed = uv("pip", "install", *where, "--requirements", "pyproject.toml", "--extra", "test")
    said = [line.strip() for line in installed.stderr.splitlines() if any(sign in line for sign in OUT_OF_REACH)]
    if installed.returncode and said:
        pytest.skip(f"nothing can be downloaded: {said[0]}")
    assert installed.returncode == 0, installed.stderr
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "--durations=15",
        "-p",
        "no:cacheprovider",
        "--tb=short",
        "-m",
        "not conformance",
        *TESTS,
    ]
    finished = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment_of(tmp_path), timeout=LIMIT
    )
    sys.stdout.write(finished.stdout)
    assert finished.returncode == 0, installed.stderr + finished.stdout[-20_000:] + finished.stderr


def test_listed_tests_exist() -> None:
    assert [path for path in TESTS if not (ROOT / path).is_file()] == []


def test_every_supported_python_is_tried() -> None:
    low, high = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    assert [f"3.{minor}" for minor in range(int(low), int(high))] == PYTHONS
