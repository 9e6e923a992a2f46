"""Every ONNX backend node test whose operators have a lowering gives in TVM what it expects.

The others are skipped with the reason that `lowerable` gives.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from eqfuse.errors import ModelError
from eqfuse.lowering.compute import LOWERINGS, lowerable

from ..conformance.test_node_cases import Case, case, cases, with_weights
from .in_tvm import Call, in_onnx_runtime, in_tvm

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def obstacle(call: Call) -> str | None:
    """Why a model cannot be compiled; None where it can."""
    try:
        graph = call.graph
    except ModelError as error:
        return str(error)
    if not len(graph):
        return "nothing is left to run"
    return next((reason for o in graph.operators if (reason := lowerable(o, graph))), None)


def check(tested: Case) -> None:
    if not all(isinstance(value, np.ndarray) for value in (*tested.inputs, *tested.expected)):
        pytest.skip("no tensors")
    call = Call(tested.model, dict(zip((i.name for i in tested.model.graph.input), tested.inputs, strict=True)))
    if reason := obstacle(call):
        pytest.skip(reason)
    (results,) = in_tvm([call])
    outputs = [results[o.name] for o in tested.model.graph.output]
    difference = tested.difference(outputs, tested.expected)
    if difference:  # ONNX Runtime differs from ONNX here and there too
        difference = tested.difference(outputs, list(in_onnx_runtime(call).values()))
    assert difference == ""


def of_lowered_operators(model: onnx.ModelProto) -> bool:
    return all(node.op_type in LOWERINGS for node in model.graph.node)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    asked_for = metafunc.config.getoption("-m") != "not conformance"
    names = [n for n, test in sorted(cases().items()) if of_lowered_operators(test.model)] if asked_for else []
    metafunc.parametrize("name", names)


def test_as_written(name: str) -> None:
    check(case(name))


def test_with_weights(name: str) -> None:
    written = case(name)
    if len(written.inputs) < 2:
        pytest.skip("it has one input")
    check(with_weights(written))
