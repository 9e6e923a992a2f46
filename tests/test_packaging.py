"""What pyproject.toml installs is what the tree holds."""

from __future__ import annotations

import tomllib
from pathlib import Path

import eqfuse

ROOT = Path(eqfuse.__file__).parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
SOURCES = ("cli", "lowering", "extract", "engine", "costmodels", "rules", "support")


def test_every_package_is_listed() -> None:
    packages = (path.parent for name in SOURCES for path in (ROOT / name).rglob("__init__.py"))
    found = {".".join(("eqfuse", *path.relative_to(ROOT).parts)) for path in packages}
    assert set(SETUPTOOLS["packages"]) - {"eqfuse"} == found


def test_every_data_file_is_listed() -> None:
    data = {path for name in SOURCES for end in ("egg", "toml") for path in (ROOT / name).rglob(f"*.{end}")}
    for package, globs in SETUPTOOLS["package-data"].items():
        data -= {path for glob in globs for path in ROOT.joinpath(*package.split(".")[1:]).glob(glob)}
    assert data == set()
