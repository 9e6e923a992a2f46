"""Every ONNX backend node test, optimised, run in ONNX Runtime and compared with what it expects.

Each case runs twice: as onnx wrote it, and with every tensor input but the first as a weight, which lets far more
rules fire. Counted apart: cases whose original ONNX Runtime can't run, which run in the evaluator of onnx instead or
at least must not crash the optimiser, and those (random operators) where two runs of the original differ. Where a
runtime's own result on the original leaves the tolerance, that result is the reference.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

import eqfuse

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

Value = Any
"""What ONNX Runtime takes and gives: an array, a list of them (a sequence), None (an absent optional)."""
Record = Callable[[str, object], None]
Runtime = Callable[[Path, Sequence[Value]], list[Value]]


@dataclass(frozen=True)
class Case:
    """A model, one value for each of its inputs, and the expected outputs with their tolerances."""

    model: onnx.ModelProto
    inputs: tuple[Value, ...]
    expected: tuple[Value, ...]
    relative: float
    absolute: float

    def difference(self, found: Sequence[Value], expected: Sequence[Value]) -> str:
        """Where `found` leaves the tolerance, in one line; "" when it doesn't."""
        try:
            Runner.assert_similar_outputs(expected, found, rtol=self.relative, atol=self.absolute)
        except (AssertionError, AttributeError, TypeError) as error:
            return " ".join(str(error).split())[:300]
        return ""


def plain(value: Value) -> Value:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


@cache
def cases() -> dict[str, Any]:
    """Every node test of the installed onnx, by name. Takes some ten seconds: it computes what each one expects."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {test.name: test for test in collect_testcases(None)}


def case(name: str) -> Case:
    test = cases()[name]
    inputs, expected = test.data_sets[0]
    return Case(test.model, tuple(map(plain, inputs)), tuple(map(plain, expected)), test.rtol, test.atol)


def with_weights(written: Case) -> Case:
    """The case with every tensor input but the first as a weight."""
    pairs = list(zip(written.model.graph.input, written.inputs, strict=True))
    weights = {i.name: v for i, v in pairs[1:] if isinstance(v, np.ndarray) and i.type.HasField("tensor_type")}
    model = onnx.ModelProto()
    model.CopyFrom(written.model)
    del model.graph.input[:]
    model.graph.input.extend(i for i, _ in pairs if i.name not in weights)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    inputs = tuple(v for i, v in pairs if i.name not in weights)
    return Case(model, inputs, written.expected, written.relative, written.absolute)


def in_onnx_runtime(model: Path, inputs: Sequence[Value]) -> list[Value]:
    """The outputs of a model file in ONNX Runtime, its own graph optimisations off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = zip((i.name for i in session.get_inputs()), inputs, strict=True)
    return list(session.run(None, {name: value for name, value in feeds if value is not None}))


def in_reference_evaluator(model: Path, inputs: Sequence[Value]) -> list[Value]:
    """The outputs of a model file in the evaluator of onnx, which knows the newest operators and element types."""
    evaluator = ReferenceEvaluator(onnx.load(model))
    return list(evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=True))))


RUNTIMES: dict[str, Runtime] = {"ONNX Runtime": in_onnx_runtime, "the evaluator of onnx": in_reference_evaluator}


def runtime_for(model: Path, inputs: Sequence[Value]) -> str | None:
    """The first runtime that can run the model; None: none can."""
    for name, runtime in RUNTIMES.items():
        with contextlib.suppress(Exception):  # the exceptions of the runtimes share no narrower base
            runtime(model, inputs)
            return name
    return None


def reference(tested: Case, original: Path, runtime: Runtime) -> Sequence[Value] | None:
    """What the optimised model has to give; None when the original gives no steady result."""
    first, second = runtime(original, tested.inputs), runtime(original, tested.inputs)
    if not tested.difference(first, tested.expected):
        return tested.expected
    return None if tested.difference(first, second) else first


def verdict(tested: Case, folder: Path) -> tuple[str, str]:
    """One of the verdicts that `conftest.py` counts, and what differs."""
    original, optimised = folder / "original.onnx", folder / "optimised.onnx"
    original.write_bytes(tested.model.SerializeToString())
    name = runtime_for(original, tested.inputs)
    expected = reference(tested, original, RUNTIMES[name]) if name else None
    eqfuse.optimize(original, optimised, verify=False)
    if name is None:
        return "not runnable", ""
    found = RUNTIMES[name](optimised, tested.inputs)
    if expected is None:
        return "not comparable", ""
    difference = tested.difference(found, expected)
    return ("wrong", difference) if difference else (f"passed in {name}", "")


def check(tested: Case, folder: Path, record: Record) -> None:
    try:
        result, difference = verdict(tested, folder)
    except BaseException:  # a panic in native code is no Exception
        record("verdict", "crashed")
        raise
    record("verdict", result)
    assert difference == ""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("name", sorted(cases()))


def test_as_written(name: str, tmp_path: Path, record_property: Record) -> None:
    check(case(name), tmp_path, record_property)


def test_with_weights(name: str, tmp_path: Path, record_property: Record) -> None:
    written = case(name)
    if len(written.inputs) < 2:
        pytest.skip("it has one input")
    check(with_weights(written), tmp_path, record_property)
