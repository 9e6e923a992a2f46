"""Plain loops and ONNX Runtime agree under settings of attributes that no node case of ONNX has together.

The settings of an operator are drawn from the values that its node cases have, the defaults of its schema, and both
values of what is a flag, each with the inputs of one of its cases; those that ONNX Runtime refuses are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from eqfuse.lowering.loops.source_files import loop_files
from eqfuse.support.processes.worker_process import WorkerDiedError, WorkerFailedError, WorkerProcess

from ...conformance.test_node_cases import Case, case, cases
from ..test_node_cases import of_tensors
from .in_c import Array, InC, LoopError

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

SETTINGS = 16
"""Drawn for an operator."""
REFUSALS = 40
"""Draws in a row that ONNX Runtime refuses, after which no more are made."""
FLAG = {0, 1}
UNORDERED = ("TopK", "sorted")
"""A setting by which results are in an order that ONNX leaves open."""
RANDOM = frozenset({"Dropout"})
"""Operators that draw numbers, for which there is no loop."""


@cache
def cases_of() -> dict[str, list[Case]]:
    """Node cases that are one loop over tensors, by their operator."""

    def is_loop(name: str) -> bool:
        nodes = cases()[name].model.graph.node
        return len(nodes) == 1 and nodes[0].op_type in loop_files() and of_tensors(case(name)) is None

    loops = sorted((cases()[name].model.graph.node[0].op_type, name) for name in cases() if is_loop(name))
    return {operator: [case(name) for _, name in names] for operator, names in groupby(loops, lambda pair: pair[0])}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "operator" in metafunc.fixturenames:
        drawable = [o for o, c in cases_of().items() if o not in RANDOM and values_of(c)]
        metafunc.parametrize("operator", drawable)


def values_of(tested: Sequence[Case]) -> dict[str, list[Any]]:
    """The values of each attribute that numbers, lists and texts have in these cases."""
    node = tested[0].model.graph.node[0]
    version = max(entry.version for entry in tested[0].model.opset_import if entry.domain == node.domain)
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    values: dict[str, list[Any]] = {}
    for name, attribute in schema.attributes.items():
        if (node.op_type, name) == UNORDERED:
            continue
        found = [
            helper.get_attribute_value(given)
            for each in tested for given in each.model.graph.node[0].attribute if given.name == name
        ]  # fmt: skip
        if attribute.default_value.type:
            found.append(helper.get_attribute_value(attribute.default_value))
        if attribute.type == onnx.defs.OpSchema.AttrType.INT and set(found) <= FLAG:
            found.extend(FLAG)
        different = [value for place, value in enumerate(found) if value not in found[:place]]
        if len(different) > 1 and not isinstance(different[0], onnx.TensorProto | onnx.GraphProto):
            values[name] = different
    return values


def drawn(operator: str, runtime: WorkerProcess) -> Iterator[tuple[onnx.ModelProto, Sequence[Array], Sequence[Array]]]:
    """Models of one operator, with inputs and what ONNX Runtime makes of them in a process of its own."""
    random = np.random.default_rng(0)
    tested = cases_of()[operator]
    values, refusals, made = values_of(tested), 0, 0
    while made < SETTINGS and refusals < REFUSALS:
        chosen = tested[random.integers(len(tested))]
        model = onnx.ModelProto()
        model.CopyFrom(chosen.model)
        node = model.graph.node[0]
        for name in [name for name in values if random.random() < 0.6]:
            kept = [given for given in node.attribute if given.name != name]
            del node.attribute[:]
            value = values[name][random.integers(len(values[name]))]
            node.attribute.extend([*kept, helper.make_attribute(name, value)])
        for port in model.graph.output:
            port.type.tensor_type.ClearField("shape")
        inputs = [a * a.dtype.type(1.5) if a.dtype.kind == "f" and random.random() < 0.3 else a for a in chosen.inputs]
        try:
            results = runtime.ask((model.SerializeToString(), inputs))
        except (WorkerDiedError, WorkerFailedError):  # some settings it does not refuse, but dies of
            refusals += 1
            continue
        refusals, made = 0, made + 1
        yield model, inputs, results


def run(request: tuple[bytes, Sequence[Array]]) -> Sequence[Array]:
    """A model on its inputs in ONNX Runtime, which raises what it wants."""
    model, inputs = request
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = zip((port.name for port in session.get_inputs()), inputs, strict=True)
    return list(session.run(None, dict(feeds)))


@pytest.fixture(scope="module")
def runtime() -> Iterator[WorkerProcess]:
    process = WorkerProcess(f"{__name__}:run")
    yield process
    process.close()


def test_settings_as_in_onnx_runtime(operator: str, runtime: WorkerProcess) -> None:
    for model, inputs, wanted in drawn(operator, runtime):
        settings = {a.name: helper.get_attribute_value(a) for a in model.graph.node[0].attribute}
        try:
            results = InC(model)(inputs)
        except LoopError as error:
            pytest.fail(f"{settings}, operands of {[a.shape for a in inputs]}: {error}")
        for result, expected in zip(results, wanted, strict=True):
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape), settings
            size = float(np.abs(expected[np.isfinite(expected)]).max(initial=1)) if expected.dtype.kind == "f" else 1
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5 * size, err_msg=str(settings))
