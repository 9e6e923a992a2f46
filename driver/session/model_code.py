"""The model of a session as code: the calls for which it may be compiled, and the bundles that were loaded."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.errors import UsageError
from ...support.processor import available_cores, processor_identity
from ...support.store import source_digest
from .verdicts import Array, Job

if TYPE_CHECKING:
    from ...lowering.bundle.loaded import LoadedModel

PATIENCE = 2
"""Calls with inputs of the same sizes before compiled code for them is looked for."""
SHARE = 32
"""Calls of the session for each set of sizes but the first that is looked at: comparing costs time, and is of no use to
a program whose sizes are always new."""
MOST_BUNDLES = 8
"""Sets of input sizes for each of which the model may be compiled: the first, and others if compiled code of all sizes
is not faster or does not exist."""
_SOURCES = ("costmodels", "driver", "engine", "extract", "ir", "lowering", "rules", "support")
Stamp = tuple[int, int, int]


class ModelCode:
    """The model, a path or bytes, that was read when it had a `stamp` (`stamp_of`).

    `ports` are the shapes of its inputs, with a name or None for a dynamic dimension; `threads` is the number of the
    session, 0 for all cores. Several threads may use it at once.
    """

    def __init__(self, model: Any, stamp: Stamp | None, ports: Mapping[str, Sequence[Any]], threads: int) -> None:
        self._model = model
        self._stamp = stamp
        self._ports = ports
        self._threads = min(threads, available_cores()) or available_cores()
        self._identity = ""
        self._begun = 0
        self._own: set[str] = set()
        self._loaded: dict[Path, LoadedModel] = {}
        self._loading = threading.Lock()

    def after_fork(self) -> None:
        """Renew the locks in a forked process: they have the state that they had at the fork."""
        self._loading = threading.Lock()

    def may_begin(self, calls: int, all_calls: int) -> bool:
        """Whether to look for compiled code for sizes that had `calls` of all calls; if so, they count as begun."""
        if calls < PATIENCE or all_calls < SHARE * self._begun:
            return False
        self._begun += 1
        return True

    def identify(self) -> str:
        """Digests of the model and of this software, on which the compiled code depends. Raises UsageError."""
        if self._identity:
            return self._identity
        from ...lowering.base.toolchain import versions

        content = self._model if isinstance(self._model, bytes) else Path(self._model).read_bytes()
        external = [] if isinstance(self._model, bytes) else _stamps_of_external_data(content, Path(self._model))
        digest = sha256(content).hexdigest()
        if stamp_of(self._model) != self._stamp:
            raise UsageError(f"{self._model}: was changed after the session was made")
        software = sorted(versions().items()), source_digest(*_SOURCES)
        self._identity = repr((digest, external, software, processor_identity()))
        return self._identity

    def list_jobs(self, feeds: dict[str, Array]) -> Iterator[Job]:
        """The ways to compile it for a call, the best first; this may take long. Raises UsageError if there is none.

        The first sizes, which may stay the only ones, get code of their own; others get code of all sizes.
        """
        identity = self.identify()

        def key(sizes: object) -> str:
            return sha256(repr((identity, self._threads, sizes)).encode()).hexdigest()

        own = key(sorted((name, array.dtype.name, array.shape) for name, array in feeds.items()))
        if self._own and own not in self._own:
            yield Job(key("all"), self._model, feeds, self._threads, self._typical_sizes(feeds))
        if len(self._own) < MOST_BUNDLES:
            self._own.add(own)
            yield Job(own, self._model, feeds, self._threads)

    def load(self, bundle: Path) -> LoadedModel:
        """The bundle, which is loaded once for all sizes that it serves. Raises BundleError."""
        from ...lowering.running.runner import load

        with self._loading:
            if bundle not in self._loaded:
                self._loaded[bundle] = load(bundle, self._threads)
            return self._loaded[bundle]

    def _typical_sizes(self, feeds: dict[str, Array]) -> tuple[str, ...]:
        """The sizes of the named dimensions in a call."""
        sizes = {
            dimension: extent
            for name, shape in self._ports.items()
            for dimension, extent in zip(shape, feeds[name].shape, strict=True)
            if isinstance(dimension, str)
        }
        return tuple(f"{dimension}={extent}" for dimension, extent in sizes.items())


def stamp_of(model: Any) -> Stamp | None:
    """Size, time and number of a file, one of which changes when it is written anew; None for other models."""
    if not isinstance(model, str) or not os.path.exists(model):
        return None
    status = os.stat(model)
    return status.st_size, status.st_mtime_ns, status.st_ino


def _stamps_of_external_data(content: bytes, path: Path) -> list[tuple[str, Stamp | None]]:
    """The files with weights that a model names, and their stamps."""
    if b"location" not in content:
        return []
    import onnx
    from onnx.external_data_helper import _get_all_tensors

    tensors = _get_all_tensors(onnx.load_model_from_string(content))
    entries = (entry for tensor in tensors for entry in tensor.external_data if entry.key == "location")
    files = sorted({str(path.parent / entry.value) for entry in entries})
    return [(file, stamp_of(file)) for file in files]
