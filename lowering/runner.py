"""Running a compiled bundle: ``load("build/")(x)``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from .bundle import checked
from .errors import BundleError
from .fallback import FUNCTION
from .interface import Port, shape_text
from .manifest import FallbackEntry, Manifest
from .tvm_runtime import load_library, runtime

Array = np.ndarray[Any, Any]

_REGISTRY = threading.Lock()
"""TVM finds what ONNX Runtime runs by global names, which two bundles may share while they are loaded."""


class CompiledModel:
    """A bundle that is loaded. Call it with its inputs, in order or by name.

    With one output the result is an array, with several a dict by name. Raises UsageError for inputs that do not fit.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        """Load the bundle. Raises BundleError where it is damaged or made for another machine."""
        self.path = path
        self.manifest: Manifest = checked(path)
        self.threads = threads or self.manifest.threads
        self._tvm = runtime(self.threads)
        self._main = self._load()

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What to give."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What comes out."""
        return self.manifest.outputs

    def __call__(self, /, *arrays: Any, **named: Any) -> Array | dict[str, Array]:
        """Run once."""
        results = self.run(self._by_name(arrays, named))
        return next(iter(results.values())) if len(results) == 1 else results

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out."""
        self._check_names(inputs)
        tensor = self._tvm.runtime.tensor
        given = [tensor(_fitting(port, inputs[port.name])) for port in self.inputs]
        results = self._main(*given)
        return {port.name: result.numpy() for port, result in zip(self.outputs, results, strict=True)}

    def prepared(self, inputs: Mapping[str, Any]) -> Callable[[], Any]:
        """A function that runs on these inputs and gives TVM's tensors, without copies in or out: for measuring."""
        self._check_names(inputs)
        given = [self._tvm.runtime.tensor(_fitting(port, inputs[port.name])) for port in self.inputs]
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

    def _by_name(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        if len(arrays) > len(self.inputs):
            raise UsageError(f"{self.path}: {len(arrays)} inputs were given, and the model has {len(self.inputs)}")
        found = {port.name: array for port, array in zip(self.inputs, arrays, strict=False)}
        for name in named:
            if name in found:
                raise UsageError(f"{self.path}: input {name!r} was given twice: by its place and by its name")
        return {**found, **named}

    def _check_names(self, given: Mapping[str, Any]) -> None:
        wanted = ", ".join(str(port) for port in self.inputs) or "none"
        names = {port.name for port in self.inputs}
        for name in given:
            if name not in names:
                raise UsageError(f"{self.path}: there is no input {name!r}; the inputs are {wanted}")
        for port in self.inputs:
            if port.name not in given:
                raise UsageError(f"{self.path}: input {port.name!r} is missing; the inputs are {wanted}")


def load(path: str | Path, threads: int | None = None) -> CompiledModel:
    """Load a compiled bundle to run it, on `threads` threads (default: as many as it was compiled for).

    Raises BundleError, one line that names what is wrong with it.
    """
    return CompiledModel(Path(path), threads)


def _fitting(port: Port, value: Any) -> Array:
    """The input as an array of the right type and shape; a Python number or list takes the type that is wanted."""
    try:
        array = np.asarray(value, port.dtype if isinstance(value, int | float | list | tuple) else None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"input {port.name!r}: is no array of {port.dtype}: {error}") from None
    if array.dtype != np.dtype(port.dtype):
        raise UsageError(f"input {port.name!r}: must be {port.dtype}, not {array.dtype}")
    if array.shape != port.shape:
        raise UsageError(f"input {port.name!r}: must have the shape {shape_text(port.shape)}, not {list(array.shape)}")
    return np.ascontiguousarray(array).reshape(port.shape)


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
        arrays = [np.from_dlpack(tensor) for tensor in tensors]
        results = session.run(None, dict(zip(names, arrays[: len(names)], strict=True)))
        for output, result in zip(arrays[len(names) :], results, strict=True):
            output[...] = result

    return run
