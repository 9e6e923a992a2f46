"""The lowest and the newest versions that pyproject.toml admits, on every Python that it names.

uv makes an environment for each and runs fast tests of every part in it. Interpreters are those of this machine; wheels
come from the package index, and only wheels: a version that would have to be built is nobody's lowest version.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .pythons import LIMIT, PROJECT, PYTHONS, ROOT, interpreter, uv

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
RESOLVED = ("3.14",)
"""Versions for which only wheels are looked for, since this project has run on none of them."""


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
    assert [f"3.{minor}" for minor in range(int(low), int(high))] == [*PYTHONS, *RESOLVED]


@pytest.mark.conformance
@pytest.mark.parametrize("version", RESOLVED)
def test_all_dependencies_have_wheels(version: str) -> None:
    where = ("--python-version", version, "--only-binary", ":all:", "--python-platform", "x86_64-manylinux_2_28")
    resolved = uv("pip", "compile", "--quiet", "pyproject.toml", *where)
    assert resolved.returncode == 0, resolved.stderr
    assert "apache-tvm==" in resolved.stdout
