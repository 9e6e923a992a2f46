"""Running and timing a compiled model in a process of its own, which may crash, and its kernels one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from .bundle import read_manifest
from .interface import Port
from .isolation import NO_LIMIT, isolated, number
from .loaded import Array, LoadedModel
from .runner import CompiledModel, load
from .turns import Runs, interleaved
from .tvm_runtime import load_library, runtime, use_threads


class IsolatedModel(LoadedModel):
    """A bundle that another process loads and runs. Where the compiled code crashes, CrashError is raised.

    A run may take `seconds`.
    """

    def __init__(self, path: Path, threads: int | None = None, seconds: float = NO_LIMIT) -> None:
        """Load the bundle. Raises BundleError where it is damaged or made for another machine."""
        self.path = path
        self.manifest = read_manifest(path)
        self._key = (path, threads, number())
        self._seconds = seconds
        self.threads = isolated(NO_LIMIT, _threads, self._key)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out."""
        return isolated(self._seconds, _run, self._key, dict(inputs))


_Key = tuple[Path, int | None, int]


@lru_cache(maxsize=1)
def _model(key: _Key) -> LoadedModel:
    path, threads, _ = key
    return load(path, threads)


def _threads(key: _Key) -> int:
    return _model(key).threads


def _run(key: _Key, inputs: Mapping[str, Any]) -> dict[str, Array]:
    return _model(key).run(inputs)


def times(
    bundles: Mapping[str, Path],
    threads: int,
    inputs: Mapping[str, Any],
    repeat: int,
    original: Path | None = None,
) -> dict[str, Runs]:
    """Seconds of each bundle's runs on the inputs, in turns, and of ONNX Runtime with the original if that is given.

    Raises BundleError where one is damaged or made for another machine, UsageError where the inputs do not fit.
    """
    contestants = {name: CompiledModel(path, threads).prepared(inputs) for name, path in bundles.items()}
    if original is not None:
        contestants["ONNX Runtime"] = _onnx_runtime(original, threads, inputs)
    return interleaved(contestants, repeat)


def _onnx_runtime(path: Path, threads: int, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """ONNX Runtime with all of its optimisations, its threads not spinning while the other one runs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    fed = {value.name: inputs[value.name] for value in session.get_inputs()}
    return lambda: session.run(None, fed)


class IsolatedKernels:
    """The kernels of a library by themselves. One that crashes or hangs is a CrashError, and the others go on."""

    def __init__(self, library: Path, threads: int, seconds: float) -> None:
        """Nothing is loaded yet. Each call may take `seconds`."""
        self._key = (library, threads, number())
        self._seconds = seconds

    def run(self, symbol: str, arguments: Sequence[Array], results: Sequence[Port]) -> list[Array]:
        """What a kernel makes of the arguments. Raises CrashError, and LoweringError where it refuses them."""
        return isolated(self._seconds, _run_kernel, self._key, symbol, arguments, results)


@lru_cache(maxsize=1)
def _kernels(key: tuple[Path, int, int]) -> Any:
    library, threads, _ = key
    runtime(threads)
    use_threads(threads)
    (kernels,) = load_library(library).imports
    return kernels


def _run_kernel(
    key: tuple[Path, int, int], symbol: str, arguments: Sequence[Array], results: Sequence[Port]
) -> list[Array]:
    import tvm

    made = [tvm.runtime.tensor(np.zeros(port.shape, port.dtype)) for port in results]
    _kernels(key)[symbol](*map(tvm.runtime.tensor, arguments), *made)
    return [tensor.numpy() for tensor in made]
