"""Nodes that a chosen graph may not hold: ONNX Runtime cannot run them, or interprets them differently."""

from __future__ import annotations

import onnxruntime
import pytest
from onnx import TensorProto, helper

from eqfuse.engine.egraph.emit import emit_node
from eqfuse.engine.egraph.graph import ENode
from eqfuse.ir.types import TensorType

from ..models import model, value

DOUBLE, SINGLE = TensorType("float64", (1, 2, 4, 4)), TensorType("float32", (1, 2, 4, 4))
UNARY = [
    "Abs", "Exp", "Erf", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Sin", "Tanh",
    "Sigmoid", "Relu", "Sqrt", "Floor", "GlobalAveragePool", "GlobalMaxPool",
]  # fmt: skip


def runs(op: str, kind: int) -> bool:
    """Whether ONNX Runtime has a kernel."""
    ends = value("x", [1, 2, 4, 4], kind), value("y", None, kind)
    single = model([helper.make_node(op, ["x"], ["y"])], ends[:1], ends[1:], opset=18)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(single.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return False
    return True


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("type_", [SINGLE, DOUBLE], ids=["float32", "float64"])
def test_new_nodes_have_a_kernel(op: str, type_: TensorType) -> None:
    kind = TensorProto.FLOAT if type_ is SINGLE else TensorProto.DOUBLE
    assert (emit_node(ENode(op, (), (0,)), (type_,), type_, 18, {}, runs=True) is not None) == runs(op, kind)


def test_no_cosine_of_doubles_is_written() -> None:
    """Only newer runtimes have a kernel for it."""
    assert emit_node(ENode("Cos", (), (0,)), (DOUBLE,), DOUBLE, 18, {}, runs=True) is None


def test_no_reduction_over_no_axis_is_written() -> None:
    """Without axes ONNX reduces over all of them."""
    assert emit_node(ENode("ReduceSum", ((), 1), (0,)), (SINGLE,), SINGLE, 18, {}) is None
    scalar = TensorType("float32", ())
    assert emit_node(ENode("ReduceSum", ((), 1), (0,)), (scalar,), scalar, 18, {}) is not None


def test_constants_are_computed_without_a_kernel() -> None:
    assert emit_node(ENode("Erf", (), (0,)), (DOUBLE,), DOUBLE, 18, {}) is not None


@pytest.mark.parametrize(("alpha", "said"), [(0.5, True), (0.1, False)])
def test_attributes_have_to_hold_what_float64_meets(alpha: float, said: bool) -> None:
    """Attributes are float32 in ONNX."""
    assert (emit_node(ENode("Elu", (alpha,), (0,)), (DOUBLE,), DOUBLE, 18, {}) is not None) == said


def test_a_squeeze_of_no_axes_is_not_written() -> None:
    assert emit_node(ENode("Squeeze", ((),), (0,)), (SINGLE,), SINGLE, 18, {}) is None


@pytest.mark.parametrize(
    ("source", "result", "op_type", "axes"),
    [
        (("N", 1, 8, "T"), (-1000, 8, -1001), "Squeeze", (1,)),
        ((1, "N", 1, "T"), (-1000, -1001), "Squeeze", (0, 2)),
        (("N", "T"), (1, -1000, -1001, 1), "Unsqueeze", (0, 3)),
        (("N", "T"), (-1001, -1000), "", ()),
        (("N", 2, "T"), (2, -1000, -1001), "Reshape", (2, -1, 0)),
        (("N", 6, "T"), (-1000, 2, 3, -1001), "Reshape", (0, 2, 3, -1)),
    ],
)
def test_reshapes_of_several_free_dimensions(
    source: tuple[int | str, ...], result: tuple[int, ...], op_type: str, axes: tuple[int, ...]
) -> None:
    symbols = {-1000: "N", -1001: "T"}
    output = TensorType("float32", tuple(symbols.get(size, size) for size in result))
    emission = emit_node(ENode("Reshape", (result,), (0,)), (TensorType("float32", source),), output, 18, symbols)
    assert ("" if emission is None else emission.op_type) == op_type
    if emission is not None:
        constants = [each for each in emission.inputs if each is not None and not isinstance(each, int)]
        assert [tuple(array.tolist()) for array in constants] == [axes]
