"""What pyproject.toml installs is what the tree holds and what the documentation says."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import eqfuse

ROOT = Path(eqfuse.__file__).parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
SOURCES = ("cli", "driver", "tools", "lowering", "extract", "engine", "costmodels", "rules", "ir", "support")


def test_every_package_is_listed() -> None:
    packages = (path.parent for name in SOURCES for path in (ROOT / name).rglob("__init__.py"))
    found = {".".join(("eqfuse", *path.relative_to(ROOT).parts)) for path in packages}
    assert set(SETUPTOOLS["packages"]) - {"eqfuse"} == found


def test_every_data_file_is_listed() -> None:
    files = (path for name in SOURCES for path in (ROOT / name).rglob("*") if path.is_file())
    data = {path for path in files if path.suffix not in (".py", ".pyc", ".md")}
    for package, globs in SETUPTOOLS["package-data"].items():
        data -= {path for glob in globs for path in ROOT.joinpath(*package.split(".")[1:]).glob(glob)}
    assert data == set()


@pytest.mark.parametrize("requirement", PYPROJECT["project"]["dependencies"])
def test_the_documentation_names_the_lowest_versions(requirement: str) -> None:
    found = re.match(r"(?P<name>[\w-]+)(==|>=)(?P<lowest>[\w.]+)", requirement)
    assert found is not None
    name, lowest = found["name"], found["lowest"]
    table = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    assert any(name in row and lowest in row for row in table.splitlines() if row.startswith("|"))


def test_tests_run_in_a_clone_of_any_name(tmp_path: Path) -> None:
    clone = tmp_path / "eqfuse-main 2"
    (clone / "tests").mkdir(parents=True)
    (clone / "__init__.py").write_text("from . import missing", encoding="utf-8")
    (clone / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8")
    (clone / "tests/test_one.py").write_text("def test_one() -> None:\n    pass\n", encoding="utf-8")
    run = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=clone, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_another_system_is_named_in_one_line() -> None:
    program = "import sys; sys.platform = 'darwin'; import eqfuse"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr
    assert said.splitlines()[-1].startswith("ImportError: eqfuse runs on Linux, and this is darwin")
