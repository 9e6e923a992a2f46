"""Running and timing a compiled model in a process of its own, which may crash, and its kernels one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ...support.scratch import scratch_folder
from ..base.errors import CrashError
from ..base.ports import Port
from ..bundle.bundle import read_manifest, read_usable_bundle
from ..bundle.isolation import NO_LIMIT, call_isolated, number
from ..bundle.loaded import Array, LoadedModel
from .native import NativeLibrary, aligned, empty, load_library
from .onnx_runtime import bind_onnx_runtime
from .runner import CompiledModel, load
from .throughput import Service, serve_in_turns
from .turns import Runs, time_in_turns


class IsolatedModel(LoadedModel):
    """A bundle that another process loads and runs. If the compiled code crashes, CrashError says in which kernel.

    A run may take `seconds`.
    """

    def __init__(self, path: Path, threads: int | None = None, seconds: float = NO_LIMIT) -> None:
        """Load the bundle. Raises BundleError if it is damaged or made for another machine."""
        self.path = path
        manifest = read_manifest(path)
        self.manifest = manifest if manifest.back_end else read_usable_bundle(path)
        self.key = _Key(path, threads, number())
        self.crashed_in = ""
        self._seconds = seconds
        self.threads = call_isolated(NO_LIMIT, _load_threads, self.key)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out."""
        try:
            return call_isolated(self._seconds, _run, self.key, dict(inputs))
        except CrashError as error:
            self.crashed_in = self._crashing_kernel(inputs)
            text = f"{error} in {self.crashed_in}" if self.crashed_in else str(error)
            raise CrashError(text, error.timed_out) from None

    def _crashing_kernel(self, inputs: Mapping[str, Any]) -> str:
        """Empty if it does not crash again, or in no kernel."""
        with scratch_folder("crash") as folder:
            note = Path(folder) / "kernel"
            note.touch()
            try:
                call_isolated(self._seconds, _run_noting, self.key, dict(inputs), note)
            except CrashError:
                return note.read_text(encoding="utf-8")
        return ""


def time_models(
    models: Mapping[str, IsolatedModel],
    inputs: Mapping[str, Any],
    repeat: int,
    original: Path | None = None,
    seconds: float = NO_LIMIT,
) -> dict[str, Runs]:
    """Seconds of each model's runs on the inputs, in turns, and of ONNX Runtime with the original if that is given.

    All of it may take `seconds`. Raises CrashError, and UsageError if the inputs do not fit.
    """
    return call_isolated(seconds, _times, {name: model.key for name, model in models.items()}, inputs, repeat, original)


def serve_models(
    models: Mapping[str, IsolatedModel],
    inputs: Mapping[str, Any],
    clients: int,
    slices: int,
    original: Path | None = None,
) -> dict[str, list[Service]]:
    """What each model serves to clients that call it at once with these inputs, in turns, and ONNX Runtime with the
    original if that is given.

    Raises CrashError, and UsageError if the inputs do not fit.
    """
    keys = {name: model.key for name, model in models.items()}
    return call_isolated(NO_LIMIT, _services, keys, inputs, clients, slices, original)


@contextmanager
def name_crashes(bundle: Path) -> Iterator[None]:
    """Say whose crash it is that a function of this module raises within the context."""
    try:
        yield
    except CrashError as error:
        raise CrashError(
            f"{bundle}: the compiled model {error}; compile it again on this machine and without --no-verify, "
            "which replaces the kernel that is to blame"
        ) from None


# --- in the other process


@dataclass(frozen=True)
class _Key:
    """A bundle or library to load, and the threads to run it on; the number is another one for each time."""

    path: Path
    threads: int | None
    number: int


@lru_cache(maxsize=2)
def _model(key: _Key) -> LoadedModel:
    return load(key.path, key.threads)


def _load_threads(key: _Key) -> int:
    return _model(key).threads


def _run(key: _Key, inputs: Mapping[str, Any]) -> dict[str, Array]:
    return _model(key).run(inputs)


def _run_noting(key: _Key, inputs: Mapping[str, Any], note: Path) -> None:
    """Run, and keep in a file which kernel is running."""
    model = _model(key)
    if isinstance(model, CompiledModel):
        symbols, context = model.plan.step_names, model.create_context()

        def write(step: int) -> None:
            note.write_text(symbols[step] if step >= 0 else "", encoding="utf-8")

        context.watch(write)
        context.bind(inputs)
        context.run_bound()


def _times(keys: Mapping[str, _Key], inputs: Mapping[str, Any], repeat: int, original: Path | None) -> dict[str, Runs]:
    models = {name: _model(key) for name, key in keys.items()}
    contestants = {name: model.bind_inputs(inputs) for name, model in models.items()}
    if original is not None:
        threads = max(model.threads for model in models.values())
        contestants["ONNX Runtime"] = bind_onnx_runtime(original, threads, inputs)
    return time_in_turns(contestants, repeat)


def _services(
    keys: Mapping[str, _Key], inputs: Mapping[str, Any], clients: int, slices: int, original: Path | None
) -> dict[str, list[Service]]:
    models = {name: _model(key) for name, key in keys.items()}
    contestants: dict[str, Callable[[], Any]] = {name: partial(model.run, inputs) for name, model in models.items()}
    if original is not None:
        threads = max(model.threads for model in models.values())
        contestants["ONNX Runtime"] = bind_onnx_runtime(original, threads, inputs)
    return serve_in_turns(contestants, clients, slices)


class IsolatedKernels:
    """The kernels of a library by themselves. One that crashes or hangs is a CrashError, and the others go on."""

    def __init__(self, library: Path, threads: int, seconds: float) -> None:
        """Nothing is loaded yet. Each call may take `seconds`."""
        self._key = _Key(library, threads, number())
        self._seconds = seconds

    def run(self, symbol: str, arguments: Sequence[Array], results: Sequence[Port]) -> list[Array]:
        """The results of a kernel for the arguments. Raises CrashError, and LoweringError if it refuses them."""
        return call_isolated(self._seconds, _run_kernel, self._key, symbol, arguments, results)


@lru_cache(maxsize=1)
def _kernels(key: _Key) -> NativeLibrary:
    return load_library(key.path)


def _run_kernel(key: _Key, symbol: str, arguments: Sequence[Array], results: Sequence[Port]) -> list[Array]:
    kernels = _kernels(key)
    kernels.use_threads(key.threads or 1)
    arrays = [empty(port.static_shape, np.dtype(port.dtype)) for port in results]
    for array in arrays:
        array.fill(0)
    kernels.bind_kernel(symbol, [*map(aligned, arguments), *arrays])()
    return arrays
