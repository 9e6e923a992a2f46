"""Kernels that several modules measure."""

from __future__ import annotations

import pytest

from eqfuse.lowering.tuning.runners.measuring import KernelObject

from .compiled import adding


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> KernelObject:
    """y = x + 1 for this machine."""
    return adding(tmp_path_factory.mktemp("small"))
