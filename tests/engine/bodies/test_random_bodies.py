"""Random models with bodies compute the same after they were flat, and after they were optimised."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.bodies.flatten import flatten
from eqfuse.engine.bodies.inference import infer_flat
from eqfuse.engine.bodies.nest import nest
from eqfuse.engine.onnx.model import read

from .random_bodies import SHAPE, Builder

seeds = st.integers(0, 2**32)


def run(model: onnx.ModelProto) -> list[list[np.ndarray]]:
    """The outputs for conditions true and false, and zero to three iterations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feed = {name: random.standard_normal(SHAPE).astype(np.float32) for name in "xy"}
    cases = product((True, False), (True, False), (0, 1, 3))
    return [session.run(None, {**feed, "c": np.array(c), "d": np.array(d), "n": np.array(n)}) for c, d, n in cases]


def assert_same(model: onnx.ModelProto, result: ir.Model) -> None:
    proto = ir.to_proto(result)
    onnx.checker.check_model(proto, full_check=True)
    for expected, outputs in zip(run(model), run(proto), strict=True):
        for one, other in zip(expected, outputs, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


@given(seed=seeds)
def test_nesting_gives_back_what_was_flat(seed: int) -> None:
    model = Builder(seed).model()
    flat = flatten(read(model))
    assert_same(model, nest(flat.model, flat).ir)


@given(seed=seeds)
@settings(max_examples=10)
def test_what_is_known_of_bodies_is_true(seed: int) -> None:
    model = Builder(seed).model()
    flat = flatten(read(model))
    infer_flat(flat)
    assert_same(model, nest(flat.model, flat).ir)


@pytest.mark.conformance
@given(seed=seeds)
@example(seed=13378)  # a branch within a branch returns a value of the main graph
@example(seed=1289)  # a loop within a loop begins with its state, and may not run
def test_optimised_bodies_compute_the_same(seed: int) -> None:
    model = Builder(seed).model()
    assert_same(model, optimize_model(model, None, Options(verify=False)).model)
