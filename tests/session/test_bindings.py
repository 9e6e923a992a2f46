"""Bindings of inputs and outputs run in compiled code, too, and what options tell of weights."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import eqfuse
from eqfuse.driver.session.session import InferenceSession

from .conftest import ROWS, Finding
from .test_session import Feeds, feeds, take_over


def bind(session: InferenceSession, given: Feeds, ways: str = "cpu") -> Any:
    """A binding of the inputs as arrays, as values or by their addresses, and of both outputs."""
    binding = session.io_binding()
    for name, array in given.items():
        if ways == "cpu":
            binding.bind_cpu_input(name, array)
        elif ways == "value":
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        else:
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    for name in ("z", "y"):
        binding.bind_output(name)
    return binding


def compiled_calls(session: InferenceSession) -> int:
    return session.report().sizes[0].compiled_calls


@pytest.mark.parametrize("ways", ["cpu", "value", "address"])
def test_bindings_run_in_compiled_code(model: Path, finding: Finding, ways: str) -> None:
    session = take_over(model)
    given = feeds()
    binding = bind(session, given, ways)
    for seed in range(6):  # inputs that change in place, and outputs that stay where they are
        for name, array in feeds(seed).items():
            given[name][...] = array
        session.run_with_iobinding(binding)
        expected = onnxruntime.InferenceSession(model).run(["z", "y"], given)
        for value, result in zip(expected, binding.copy_outputs_to_cpu(), strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)
    assert compiled_calls(session) == 4  # the first and the fourth run in both
    assert session.report().other_calls == 0


def test_compiled_code_writes_into_memory_that_is_bound(model: Path, finding: Finding) -> None:
    session = take_over(model)
    session.run(None, feeds())
    binding = bind(session, feeds(1))
    memory = np.zeros((2, 2), np.float32)
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type((ROWS, 4), np.float32)
    binding.bind_output("z", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
    binding.bind_ortvalue_output("y", value)
    session.run_with_iobinding(binding)
    z, y = onnxruntime.InferenceSession(model).run(["z", "y"], feeds(1))
    np.testing.assert_array_equal(memory, z)
    np.testing.assert_allclose(value.numpy(), y, rtol=1e-5, atol=1e-6)
    assert compiled_calls(session) == 1


def test_outputs_outlive_their_binding(model: Path, finding: Finding) -> None:
    session = take_over(model)
    session.run(None, feeds())
    binding = bind(session, feeds(1))
    session.run_with_iobinding(binding)
    z, _ = binding.get_outputs()
    del binding, session
    gc.collect()
    np.testing.assert_array_equal(z.numpy(), onnxruntime.InferenceSession(model).run(["z"], feeds(1))[0])


def test_bindings_that_do_not_fit_are_for_onnx_runtime(model: Path, finding: Finding) -> None:
    session = take_over(model)
    session.run(None, feeds())
    binding = bind(session, feeds())
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_shape_and_type((1, 4), np.float32))
    with pytest.raises(Exception, match="invalid dimensions"):
        session.run_with_iobinding(binding)
    with pytest.raises(Exception, match="session"):
        eqfuse.InferenceSession(model).run_with_iobinding(binding)


@pytest.mark.parametrize("give", ["add_initializer", "add_external_initializers"])
def test_weights_that_options_give_are_for_onnx_runtime(
    model: Path, finding: Finding, give: str, tmp_path: Path
) -> None:
    if give == "add_external_initializers":
        model, proto = tmp_path / "external.onnx", onnx.load(model)
        onnx.save(proto, model, save_as_external_data=True, size_threshold=0)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((8, 4), np.float32))
    options = eqfuse.SessionOptions()
    getattr(options, give)(*(("w", value) if give == "add_initializer" else (["w"], [value])))
    session = eqfuse.InferenceSession(model, options)
    for _ in range(5):
        session.run(None, feeds())
    assert not finding.jobs
    assert "options" in session.report().note
