"""Running a compiled bundle: ``load("build/")(x)``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .bundle import checked, read_manifest
from .errors import BundleError
from .fallback import FUNCTION
from .loaded import Array, LoadedModel, fitting
from .manifest import FallbackEntry, Manifest
from .tvm_runtime import load_library, runtime

_REGISTRY = threading.Lock()
"""TVM finds what ONNX Runtime runs by global names, which two bundles may share while they are loaded."""


class CompiledModel(LoadedModel):
    """A library of this machine that is loaded."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        """Load the bundle. Raises BundleError where it is damaged or made for another machine."""
        self.path = path
        self.manifest: Manifest = checked(path)
        self.threads = threads or self.manifest.threads
        self._tvm = runtime(self.threads)
        self._main = self._load()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out."""
        self._check_names(inputs)
        tensor = self._tvm.runtime.tensor
        given = [tensor(fitting(port, inputs[port.name])) for port in self.inputs]
        results = self._main(*given)
        return {port.name: result.numpy() for port, result in zip(self.outputs, results, strict=True)}

    def prepared(self, inputs: Mapping[str, Any]) -> Callable[[], Any]:
        """A function that runs on these inputs and gives TVM's tensors, without copies in or out: for measuring."""
        self._check_names(inputs)
        given = [self._tvm.runtime.tensor(fitting(port, inputs[port.name])) for port in self.inputs]
        return lambda: self._main(*given)

    def _load(self) -> Callable[..., Any]:
        from tvm import relax

        library = self.path / self.manifest.library
        try:
            with _REGISTRY:
                self._register()
                module = load_library(library)
                main: Callable[..., Any] = relax.VirtualMachine(module, self._tvm.cpu())["main"]
        except Exception as error:  # TVM's own kinds, for anything that is wrong with a library
            raise BundleError(f"{library}: cannot be loaded: {' '.join(str(error).split())[-200:]}") from error
        return main

    def _register(self) -> None:
        for number, entry in enumerate(self.manifest.fallbacks):
            function = _fallback(self.path / entry.file, entry, self.threads)
            self._tvm.register_global_func(f"{FUNCTION}{number}", function, override=True)


def load(path: str | Path, threads: int | None = None) -> LoadedModel:
    """Load a compiled bundle to run it, on `threads` threads (default: as many as it was compiled for).

    A program for an accelerator runs in a simulator. Raises BundleError, one line that names what is wrong with it.
    """
    if read_manifest(Path(path)).dsa is not None:
        from .dsa.simulated_model import SimulatedModel

        return SimulatedModel(Path(path))
    return CompiledModel(Path(path), threads)


def _fallback(path: Path, entry: FallbackEntry, threads: int) -> Callable[..., None]:
    """What the library calls: the inputs of a model and, behind them, tensors for its outputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions share no base class of their own
        text = " ".join(str(error).split())[:200]
        raise BundleError(f"{path}: ONNX Runtime cannot run {', '.join(entry.operators)}: {text}") from None
    names = [value.name for value in session.get_inputs()]

    def run(*tensors: Any) -> None:
        inputs, outputs = tensors[: len(names)], tensors[len(names) :]
        results = session.run(None, dict(zip(names, map(np.from_dlpack, inputs), strict=True)))
        for output, result in zip(outputs, results, strict=True):
            output.copyfrom(result)  # what numpy before 2.1 makes of a tensor is read-only

    return run
