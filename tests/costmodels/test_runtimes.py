"""The files of runtimes: ONNX Runtime itself fuses what they say."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from msgspec.structs import replace
from onnx import helper

from eqfuse.costmodels.runtime import NONE, Runtime, load_runtime, runtime_names
from eqfuse.engine.egraph.spellings import Earlier, Operand, spell_out
from eqfuse.ir.operators import OPERATORS
from eqfuse.ir.types import TensorType
from eqfuse.support.errors import UsageError

from ..engine.models import model, normal, value
from ..runtime_kernels import runtime_kernels

VERSION = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
RUNTIME = load_runtime("onnxruntime" if VERSION > (1, 22) else "onnxruntime-1.22")
NAMES = {"Gelu": {"Gelu", "FastGelu"}, "RMSNormalization": {"SimplifiedLayerNormalization"}}
"""The kernels of operators that ONNX Runtime names otherwise."""
ATTRIBUTES = {"LayerNormalization": {"axis": 2, "epsilon": 1e-5}, "RMSNormalization": {"axis": 2, "epsilon": 1e-5}}
FUSED = [(fused.into[0], operator) for fused in RUNTIME.fused for operator in fused.operators]
SPELLINGS = [(spelling, opset) for spelling in RUNTIME.spelling for opset in (13, spelling.before - 1)]
IMAGE = [1, 32, 8, 8]


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], **attributes)


def applied(op: str, opset: int = 14) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray[Any, Any]]]:
    """`op` of a, as y, and its constants."""
    scalars = {name: np.asarray(number, np.float32) for name, number in {"low": 0, "high": 6}.items()}
    if op == "Clip":
        return [node("Clip", ["a", "low", "high"], "y")], scalars
    if op in ("Add", "Mul", "Concat"):
        attributes = {"axis": 1} if op == "Concat" else {}
        return [node("Tanh", ["a"], "b"), node(op, ["a", "b"], "y", **attributes)], {}
    if op == "Swish":
        return [node("Sigmoid", ["a"], "b"), node("Mul", ["a", "b"], "y")], {}
    if op == "BatchNormalization":
        return [node(op, ["a", "p", "p", "p", "p"], "y")], {"p": np.ones(32, np.float32)}
    if op == "Gelu":
        return spelled("Gelu", {"approximate": "none"}, ["a"], opset), {}
    return [node(op, ["a"], "y")], {}


def spelled(op: str, literals: dict[str, object], operands: list[str], opset: int) -> list[onnx.NodeProto]:
    """The nodes of a spelling, with constants as nodes; the last makes y."""
    lines = spell_out(RUNTIME, op, literals, [TensorType("float32", (2, 4, 8))] * len(operands), opset)
    assert lines
    nodes = []
    for number, line in enumerate(lines):
        inputs = []
        for place, source in enumerate(line.inputs):
            if isinstance(source, Operand):
                inputs.append(operands[source.position])
            elif isinstance(source, Earlier):
                inputs.append(f"n{source.line}")
            else:
                inputs.append(f"c{number}.{place}")
                scalar = helper.make_tensor("value", onnx.TensorProto.FLOAT, [], [source])
                nodes.append(node("Constant", [], inputs[-1], value=scalar))
        attributes: dict[str, Any] = {"axes": line.axes} if line.axes and opset < 18 else {}
        if line.axes and opset >= 18:
            inputs.append(f"axes{number}")
            nodes.append(node("Constant", [], inputs[-1], value_ints=line.axes))
        output = "y" if number == len(lines) - 1 else f"n{number}"
        nodes.append(node(line.op_type, inputs, output, **attributes))
    return nodes


def test_every_file_is_read_and_names_operators_that_exist() -> None:
    for name in runtime_names():
        runtime = load_runtime(name)
        named = {op for fused in runtime.fused for op in (*fused.into, *fused.operators)}
        named |= {spelling.operator for spelling in runtime.spelling}
        named |= (runtime.blocked.starting | runtime.blocked.keeping) if runtime.blocked is not None else set()
        assert named <= set(OPERATORS)


def test_a_file_may_say_in_what_it_differs_from_another() -> None:
    base, other = load_runtime("onnxruntime"), load_runtime("onnxruntime-vnni")
    assert (base.quantised.saturate, other.quantised.saturate) == (True, False)
    assert replace(other, description=base.description, quantised=base.quantised) == base
    assert replace(other.quantised, saturate=True) == base.quantised


def test_none_fuses_nothing() -> None:
    assert load_runtime(NONE) == Runtime()


@pytest.mark.parametrize("text", ["fused = 3", "colour = 'red'", "[[fused]]\ninto = ['Conv']", "= 3"])
def test_a_wrong_file_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        load_runtime(str(tmp_path / "own.toml"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("anchor", "operator"), FUSED)
def test_a_fused_operator_runs_in_the_kernel_before_it(anchor: str, operator: str) -> None:
    nodes, constants = applied(operator)
    shape = [1, 32, 8, 8] if anchor == "Conv" else [4, 32]
    weights = {"w": normal(32, 32, 1, 1) if anchor == "Conv" else normal(32, 32), **constants}
    nodes = [node(anchor, ["x", "w"], "a"), *nodes, node("Abs", ["y"], "z")]
    made = runtime_kernels(model(nodes, [value("x", shape)], ["z"], weights, 14))
    assert {kernel for kernel in made if not kernel.startswith("Reorder")} == {f"{anchor}+{operator}", "Abs"}


UNITS = sorted({*RUNTIME.quantised.units, *(each.operator for each in RUNTIME.quantised.apart)})


def between_conversions(operator: str, dtype: type[np.uint8 | np.int8]) -> set[str]:
    """What runs an operator between tensors of integers of a type, the second operand of a product among them."""
    nodes, operands = [node("DequantizeLinear", ["x", "scale", "zero"], "a")], ["a"]
    shape = [32, 32] if operator in ("MatMul", "Gemm") else IMAGE
    weights = {"scale": np.asarray(0.05, np.float32), "zero": np.asarray(3, dtype)}
    if operator in RUNTIME.quantised.weighted:
        weights |= {"w": np.ones((32, 32) if len(shape) == 2 else (32, 32, 1, 1), dtype)}
        nodes, operands = [*nodes, node("DequantizeLinear", ["w", "scale", "zero"], "b")], ["a", "b"]
    elif operator in ("Add", "Mul", "Concat"):
        operands = ["a", "a"]
    attributes: dict[str, Any] = {"kernel_shape": [2, 2]} if operator == "AveragePool" else {}
    attributes |= {"axis": 1} if operator == "Concat" else {}
    nodes += [
        node(operator, operands, "y", **attributes), node("QuantizeLinear", ["y", "scale", "zero"], "q"),
        node("DequantizeLinear", ["q", "scale", "zero"], "z"),
    ]  # fmt: skip
    image = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
    return set(runtime_kernels(model(nodes, [image], ["z"], weights, 14))) - {"Transpose"}


@pytest.mark.parametrize("operator", UNITS)
def test_an_operator_between_quantised_tensors_runs_on_integers(operator: str) -> None:
    name = "QGemm" if operator == "Gemm" else f"QLinear{operator}"
    assert between_conversions(operator, np.uint8) == {name, "DequantizeLinear"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="what the file says is of x86-64")
@pytest.mark.parametrize("operator", UNITS)
def test_an_operator_between_integers_with_a_sign_runs_on_numbers(operator: str) -> None:
    assert not RUNTIME.quantised.signed
    assert {"DequantizeLinear", operator, "QuantizeLinear"} <= between_conversions(operator, np.int8)


@pytest.mark.parametrize(("spelling", "opset"), SPELLINGS, ids=lambda each: getattr(each, "operator", each))
def test_a_spelling_runs_as_one_kernel(spelling: Any, opset: int) -> None:
    operands = ["x", "scale", "bias"][: len(OPERATORS[spelling.operator].operands)]
    literals = {**ATTRIBUTES.get(spelling.operator, {}), **spelling.when}
    nodes = [*spelled(spelling.operator, literals, operands, opset), node("Abs", ["y"], "z")]
    weights = {name: normal(8) for name in operands[1:]}
    made = runtime_kernels(model(nodes, [value("x", [2, 4, 8])], ["z"], weights, opset))
    (kernel,) = set(made) - {"Abs"}
    assert kernel in NAMES.get(spelling.operator, {spelling.operator})


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the layout in blocks is for x86-64")
@pytest.mark.parametrize("operator", sorted(RUNTIME.blocked.keeping if RUNTIME.blocked else ()))
def test_an_operator_that_keeps_the_layout_needs_no_reorder(operator: str) -> None:
    nodes, constants = applied(operator)
    channels = 64 if operator == "Concat" else 32
    nodes = [node("MaxPool", ["x"], "a", kernel_shape=[2, 2]), *nodes, node("Conv", ["y", "v"], "z")]
    weights = {"v": normal(32, channels, 1, 1), **constants}
    made = runtime_kernels(model(nodes, [value("x", IMAGE)], ["z"], weights, 14))
    assert (made["ReorderInput"], made["ReorderOutput"]) == (1, 1)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"own\.toml"):
        load_runtime(str(path))
