"""Plain loops say in one line if operands do not fit each other, and read and write nothing beside them.

Every axis of every operand is made shorter, longer and empty, by itself, and numbers that may be indices or sizes
become extreme ones. What ONNX Runtime refuses because of sizes a loop refuses too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from eqfuse.ir.operators import RECURRENT
from eqfuse.lowering.base.errors import CrashError
from eqfuse.lowering.bundle.isolation import call_isolated
from eqfuse.lowering.loops.source_files import loop_files

from ...conformance.test_node_cases import case, cases
from ..test_node_cases import of_tensors
from .in_c import Array
from .sanitized import SECONDS, run_sanitized

MOST_CASES = 3
"""The most node cases of ONNX of one operator."""
MORE_THAN_ONNX_RUNTIME = {
    "ArrayFeatureExtractor": "an empty list of indices",
    "AveragePool": "maps without channels", "LpPool": "maps without channels", "MaxPool": "maps without channels",
    "GlobalAveragePool": "maps without channels", "GlobalMaxPool": "maps without channels",
    "Col2Im": "columns without channels",
    "ConvTranspose": "a kernel without taps",
    "DeformConv": "results without features",
    "Einsum": "letters of one element beside others, as numpy takes them",
    "GroupNormalization": "an empty batch or plane",
    "ReduceMax": "bools along an empty axis", "ReduceMin": "bools along an empty axis",
    "Split": "an axis shorter than there are parts: the last ones have no elements",
    "TfIdfVectorizer": "an empty batch",
    "Unique": "slices without elements",
}  # fmt: skip
"""Operators that take sizes which ONNX Runtime refuses, and what they take; all results have a meaning."""
LESS_THAN_ONNX_RUNTIME = {
    "AveragePool": "pools without any window", "LpPool": "pools without any window",
    "MaxPool": "pools without any window",
    "Concat": "empty tensors of any shape, which ONNX does not define",
    "Einsum": "letters of one element in a product of matrices",
    "GatherND": "batches of another number, which ONNX does not define",
    "NonMaxSuppression": "limits of several numbers, which ONNX does not define",
    "GroupNormalization": "one scale for all channels, which ONNX does not define",
}  # fmt: skip
"""Operators that refuse sizes which ONNX Runtime takes."""


@dataclass(frozen=True)
class Misfit:
    """Inputs that differ from valid ones in one point. `is_size`: in one size, not in one element."""

    text: str
    inputs: tuple[Array, ...]
    is_size: bool


def misfits(inputs: Sequence[Array]) -> Iterator[Misfit]:
    """All that can be made of inputs that fit."""

    def put(place: int, array: Array) -> tuple[Array, ...]:
        return (*inputs[:place], array, *inputs[place + 1 :])

    for place, array in enumerate(inputs):
        for axis, size in enumerate(array.shape):
            for other in sorted({0, 1, abs(size - 1), size + 1} - {size}):
                changed = _resize(array, axis, other)
                yield Misfit(f"operand {place}, axis {axis}: {size} -> {other}", put(place, changed), True)
        for value in _extremes(array.dtype) if array.size else ():
            changed = array.copy()
            changed.reshape(-1)[-1] = value
            yield Misfit(f"operand {place}: the last element {value}", put(place, changed), False)


def _resize(array: Array, axis: int, size: int) -> Array:
    """The array with as many elements along an axis, its own ones in turn."""
    if array.shape[axis] == 0:
        return np.ones((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
    return np.asarray(np.take(array, np.arange(size) % array.shape[axis], axis))


def _extremes(dtype: np.dtype[Any]) -> Sequence[float]:
    """Numbers that are no index and no size of small tensors; none so large that a result might fill the memory."""
    if dtype.kind == "f":
        return (np.nan, 1e30, -1e30)
    return (1000, -1000, -1, 0) if dtype.name in ("int32", "int64") else ()


def with_free_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a name of its own for each dimension of its inputs, and without shapes of its outputs."""
    free = onnx.ModelProto()
    free.CopyFrom(model)
    for port in free.graph.input:
        for axis, dimension in enumerate(port.type.tensor_type.shape.dim):
            dimension.dim_param = f"{port.name}_{axis}"
    for port in free.graph.output:
        port.type.tensor_type.ClearField("shape")
    return free


def is_taken(model: bytes, inputs: Sequence[Array]) -> bool:
    """Whether ONNX Runtime runs a model on these inputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        session.run(None, {port.name: array for port, array in zip(session.get_inputs(), inputs, strict=True)})
    except Exception:  # its exceptions share no narrower base
        return False
    return True


def check(model: onnx.ModelProto, inputs: Sequence[Array], folder: Path) -> None:
    """Raise AssertionError for accesses beside tensors, and for sizes on which the loop and ONNX Runtime disagree."""
    tried = [Misfit("nothing", tuple(inputs), False), *misfits(inputs)]
    report = run_sanitized(model, [misfit.inputs for misfit in tried], folder)
    assert report.violation == "", tried[len(report.messages)].text
    assert report.messages[0] == ""
    operator, free = model.graph.node[0].op_type, with_free_sizes(model).SerializeToString()
    if not is_taken(free, inputs):
        return
    for misfit, message in zip(tried, report.messages, strict=True):
        assert message.count("\n") == 0
        is_empty_recurrence = operator in RECURRENT and any(array.size == 0 for array in misfit.inputs)
        if not misfit.is_size or is_empty_recurrence:  # after no steps its states are whatever was in memory
            continue
        try:
            taken = call_isolated(SECONDS, is_taken, free, misfit.inputs)
        except CrashError:  # there it reads beside an operand
            taken = False
        if not taken and not message:
            assert operator in MORE_THAN_ONNX_RUNTIME, misfit.text
        elif message and taken:
            assert operator in LESS_THAN_ONNX_RUNTIME, f"{misfit.text}: {message}"


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


OPERANDS: dict[str, tuple[dict[str, Any], Sequence[Array]]] = {
    "GatherElements": ({"axis": 1}, [floats(3, 4), np.array([[1, 0], [3, 2]])]),
    "ReverseSequence": ({"batch_axis": 1, "time_axis": 0}, [floats(4, 3), np.array([2, 4, 0])]),
}


@pytest.mark.parametrize("operator", OPERANDS)
def test_operands_of_other_sizes_are_refused(operator: str, tmp_path: Path) -> None:
    attributes, inputs = OPERANDS[operator]
    names = [f"x{number}" for number in range(len(inputs))]
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(operator, names, ["y"], **attributes)
    graph = helper.make_graph([node], "misfits", ports, [helper.make_tensor_value_info("y", 1, None)])
    check(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), inputs, tmp_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", list(_names()))


def _names() -> Iterator[str]:
    """Node cases of ONNX that are one loop, the first ones of each operator."""
    taken: dict[str, int] = {}
    for name, test in sorted(cases().items()):
        node = test.model.graph.node[0]
        operator, has_seed = node.op_type, any(attribute.name == "seed" for attribute in node.attribute)
        is_loop = len(test.model.graph.node) == 1 and operator in loop_files() and not has_seed
        if is_loop and taken.get(operator, 0) < MOST_CASES and of_tensors(case(name)) is None:
            taken[operator] = taken.get(operator, 0) + 1
            yield name


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_node_cases_of_other_sizes(name: str, tmp_path: Path) -> None:
    tested = case(name)
    check(tested.model, tested.inputs, tmp_path)
