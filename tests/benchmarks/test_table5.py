"""The builders of Table 5's models give valid models; the small ones run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from eqfuse.benchmarks.table5 import BUILDERS
from eqfuse.benchmarks.table5.figures import EXPORTED, TABLE5
from eqfuse.benchmarks.table5.network import Network
from eqfuse.benchmarks.table5.transformers import TINYBERT, Language

from ..onnx_runtime import outputs_of

SMALL = ("efficientnet_b0", "mobilenet_ssd", "tinybert")
LARGE = tuple(name for name in BUILDERS if name not in SMALL)


def every(large: bool) -> list[object]:
    return [*SMALL, *(pytest.param(name, marks=pytest.mark.conformance) for name in LARGE if large)]


def feed(value: onnx.ValueInfoProto) -> npt.NDArray[Any]:
    shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
    generator = np.random.default_rng(1)
    if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        return generator.integers(0, 2, shape)
    return generator.standard_normal(shape, np.float32)


def outputs(model: onnx.ModelProto) -> list[npt.NDArray[Any]]:
    return outputs_of(model, {value.name: feed(value) for value in model.graph.input})


def test_every_model_has_a_printed_row() -> None:
    assert list(BUILDERS) == [name for name in TABLE5 if name not in EXPORTED]


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", every(large=True))
def test_model_is_valid_and_its_shapes_fit(name: str) -> None:
    model = BUILDERS[name]()
    onnx.checker.check_model(model)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", every(large=True))
def test_model_runs_to_finite_results_of_the_declared_shapes(name: str) -> None:
    model = BUILDERS[name]()
    declared = [tuple(d.dim_value for d in value.type.tensor_type.shape.dim) for value in model.graph.output]
    found = outputs(model)
    assert [array.shape for array in found] == declared
    assert all(np.isfinite(array).all() for array in found)


def test_gelu_of_both_kinds_agree() -> None:
    parts = Language(Network("gelu"), TINYBERT)
    x = parts.net.input("x", (4, 5))
    model = parts.net.model({parts.gelu(x): (4, 5), parts.gelu_new(x): (4, 5)})
    first, second = outputs(model)
    np.testing.assert_allclose(first, second, atol=2e-3)
