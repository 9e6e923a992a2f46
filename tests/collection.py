"""How pytest collects: in a clone of any name, and no case of a test that is left out."""

from __future__ import annotations

from inspect import isfunction
from pathlib import Path

import pytest


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the root as a plain folder.

    It is the package eqfuse, whatever the folder is called; pytest would import it by the folder's name.
    """
    return pytest.Dir.from_parent(parent, path=path) if path == parent.config.rootpath else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Make no cases of a conformance test if none of them runs: half of all tests are such cases, and making them takes
    seconds. A test that is asked for by its name is made, so that pytest says that its marker leaves it out."""
    config = collector.config
    if config.option.markexpr != "not conformance" or any("::" in argument for argument in config.args):
        return None
    if not isfunction(obj) or not name.startswith("test"):
        return None
    marks = [*collector.iter_markers(), *getattr(obj, "pytestmark", [])]
    return [] if any(mark.name == "conformance" for mark in marks) else None
