"""Compiled bundles that are kept, so that the same model with the same options is compiled once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ...engine.onnx.model import Model, external_files
from ...support.store import Store, source_digest
from ..base.errors import BundleError
from .bundle import copy_bundle, digest, read_whole_bundle

KEPT = 16
"""How many bundles stay; the ones that were not used for the longest time go."""
_PACKAGES = ("costmodels", "driver", "engine", "extract", "ir", "lowering", "rules", "support")


def key_of(content: Mapping[str, Any], files: Iterable[Path] = ()) -> str:
    """The key of a compilation: everything that its result depends on, and this very version of eqfuse."""
    key = sha256(json.dumps(content, sort_keys=True, default=str).encode())
    for file in files:
        key.update(file.read_bytes())
    key.update(source_digest(*_PACKAGES).encode())
    return key.hexdigest()


def fingerprint(model: Model) -> str:
    """SHA-256 of a model: its file, or what it would be as one, and the external data that it reads."""
    if model.path is None:
        return sha256(ir.to_proto(model.ir).SerializeToString(deterministic=True)).hexdigest()
    content = sha256(model.path.read_bytes())
    for file in sorted(external_files(model)):
        content.update(digest(file).encode())
    return content.hexdigest()


def fetch(key: str, folder: Path) -> bool:
    """Copy a bundle that was kept into an empty folder; False if there is none, or none that is whole."""
    store = _store()
    if not store.path(key).is_dir():
        return False
    try:
        read_whole_bundle(store.path(key))
        copy_bundle(store.path(key), folder)
    except (BundleError, OSError):
        store.drop(key)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return False
    store.use(key)
    return True


def keep(key: str, folder: Path) -> None:
    """Keep a copy of a bundle if the cache can be written."""
    _store().keep(key, lambda place: copy_bundle(folder, place))


def _store() -> Store:
    return Store.in_cache("compiled", KEPT)
