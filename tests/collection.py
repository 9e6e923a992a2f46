"""Lets pytest run in a clone of any name."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the root as a plain folder.

    It is the package eqfuse, whatever the folder is called; pytest would import it by the folder's name.
    """
    return pytest.Dir.from_parent(parent, path=path) if path == parent.config.rootpath else None
