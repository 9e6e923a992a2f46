"""Every ONNX backend node test gives what it expects: in TVM if its operators have a lowering, and as plain loops.

Those that can be neither are skipped with the reason, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx_ir import serde

from eqfuse.engine.onnx.model import read
from eqfuse.engine.preparation.schema_functions import expand_operators, list_expandable
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.annotations.local_functions import inline_functions
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.compute import DTYPES, LOWERINGS, lowerable
from eqfuse.lowering.loops.program import loop_program
from eqfuse.support.errors import EqfuseError, ModelError

from ..conformance.test_node_cases import Case, case, cases, with_weights
from .in_tvm import Call, in_onnx_runtime, in_tvm
from .loops.in_c import Array, InC, LoopError

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


TRANSFORMS = frozenset({"DFT", "STFT"})
"""What adds up elements that cancel out."""
INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})


def obstacle(call: Call) -> str | None:
    """Why a model cannot be compiled; None if it can."""
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


def spelled_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without operators that ONNX defines by others."""
    result = read(model)
    for _ in range(5):
        if not list_expandable(result):
            break
        result = inline_functions(expand_operators(result, infer(result).types))
    return serde.serialize_model(result.ir)


def of_tensors(tested: Case) -> str | None:
    """Why a case is not of tensors that are compiled yet; None if it is."""
    values = (*tested.inputs, *tested.expected)
    if not all(isinstance(value, np.ndarray) for value in values):
        return "no tensors"
    return next((f"of {v.dtype.name}" for v in values if v.dtype.itemsize < 4 and v.dtype.name not in DTYPES), None)


def of_lowered_operators(model: onnx.ModelProto) -> bool:
    return all(node.op_type in LOWERINGS for node in model.graph.node)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "any_name" in metafunc.fixturenames:
        metafunc.parametrize("any_name", sorted(cases()))
    elif "name" in metafunc.fixturenames:
        metafunc.parametrize("name", [n for n, c in sorted(cases().items()) if of_lowered_operators(c.model)])


def test_as_written(name: str) -> None:
    check(case(name))


def test_as_plain_loops(any_name: str) -> None:
    tested = case(any_name)
    if reason := of_tensors(tested):
        pytest.skip(reason)
    try:
        outputs = InC(spelled_out(tested.model))(tested.inputs)
    except (LoweringError, LoopError) as error:
        pytest.skip(str(error))
    difference = tested.difference(outputs, tested.expected)
    if difference:
        call = Call(tested.model, dict(zip((i.name for i in tested.model.graph.input), tested.inputs, strict=True)))
        difference = tested.difference(outputs, list(in_onnx_runtime(call).values()))
    if difference and any(node.op_type in TRANSFORMS for node in tested.model.graph.node):
        difference = beyond_rounding(outputs, tested.expected)
    assert difference == ""


def beyond_rounding(outputs: Sequence[Array], expected: Sequence[Array]) -> str:
    """Where results differ by more than rounding of the largest element: the transform of what has a frequency of 0."""
    for output, wanted in zip(outputs, expected, strict=True):
        distance = np.abs(output - wanted).max()
        if output.shape != wanted.shape or distance > 1e-6 * np.abs(wanted).max():
            return f"{distance} apart"
    return ""


LEFT = {
    "no tensors": 24,
    "'optional_input' is no tensor": 3,
    **{
        f"{operator} has no plain loop": count
        for operator, count in {
            # attention with results or masks of its own, which ONNX's definition by other operators leaves out
            "FlexAttention": 10, "Attention": 7,
            "ImageDecoder": 9,
            "StringSplit": 6, "StringNormalizer": 6, "StringConcat": 5, "LabelEncoder": 4, "RegexFullMatch": 3,
            "OptionalHasElement": 4, "OptionalGetElement": 1,
            "Bernoulli": 3, "RandomUniformLike": 3,
            "TreeEnsemble": 2,
            "Scan of opset 8": 1,
        }.items()
    },
}  # fmt: skip
"""How many cases are neither kernels nor plain loops, by the reason: texts, images, sequences, chance, and a few."""


def test_what_is_neither_kernels_nor_plain_loops_has_a_reason() -> None:
    """But for half precision and products of 8-bit integers."""
    left: Counter[str] = Counter()
    for name in cases():
        tested = case(name)
        if of_lowered_operators(tested.model) or any(n.op_type in INTEGER_PRODUCTS for n in tested.model.graph.node):
            continue
        reason = of_tensors(tested)
        if reason is None:
            try:
                loop_program(spelled_out(tested.model), "model")
            except EqfuseError as error:
                reason = str(error)
        if reason is not None and not reason.startswith("of "):
            left[reason] += 1
    assert left == LEFT
    assert left.total() <= 100


def test_with_weights(name: str) -> None:
    written = case(name)
    if len(written.inputs) < 2:
        pytest.skip("it has one input")
    check(with_weights(written))
