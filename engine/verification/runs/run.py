"""Backends that run a model: ONNX Runtime with its optimisations off, or the reference evaluator of onnx."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from threading import Timer
from typing import TYPE_CHECKING, Protocol

import numpy as np
import onnx
import onnxruntime

from ....support.custom_operators import explain_refusal
from ...onnx.exact_products import make_products_exact, may_saturate
from ...onnx.runtime_values import run_on_arrays, session_options
from .source import Source
from .values import EndlessRunError, Feeds, RunError, Value, one_line

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun


_LEAST_LIMIT = 1.0
"""Seconds that a run may take at least, though others end much sooner."""
_MOST_TIMES = 20
"""Inputs of other values may make a loop go on this many times as long."""


class Backend(Protocol):
    """A loaded model."""

    def run(self, feeds: Feeds) -> dict[str, Value]:
        """Every output by name (and the extra values asked for at loading). Raises RunError."""
        ...


class OnnxRuntime:
    """The model in ONNX Runtime on the CPU without graph optimisations, so that every node runs as written."""

    def __init__(
        self,
        source: Source,
        extra: Sequence[str] = (),
        nodes: Sequence[onnx.NodeProto] = (),
        seconds: float | None = None,
    ) -> None:
        """Load the model; ``extra`` names values of it or of more ``nodes`` to give as outputs too. A run that takes
        longer than the ``seconds`` is ended. Raises RunError."""
        self._seconds = seconds
        options = session_options()
        model: str | bytes = str(source.path)
        if extra:
            # Protobuf messages merge when joined, so the model gets more nodes without decoding its weights.
            present = {value.name for value in source.graph.output}
            outputs = [onnx.ValueInfoProto(name=name) for name in extra if name not in present]
            addition = onnx.ModelProto(graph=onnx.GraphProto(node=nodes, output=outputs))
            model = source.path.read_bytes() + bytes(addition.SerializeToString())
        if may_saturate(source.structure):
            whole = onnx.ModelProto.FromString(model if isinstance(model, bytes) else source.path.read_bytes())
            model = make_products_exact(whole).SerializeToString()
        if isinstance(model, bytes):
            # Folder of the external data, since the model itself comes from memory.
            folder = str(source.path.resolve().parent)
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's exceptions share no base class of their own
            raise RunError(explain_refusal(_reason(error))) from error
        self._inputs = {value.name for value in self._session.get_inputs()}
        self._outputs = [value.name for value in self._session.get_outputs()]

    def run(self, feeds: Feeds) -> dict[str, Value]:
        """Run once; only the inputs that the model declares are fed. Raises RunError, and EndlessRunError past the
        limit. Once a run has ended, the others have a multiple of its time."""
        fed = {name: value for name, value in feeds.items() if name in self._inputs}
        options = onnxruntime.RunOptions()
        options.log_severity_level = 4
        ending = Timer(self._seconds, setattr, (options, "terminate", True)) if self._seconds is not None else None
        if ending is not None:
            ending.daemon = True
            ending.start()
        started = time.perf_counter()
        try:
            outputs = dict(zip(self._outputs, run_on_arrays(self._session, fed, options), strict=True))
        except Exception as error:  # as above
            if options.terminate:
                raise EndlessRunError(f"a run did not end within {self._seconds:g} s") from error
            raise RunError(_reason(error)) from error
        finally:
            if ending is not None:
                ending.cancel()
        if self._seconds is not None:
            taken = time.perf_counter() - started
            self._seconds = min(self._seconds, max(_LEAST_LIMIT, _MOST_TIMES * taken))
        return outputs


_STATUS = re.compile(r"running (\w+) node\. Name:'([^']*)' Status Message: ")
_PREFIX = re.compile(r"^(\[ONNXRuntimeError\] : \d+ : \w+ : )?(Load model from \S+ failed: ?)?(Fatal error: )?")


def _reason(error: BaseException) -> str:
    """The message of ONNX Runtime in one line, without its codes; of nested nodes it names the innermost."""
    text = " ".join(str(error).split())
    places = list(_STATUS.finditer(text))
    if not places:
        return one_line(RuntimeError(_PREFIX.sub("", text)))
    operator, name = places[-1].groups()
    node = f"{operator} {name!r}" if name else operator
    return one_line(RuntimeError(f"{node}: {text[places[-1].end() :]}"))


def _place(error: BaseException) -> str:
    """The operator at which the reference evaluator failed, since errors of numpy do not name it."""
    from onnx.reference.op_run import OpRun

    trace = error.__traceback__
    while trace is not None:
        node = trace.tb_frame.f_locals.get("node")
        if isinstance(node, OpRun) and node.onnx_node.output:
            return f": it fails in {node.onnx_node.op_type} {node.onnx_node.output[0]!r}"
        trace = trace.tb_next
    return ""


class Reference:
    """The model in the reference evaluator: slow, but it knows every standard operator and type."""

    def __init__(
        self,
        model: Source | onnx.ModelProto,
        extra: Sequence[str] = (),
        operators: Sequence[type[OpRun]] = (),
        evaluator: type[ReferenceEvaluator] | None = None,
    ) -> None:
        """Load the model; ``operators`` replace implementations of the onnx package, ``evaluator`` its evaluator.

        Raises RunError.
        """
        from onnx.reference import ReferenceEvaluator  # its import takes longer than most verifications

        self._extra = list(extra)
        proto = str(model.path) if isinstance(model, Source) else model
        try:
            self._evaluator = (evaluator or ReferenceEvaluator)(proto, new_ops=list(operators) or None)
        except Exception as error:  # the evaluator raises any kind
            raise RunError(one_line(error)) from error

    def run(self, feeds: Feeds, initializers: Mapping[str, Value] | None = None) -> dict[str, Value]:
        """Run once; only the inputs that the model declares are fed. ``initializers`` take the place of its own."""
        names = self._evaluator.input_names
        fed = {name: value for name, value in feeds.items() if name in names} | dict(initializers or {})
        try:
            with np.errstate(all="ignore"):
                if not self._extra:
                    outputs = self._evaluator.run(None, fed)
                    return dict(zip(self._evaluator.output_names, outputs, strict=True))
                values: Value = self._evaluator.run(None, fed, intermediate=True)
        except Exception as error:  # as above
            raise RunError(f"onnx's reference evaluator does not run it{_place(error)}") from error
        return {name: values[name] for name in {*self._extra, *self._evaluator.output_names} if name in values}
