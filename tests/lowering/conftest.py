"""A cache folder of the tests' own, so that what was compiled before decides none, and bundles that several read."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import onnx
import pytest

import eqfuse

from ..caches import own_cache
from .small_models import chain, saved, with_fallback, with_loops


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", own_cache(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def plain_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chain of two matrix products, compiled to one kernel that is called twice."""
    return _compiled(tmp_path_factory.mktemp("plain"), chain())


@pytest.fixture(scope="session")
def mixed_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with two inputs, two outputs and an operator that ONNX Runtime runs."""
    return _compiled(tmp_path_factory.mktemp("mixed"), with_fallback())


@pytest.fixture(scope="session")
def loops_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with an operator that is a plain loop."""
    return _compiled(tmp_path_factory.mktemp("loops"), with_loops())


@pytest.fixture(scope="session")
def smallest_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, but ONNX Runtime looks at the first half of each axis."""
    proto = with_fallback()
    proto.graph.node[1].attribute.append(onnx.helper.make_attribute("spatial_scale", 0.5))
    return _compiled(tmp_path_factory.mktemp("smallest"), proto)


def _compiled(folder: Path, proto: onnx.ModelProto) -> Path:
    eqfuse.compile(saved(proto, folder / "model.onnx"), folder / "bundle", threads=1, intensive=False)
    return folder / "bundle"


@pytest.fixture
def shared_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to do, as many threads as there are share it."""
    schedules = "eqfuse.lowering.schedules"
    monkeypatch.setattr(import_module(f"{schedules}.tiling.register_tile"), "PARALLEL_CYCLES", 0)
    for module in ("rules.rows", "rules.pointwise", "base.preparation"):
        monkeypatch.setattr(import_module(f"{schedules}.{module}"), "PARALLEL_ELEMENTS", 0)
