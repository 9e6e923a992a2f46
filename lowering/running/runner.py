"""Running a compiled bundle: ``load("build/")(x)``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..bundle.bundle import check_file, missing_file, read_manifest, read_usable_bundle
from ..bundle.loaded import Array, LoadedModel, fit_input
from ..bundle.manifest import FallbackEntry
from ..errors import BundleError
from ..kernels.fallback import FUNCTION
from ..tvm_runtime import USE_THREADS, own_path, threads_for

_REGISTRY = threading.Lock()
"""A virtual machine finds what ONNX Runtime runs by global names, which all bundles share, when it is made."""


class CompiledModel(LoadedModel):
    """A library of this machine that is loaded. Several threads may run it at once.

    The registers of a virtual machine are those of one run, so there is a machine for each run that goes on at once;
    weights are in the library, which all of them share.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        """Load the bundle. Raises BundleError where it is damaged or made for another machine.

        It runs on the threads that it was compiled for, but not more than there are cores, unless `threads` says so.
        Raises UsageError for a number of them that cannot be had.
        """
        self.path = path
        self.manifest = read_usable_bundle(path)
        self.threads = threads_for(self.manifest.threads, threads)
        import tvm

        self._tvm = tvm
        self._library = self._load_library()
        self._use_threads = self.kernels[USE_THREADS]
        self.fallbacks: dict[str, Any] = {
            f"{FUNCTION}{number}": self._tvm.runtime.convert(self._fallback(entry))
            for number, entry in enumerate(self.manifest.fallbacks)
        }
        self._idle = [self.machine()["main"]]

    @property
    def kernels(self) -> Any:
        """The compiled kernels by their symbols."""
        (kernels,) = self._library.imports
        return kernels

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out."""
        results = self.bind_inputs(inputs)()
        return {port.name: result.numpy() for port, result in zip(self.outputs, results, strict=True)}

    def bind_inputs(self, inputs: Mapping[str, Any]) -> Callable[[], Any]:
        """A function that runs on these inputs and gives TVM's tensors, without copies in or out: for measuring."""
        given = self._tensors(inputs)
        return lambda: self._run(given)

    def run_on(self, machine: Any, inputs: Mapping[str, Any]) -> None:
        """Run once in the calling thread, on a machine that something was done to."""
        self._use_threads(self.threads)
        machine["main"](*self._tensors(inputs))

    def _tensors(self, inputs: Mapping[str, Any]) -> list[Any]:
        self._check_names(inputs)
        return [self._tvm.runtime.tensor(fit_input(port, inputs[port.name])) for port in self.inputs]

    def machine(self) -> Any:
        """A virtual machine that runs the library, for one run at a time. Raises BundleError."""
        from tvm import relax

        try:
            with _REGISTRY:
                for name, function in self.fallbacks.items():
                    self._tvm.register_global_func(name, function, override=True)
                return relax.VirtualMachine(self._library, self._tvm.cpu())
        except Exception as error:  # TVM's own kinds, for anything that is wrong with a library
            raise self._loading_error(error) from error

    def _run(self, given: list[Any]) -> Any:
        """Run in the calling thread. It may have run another model of this library on other threads."""
        self._use_threads(self.threads)
        try:
            main = self._idle.pop()
        except IndexError:
            main = self.machine()["main"]
        try:
            return main(*given)
        finally:
            self._idle.append(main)

    def _load_library(self) -> Any:
        library = self.path / self.manifest.library
        try:
            with own_path(library) as own:
                check_file(library, self.manifest.files[self.manifest.library], own)
                return self._tvm.runtime.load_module(str(own))
        except FileNotFoundError:
            raise missing_file(library) from None
        except BundleError:
            raise
        except Exception as error:  # the system's, and TVM's own kinds
            raise self._loading_error(error) from error

    def _loading_error(self, error: Exception) -> BundleError:
        library = self.path / self.manifest.library
        return BundleError(f"{library}: cannot be loaded: {' '.join(str(error).split())[-200:]}")

    def _fallback(self, entry: FallbackEntry) -> Callable[..., None]:
        """What the library calls: the inputs of a model and, behind them, tensors for its outputs."""
        import onnxruntime

        path = self.path / entry.file
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = self.threads
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


def load(path: str | Path, threads: int | None = None) -> LoadedModel:
    """Load a compiled bundle to run it, on `threads` threads (default: as many as it was compiled for, if there are so
    many cores). Several threads may call the result at once.

    A bundle is native code: load only what you would run as a program. One for an accelerator runs in a simulator.
    Raises BundleError, one line about the file that is wrong, and UsageError for a number of threads that cannot be
    had.
    """
    if read_manifest(Path(path)).dsa is not None:
        from ..dsa.bundle.simulated_model import SimulatedModel

        return SimulatedModel(Path(path))
    return CompiledModel(Path(path), threads)
