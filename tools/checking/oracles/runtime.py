"""What ONNX's shape inference and ONNX Runtime say of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import shape_inference

from ....ir.operators import Array

if TYPE_CHECKING:
    import onnxruntime


class Refused(Exception):
    """The model is no valid ONNX, or cannot be run on these elements."""


class KernelMissing(Exception):
    """ONNX Runtime implements no operator of the model for its element types."""


def infer_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types that strict inference finds. Raises Refused."""
    try:
        return shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError) as error:
        raise Refused(str(error)) from None


def outputs(model: onnx.ModelProto, elements: Mapping[str, Array], *, reference: bool = True) -> list[Array]:
    """What a model computes in ONNX Runtime, unoptimised, on one thread; by ONNX's reference where it has no kernel.

    Raises Refused, and KernelMissing where neither implements it or no `reference` is asked for.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    try:
        return [np.asarray(a) for a in _session(model.SerializeToString()).run(None, dict(elements))]
    except (state.NotImplemented, RuntimeError) as error:  # the latter where numpy has no such element type
        if not reference:
            raise KernelMissing(str(error)) from None
        return _by_reference(model, elements)
    except (state.Fail, state.InvalidGraph, state.InvalidArgument, state.RuntimeException) as error:
        raise Refused(str(error)) from None


def _session(model: bytes) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _by_reference(model: onnx.ModelProto, elements: Mapping[str, Array]) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    try:
        found: Any = ReferenceEvaluator(model).run(None, dict(elements))
    except Exception as error:  # numpy's, for whatever the reference does not foresee
        raise KernelMissing(str(error)) from None
    return [np.asarray(a) for a in found]
