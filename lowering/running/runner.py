"""Running a compiled bundle: ``load("build/")(x)``. One for a processor needs numpy alone; others have a back end."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from ...support.custom_operators import custom_operators, register
from ..base.errors import BundleError
from ..base.threads import threads_for
from ..bundle.bundle import check_file, missing_file, read_manifest, read_usable_bundle
from ..bundle.loaded import Array, LoadedModel
from ..plan.manifest import PLAN, WEIGHTS, FallbackEntry
from ..plan.plan import Plan
from .context import Context, Fallback
from .native import NativeLibrary, own_path


class BackEnd(Protocol):
    """What the module `back_end` has in the folder of `lowering/` that runs bundles of its own."""

    def load(self, folder: Path) -> LoadedModel:
        """A bundle, to be run. Raises BundleError if it is damaged."""
        ...


def find_back_end(name: str) -> BackEnd:
    """The back end with that folder in `lowering/`; its bundles have a field of that name in the manifest."""
    return cast(BackEnd, import_module(f"..{name}.back_end", __package__))


class CompiledModel(LoadedModel):
    """A library of this machine that is loaded. Several threads may run it at once.

    The memory of a context is that of one run, so there is a context for each run that goes on at once; all of them
    share the library, and the weights, which are mapped from their file and so shared with other processes.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        """Load the bundle. Raises BundleError if it is damaged or made for another machine.

        It runs on the threads that it was compiled for, but not more than there are cores, unless `threads` says so.
        Raises UsageError for a number of them that cannot be had.
        """
        self.path = path
        self.manifest = read_usable_bundle(path)
        self.threads = threads_for(self.manifest.threads, threads)
        self.library = self._load_library()
        self._weights = self._map_weights()
        self.fallbacks = tuple(self._fallback(entry) for entry in self.manifest.fallbacks)
        self._names = frozenset(port.name for port in self.inputs)
        self._idle = [self.create_context()]

    @cached_property
    def plan(self) -> Plan:
        """The steps of a run."""
        return Plan.from_json((self.path / PLAN).read_text(encoding="utf-8"))

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out."""
        if inputs.keys() != self._names:
            self._check_names(inputs)
        try:
            context = self._idle.pop()
        except IndexError:
            context = self.create_context()
        try:
            return context.run(inputs)
        finally:
            self._idle.append(context)

    def bind_inputs(self, inputs: Mapping[str, Any]) -> Callable[[], Any]:
        """A function that runs on these inputs without copies in or out, for measuring."""
        self._check_names(inputs)
        context = self.create_context()
        context.bind(inputs)
        return context.run_bound

    def create_context(self) -> Context:
        """The memory of a run."""
        return Context(self.library, self._weights, self.threads, self.inputs, self.outputs, self.fallbacks)

    def _load_library(self) -> NativeLibrary:
        library = self.path / self.manifest.library
        try:
            with own_path(library) as own:
                check_file(library, self.manifest.files[self.manifest.library], own)
                return NativeLibrary(own)
        except FileNotFoundError:
            raise missing_file(library) from None
        except (OSError, AttributeError) as error:  # the system's, and one for missing functions
            reason = " ".join(str(error).split())[-200:]
            raise BundleError(f"{library}: cannot be loaded: {reason}") from error

    def _map_weights(self) -> Array:
        """The weights, whose checksum is that of the mapped bytes, whatever becomes of the file."""
        path = self.path / WEIGHTS
        if not path.is_file():
            raise missing_file(path)
        try:
            with path.open("rb") as file:
                is_empty = path.stat().st_size == 0
                content = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise BundleError(f"{path}: cannot be mapped: {error.strerror or error}") from None
        if sha256(content).hexdigest() != self.manifest.files.get(WEIGHTS):
            raise BundleError(f"{path}: was changed (its checksum differs); compile the model again")
        return np.frombuffer(content, np.uint8)

    def _fallback(self, entry: FallbackEntry) -> Fallback:
        """The functions that the library calls."""
        import onnx
        import onnxruntime

        from ...engine.onnx.exact_products import SATURATING, make_products_exact, products_saturate
        from ...engine.onnx.runtime_values import bind_filled, draw_seeds, may_draw

        path = self.path / entry.file
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = self.threads
        with custom_operators(list(map(Path, self.manifest.custom_ops))):
            register(options)
        try:
            model: str | bytes = draw_seeds(path.read_bytes()) if may_draw(entry.operators) else str(path)
            if products_saturate() and not SATURATING.isdisjoint(entry.operators):
                content = model if isinstance(model, bytes) else path.read_bytes()
                model = make_products_exact(onnx.ModelProto.FromString(content)).SerializeToString()
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's exceptions share no base class of their own
            text = " ".join(str(error).split())[:200]
            raise BundleError(f"{path}: ONNX Runtime cannot run {', '.join(entry.operators)}: {text}") from None
        names = [value.name for value in session.get_inputs()]

        def bind(inputs: list[Array], outputs: list[Array]) -> Callable[[], None]:
            return bind_filled(session, dict(zip(names, inputs, strict=True)), outputs)

        return len(names), bind


def load(path: str | Path, threads: int | None = None) -> LoadedModel:
    """Load a compiled bundle: call the result with arrays, in the order of its inputs or by their names.

    It runs on `threads` threads (default: as many as it was compiled for, at most one for each core). Several threads
    may call the result at once. A bundle is native code: load only what you would run as a program. One for an
    accelerator runs in a simulator. Raises BundleError, one line about the file that is wrong, and UsageError for a
    number of threads that cannot be had.
    """
    back_end = read_manifest(Path(path)).back_end
    return find_back_end(back_end).load(Path(path)) if back_end else CompiledModel(Path(path), threads)
