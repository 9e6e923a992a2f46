"""How far damage moves outputs on ordinary inputs, in float64 by onnx's own reference evaluator.

This shares nothing with eqfuse's verification. Where the evaluator does not run a model, ONNX Runtime does, in float32
and without its optimisations: far from exact, but damage of the size that counts is a thousand times its rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = NDArray[Any]
_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)
_SMALLEST = 1e-30
"""Outputs below this size are compared with this size."""


@dataclass(frozen=True)
class Effect:
    """The largest move of an output as a part of the size of its largest element, and what measured it."""

    size: float
    measured_in: str


class Referee:
    """One model, and its exact outputs on ordinary inputs."""

    def __init__(self, model: onnx.ModelProto, draws: Sequence[Mapping[str, Array]]) -> None:
        self._draws = draws
        self._screen = [run_fast(model, each) for each in draws]
        self._exact = self._run_exactly(model)

    def measure(self, damaged: onnx.ModelProto) -> Effect | None:
        """The effect of damage; None for a model that does not run, or gives outputs of another shape or type."""
        try:
            fast = [run_fast(damaged, each) for each in self._draws]
        except Exception:  # whatever ONNX Runtime raises
            return None
        pairs = list(zip(self._screen, fast, strict=True))
        if not all(_are_alike(one, other) for one, other in pairs):
            return None
        if self._exact is not None and (exact := self._run_exactly(damaged)) is not None:
            return Effect(max(_distance(*pair) for pair in zip(self._exact, exact, strict=True)), "float64")
        return Effect(max(_distance(*pair) for pair in pairs), "float32")

    def _run_exactly(self, model: onnx.ModelProto) -> list[list[Array]] | None:
        """The outputs on all inputs; None if the evaluator fails."""
        wide = onnx.ModelProto()
        wide.CopyFrom(model)
        _widen(wide.graph)
        try:
            evaluator = ReferenceEvaluator(wide)
            return [[np.asarray(each) for each in evaluator.run(None, _wide_inputs(draw))] for draw in self._draws]
        except Exception:  # whatever the evaluator raises
            return None


def run_fast(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """Outputs of ONNX Runtime without optimisations, on one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(None, dict(inputs))]


def _are_alike(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return [(each.shape, each.dtype) for each in one] == [(each.shape, each.dtype) for each in other]


def _distance(expected: Sequence[Array], actual: Sequence[Array]) -> float:
    """Infinite where only one is a number."""
    worst = 0.0
    for one, other in zip(expected, actual, strict=True):
        first, second = one.astype(np.float64), other.astype(np.float64)
        if not first.size:
            continue
        finite = np.isfinite(first) & np.isfinite(second)
        strange = ~finite & ~(first == second) & ~(np.isnan(first) & np.isnan(second))
        if strange.any():
            return float("inf")
        size = np.abs(first).max(initial=_SMALLEST, where=finite)
        worst = max(worst, float(np.abs(first - second).max(initial=0.0, where=finite) / size))
    return worst


def _wide_inputs(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {name: each.astype(np.float64) if each.dtype.kind == "f" else each for name, each in inputs.items()}


def _widen(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.type == AttributeProto.GRAPH:
            _widen(attribute.g)
        elif attribute.type == AttributeProto.TENSOR:
            _widen_tensor(attribute.t)
        elif attribute.name in ("to", "dtype") and attribute.i in _NARROW:
            attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
