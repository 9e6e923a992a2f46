"""``eqfuse.InferenceSession``: ONNX Runtime's, whose calls compiled code takes over."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnxruntime

from .model_code import ModelCode, stamp_of
from .sizes import SizeGroup, SizeReport
from .verdicts import Array

DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(bool)": "bool",
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""numpy's names of the element types that inputs of compiled code may have."""
PROCESSOR = "cpu"


class IOBinding(onnxruntime.IOBinding):  # type: ignore[misc]
    """ONNX Runtime's, which also knows the memory of bound values.

    `feeds` are the inputs by their names, None for one that compiled code cannot read; `outputs` the devices of the
    outputs by theirs. As in ONNX Runtime, outputs without memory get it in the first call, and later calls write into
    the same memory.
    """

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.runtime_session = session._sess
        self.feeds: dict[str, Array | None] = {}
        self.outputs: dict[str, str] = {}
        self._values: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """As ONNX Runtime's, which copies an array that is not contiguous when it is bound."""
        super().bind_cpu_input(name, arr_on_cpu)
        is_shared = type(arr_on_cpu) is np.ndarray and arr_on_cpu.flags.c_contiguous
        self.feeds[name] = arr_on_cpu if is_shared else None

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Any, buffer_ptr: int
    ) -> None:
        """As ONNX Runtime's."""
        super().bind_input(name, device_type, device_id, element_type, shape, buffer_ptr)
        is_plain = device_type == PROCESSOR and not isinstance(element_type, int)
        self.feeds[name] = _view_memory(buffer_ptr, shape, np.dtype(element_type)) if is_plain else None

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """As ONNX Runtime's."""
        super().bind_ortvalue_input(name, ortvalue)
        self.feeds[name], self._values[name] = _view(ortvalue), ortvalue

    def bind_output(self, name: str, device_type: str = PROCESSOR, *args: Any, **kwargs: Any) -> None:
        """As ONNX Runtime's."""
        super().bind_output(name, device_type, *args, **kwargs)
        self.outputs[name] = device_type

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """As ONNX Runtime's."""
        super().bind_ortvalue_output(name, ortvalue)
        self.outputs[name] = ortvalue.device_name()

    def clear_binding_inputs(self) -> None:
        """As ONNX Runtime's."""
        super().clear_binding_inputs()
        self.feeds.clear()
        self._values.clear()

    def clear_binding_outputs(self) -> None:
        """As ONNX Runtime's."""
        super().clear_binding_outputs()
        self.outputs.clear()

    def store(self, results: Sequence[Array]) -> bool:
        """Give the outputs these values; if the memory of one has another size, change nothing and return False."""
        views = [_view(value) if value.has_value() else None for value in self.get_outputs()]
        for value, view, result in zip(self.get_outputs(), views, results, strict=True):
            if value.has_value() and (view is None or (view.shape, view.dtype) != (result.shape, result.dtype)):
                return False
        for name, view, result in zip([*self.outputs], views, results, strict=True):
            if view is None:
                value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(result.shape, result.dtype.type, PROCESSOR)
                view = _view(value)
                assert view is not None
                super().bind_ortvalue_output(name, value)
            np.copyto(view, result)
        return True


def _view(value: Any) -> Array | None:
    """The memory of a tensor as an array that does not keep it alive; None for anything else, and on other devices."""
    if not value.is_tensor() or value.device_name() != PROCESSOR or value.data_type() not in DTYPES:
        return None
    return _view_memory(value.data_ptr(), value.shape(), np.dtype(DTYPES[value.data_type()]))


