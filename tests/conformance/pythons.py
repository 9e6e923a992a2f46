"""Interpreters of this machine, and uv, which makes environments for them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
"""The versions that tests run on."""
OUT_OF_REACH = ("Failed to fetch", "error sending request", "network was disabled")
"""How uv says that it cannot download; that no version fits the bounds is said in other words, and fails."""
LIMIT = 1800.0
"""Seconds for one command, so that a hung index does not hold the tests for ever; the tests take one or two minutes."""


def uv(*arguments: str | Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """What uv says to these arguments; the test is skipped without uv, or if nothing can be downloaded."""
    program = pytest.importorskip("uv").find_uv_bin()
    said = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, cwd=folder, timeout=LIMIT)
    unreachable = [line.strip() for line in said.stderr.splitlines() if any(sign in line for sign in OUT_OF_REACH)]
    if said.returncode and unreachable:
        pytest.skip(f"nothing can be downloaded: {unreachable[0]}")
    return said


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
