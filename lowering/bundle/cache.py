"""Compiled bundles that are kept, so that the same model with the same options is compiled once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ...engine.onnx.model import Model, external_files
from ...support.files import cache_folder
from ...support.scratch import staging_folder
from ..errors import BundleError
from .bundle import MANIFEST, copy, digest, whole

KEPT = 16
"""How many bundles stay; the ones that were not used for the longest time go."""
_SOURCES = (".py", ".toml", ".egg")


def directory() -> Path:
    """Where bundles are kept: ``$XDG_CACHE_HOME/eqfuse/compiled``, by default under ``~/.cache``."""
    return cache_folder() / "compiled"


def key_of(content: Mapping[str, Any], files: Iterable[Path] = ()) -> str:
    """The key of a compilation: all that decides about its result, and this very version of eqfuse."""
    found = sha256(json.dumps(content, sort_keys=True, default=str).encode())
    for file in files:
        found.update(file.read_bytes())
    found.update(own_digest("costmodels", "driver", "engine", "extract", "lowering", "rules", "support").encode())
    return found.hexdigest()


def fingerprint(model: Model) -> str:
    """SHA-256 of a model: its file, or what it would be as one, and the external data that it reads."""
    if model.path is None:
        return sha256(ir.to_proto(model.ir).SerializeToString(deterministic=True)).hexdigest()
    found = sha256(model.path.read_bytes())
    for file in sorted(external_files(model)):
        found.update(digest(file).encode())
    return found.hexdigest()


@cache
def own_digest(*packages: str) -> str:
    """Of every source, rule and device file in them: what is developed must not give yesterday's results."""
    root = Path(__file__).parent.parent.parent
    found = sha256()
    for package in packages:
        for file in sorted(p for p in (root / package).rglob("*") if p.suffix in _SOURCES):
            found.update(file.read_bytes())
    return found.hexdigest()


def fetch(key: str, folder: Path) -> bool:
    """Copy a bundle that was kept into an empty folder; False where there is none, or none that is whole."""
    kept = directory() / key
    if not kept.is_dir():
        return False
    try:
        whole(kept)
        copy(kept, folder)
    except (BundleError, OSError):
        shutil.rmtree(kept, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return False
    with suppress(OSError):
        os.utime(kept / MANIFEST)
    return True


def keep(key: str, folder: Path) -> None:
    """Keep a copy of a bundle. A cache folder that cannot be written to costs nothing but the cache."""
    with suppress(OSError):
        directory().mkdir(parents=True, exist_ok=True)
        with staging_folder(directory() / key) as outer:
            copy(folder, outer / "bundle")
            os.rename(outer / "bundle", directory() / key)
        _drop_oldest()


def _drop_oldest() -> None:
    kept = [path for path in directory().iterdir() if (path / MANIFEST).is_file()]
    kept.sort(key=lambda path: (path / MANIFEST).stat().st_mtime, reverse=True)
    for path in kept[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