def _view_memory(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    size = prod(shape) * dtype.itemsize
    memory = memoryview((ctypes.c_byte * size).from_address(address)) if size else None
    return np.ndarray(tuple(shape), dtype, memory)


SWITCH = "EQFUSE_SESSION"
"""The environment variable that turns compiling off if its value is OFF."""
OFF = "off"
MOST_SIZES = 1000
"""The most sets of input sizes that a session counts calls of; memory must not grow with ever new sizes."""
_ON_PROCESSOR = {"CPUExecutionProvider", "AzureExecutionProvider"}
"""Providers that run models of ONNX's operators on the processor."""
_OWN_THREAD = 1
"""Threads of a session that has none besides the caller's, and which a fork has, too."""

_sessions: weakref.WeakSet[InferenceSession] = weakref.WeakSet()


@dataclass(frozen=True)
class SessionReport:
    """Which code runs each set of input sizes in a session, and the calls that only ONNX Runtime can take.

    `note` says why nothing is compiled, if nothing is.
    """

    model: str
    sizes: tuple[SizeReport, ...]
    other_calls: int
    note: str

    def __str__(self) -> str:
        """A line for each."""
        lines = [self.model, *(f"  {each}" for each in self.sizes)]
        if self.note:
            lines.append(f"  everything in ONNX Runtime: {self.note}")
        elif self.other_calls:
            lines.append(f"  other calls, in ONNX Runtime: {self.other_calls}")
        return "\n".join(lines)


class SessionOptions(onnxruntime.SessionOptions):  # type: ignore[misc]
    """ONNX Runtime's, which also know whether they give weights: compiled code has the weights of the model."""

    gives_weights = False

    def add_initializer(self, *args: Any, **kwargs: Any) -> None:
        """As ONNX Runtime's."""
        super().add_initializer(*args, **kwargs)
        self.gives_weights = True

    def add_external_initializers(self, *args: Any, **kwargs: Any) -> None:
        """As ONNX Runtime's."""
        super().add_external_initializers(*args, **kwargs)
        self.gives_weights = True

    def add_external_initializers_from_files_in_memory(self, *args: Any, **kwargs: Any) -> None:
        """As ONNX Runtime's."""
        super().add_external_initializers_from_files_in_memory(*args, **kwargs)
        self.gives_weights = True


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """A session of ONNX Runtime in which compiled code takes over `run` if it is right and faster.

    The parameters are those of ONNX Runtime's. Calls with run options, or with inputs other than arrays of the types
    that the model declares, and all other ways to run except bindings (`io_binding`) stay in ONNX Runtime, as do
    sessions on other providers.
    """

    def __init__(self, path_or_bytes: Any, *args: Any, **kwargs: Any) -> None:
        self._process = os.getpid()
        self._starting = threading.RLock()
        self._is_reopening = False
        self._disabled_optimizers = kwargs.get("disabled_optimizers")
        self._groups: dict[tuple[Any, ...], SizeGroup] = {}
        self._calls = self._other_calls = 0
        is_path = isinstance(path_or_bytes, str | os.PathLike)
        self._model = os.path.abspath(path_or_bytes) if is_path else path_or_bytes
        stamp = stamp_of(self._model)
        super().__init__(path_or_bytes, *args, **kwargs)
        self._look_at_session()
        ports = {port.name: port.shape for port in self.get_inputs()}
        self._code = ModelCode(self._model, stamp, ports, self._threads)
        _sessions.add(self)

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """As ONNX Runtime's."""
        group = self._group(input_feed) if run_options is None and not self._note else None
        names = output_names or self._names
        self._calls += 1
        if group is None or not self._all_names.issuperset(names):
            self._other_calls += 1
            return super().run(output_names, input_feed, run_options)
        return group.run(super().run, names, input_feed, self._group, self._calls)

    def io_binding(self) -> IOBinding:
        """As ONNX Runtime's; compiled code may read and write the bound values."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """As ONNX Runtime's."""
        group = self._group_of_binding(iobinding) if run_options is None and not self._note else None
        self._calls += 1
        if group is None:
            self._other_calls += 1
            super().run_with_iobinding(iobinding, run_options)
            return
        bound = [*iobinding.outputs]
        run_bound, run = super().run_with_iobinding, super().run

        def runtime(names: Sequence[str], feeds: Any) -> Any:
            if names is not bound:  # another call, which compares
                return run(names, feeds)
            run_bound(iobinding)
            return []  # they are in their bound memory

        results = group.run(runtime, bound, iobinding.feeds, self._group, self._calls)
        if results and not iobinding.store(results):
            run_bound(iobinding)  # its error says what does not fit

    def set_providers(self, *args: Any, **kwargs: Any) -> None:
        """As ONNX Runtime's."""
        super().set_providers(*args, **kwargs)
        self._look_at_session()

    def report(self) -> SessionReport:
        """Which sizes run in compiled code, which in ONNX Runtime, and why."""
        label = "a model in memory" if isinstance(self._model, bytes) else self._model
        groups = tuple(group.report() for group in list(self._groups.values()))
        return SessionReport(label, groups, self._other_calls, self._note)

    def after_fork(self) -> None:
        """Start anew in a forked process, which has no threads, and locks in their state at the fork."""
        self._starting = threading.RLock()
        self._code.after_fork()
        for group in self._groups.values():
            group.after_fork()

    def _look_at_session(self) -> None:
        """Note the properties that ONNX Runtime has of the session."""
        self._names = [output.name for output in self.get_outputs()]
        self._all_names = frozenset(self._names)
        self._dtypes = [(each.name, DTYPES.get(each.type, "")) for each in self.get_inputs()]
        self._wanted = [(name, np.dtype(dtype)) for name, dtype in self._dtypes if dtype]
        self._threads = self.get_session_options().intra_op_num_threads
        self._note = self._why_not()

    def _why_not(self) -> str:
        """Why nothing of this session can be compiled; "" if it can."""
        others = [name for name in self.get_providers() if name not in _ON_PROCESSOR]
        if os.environ.get(SWITCH, "").lower() == OFF:
            return f"{SWITCH}={OFF}"
        if others:
            return f"it runs on {', '.join(others)}"
        if self.get_session_options().enable_profiling:
            return "its operators are profiled"
        if getattr(self._sess_options_initial, "gives_weights", False):
            return "its options give weights that are not the model's"
        unusual = [f"input {each.name!r} is a {each.type}" for each in self.get_inputs() if each.type not in DTYPES]
        outputs = [each for each in self.get_outputs() if not each.type.startswith("tensor(") or "string" in each.type]
        unusual += [f"output {each.name!r} is a {each.type}" for each in outputs]
        return unusual[0] if unusual else ""

    def _group(self, feeds: Any) -> SizeGroup | None:
        """The group of a call; None for one that only ONNX Runtime can take."""
        if not isinstance(feeds, dict) or len(feeds) != len(self._wanted):
            return None
        shapes = []
        for name, dtype in self._wanted:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype:
                return None
            shapes.append(array.shape)
        key = tuple(shapes)
        return self._groups.get(key) or self._new_group(key)

    def _group_of_binding(self, binding: Any) -> SizeGroup | None:
        """The group of a call by a binding; None for one that only ONNX Runtime can take."""
        if not isinstance(binding, IOBinding) or binding.runtime_session is not self._sess or not binding.outputs:
            return None
        if not self._all_names.issuperset(binding.outputs) or {*binding.outputs.values()} != {PROCESSOR}:
            return None
        return self._group(binding.feeds)

    def _new_group(self, shapes: tuple[Any, ...]) -> SizeGroup | None:
        with self._starting:
            if shapes not in self._groups and len(self._groups) < MOST_SIZES:
                inputs = ", ".join(
                    f"{name}: {dtype}{list(shape)}" for (name, dtype), shape in zip(self._wanted, shapes, strict=True)
                )
                self._groups[shapes] = SizeGroup(inputs, self._code)
            return self._groups.get(shapes)

    @property
    def _sess(self) -> Any:
        """ONNX Runtime's class keeps its session under this name: here the one that this process can run."""
        if self._process != os.getpid():
            self._reopen()
        return self._runtime_session

    @_sess.setter
    def _sess(self, session: Any) -> None:
        self._runtime_session = session

    def _reopen(self) -> None:
        """Make the session of ONNX Runtime anew in a forked process, which has none of its threads.

        The copied session is never freed: it would wait for its threads.
        """
        with self._starting:
            if self._process == os.getpid() or self._is_reopening:
                return
            self._is_reopening = True
            try:
                if self._threads != _OWN_THREAD:
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._runtime_session))
                    providers, options = self.get_providers(), self.get_provider_options()
                    self._sess_options = self._sess_options_initial
                    given = [options.get(name, {}) for name in providers]
                    self._create_inference_session(providers, given, self._disabled_optimizers)
                self._process = os.getpid()
            finally:
                self._is_reopening = False


def _after_fork() -> None:
    for session in list(_sessions):
        session.after_fork()


os.register_at_fork(after_in_child=_after_fork)
