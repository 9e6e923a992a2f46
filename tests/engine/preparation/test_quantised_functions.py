"""Operators on quantised tensors, taken apart, give what ONNX Runtime's own kernels give: products to the last bit,
others within a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_ir import serde

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.engine.onnx.runtime_values import open_session
from eqfuse.engine.preparation.schema_functions import expand_operators, list_expandable
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.annotations.local_functions import inline_functions

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)


def integers(*shape: int, dtype: str = "uint8") -> Array:
    ends = np.iinfo(dtype)
    return RANDOM.integers(ends.min, ends.max, shape, endpoint=True).astype(dtype)


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def scale(value: float = 0.02, *shape: int) -> Array:
    return np.asarray(value * RANDOM.uniform(0.5, 1, shape), np.float32)


def zero(value: int = 0, dtype: str = "uint8", *shape: int) -> Array:
    return np.full(shape, value, dtype)


@dataclass(frozen=True)
class Call:
    """An operator; the first of its operands, and those of `fed`, are inputs, all others constants."""

    op: str
    operands: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = "com.microsoft"
    fed: tuple[int, ...] = (0,)
    outputs: int = 1
    steps: int = 1
    opset: int = 17

    def model(self) -> onnx.ModelProto:
        names = ["" if operand is None else f"x{i}" for i, operand in enumerate(self.operands)]
        given = {name: operand for name, operand in zip(names, self.operands, strict=True) if operand is not None}
        fed = {f"x{place}" for place in self.fed}
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()
            if name in fed
        ]
        constants = [numpy_helper.from_array(array, name) for name, array in given.items() if name not in fed]
        outputs = [f"y{number}" for number in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, domain=self.domain, **self.attributes)
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph([node], "one", ports, results, constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(self) -> dict[str, Any]:
        return {f"x{place}": self.operands[place] for place in self.fed}


POINTWISE = integers(1, 6, 5, 5), scale(), zero(120)
FILTERS = integers(4, 6, 3, 3, dtype="int8"), scale(0.01, 4), zero(0, "int8", 4)
ROWS = integers(3, 8), scale(), zero(100)
COLUMNS = integers(8, 5, dtype="int8"), scale(0.01, 5), zero(0, "int8", 5)
RESULT = scale(0.1), zero(130)
BIAS = RANDOM.integers(-20_000, 20_000, 5).astype(np.int32)
TIED = integers(1, 6, 5, 5, dtype="int8"), np.float32(0.5), zero(3, "int8")
HALVED = np.float32(1.0), zero(7, "int8")
"""Every other sum is halfway between two integers; the zero point is odd."""
WINDOW = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}
PRODUCTS = [
    Call("QLinearConv", (*POINTWISE, *FILTERS, *RESULT), domain="", steps=0),
    Call("QLinearConv", (*POINTWISE, *FILTERS, *RESULT, BIAS[:4]), {"pads": [1] * 4}, "", steps=0),
    Call("QLinearConv", (*POINTWISE, integers(6, 1, 3, 3), scale(), zero(128), *RESULT), {"group": 6}, "", steps=0),
    Call("QLinearMatMul", (*ROWS, *COLUMNS, *RESULT), domain="", steps=0),
    Call("QLinearMatMul", (*ROWS, integers(8, 5), scale(), zero(7), *RESULT), domain="", fed=(0, 3), steps=0),
    Call("QGemm", (*ROWS, *COLUMNS, BIAS, *RESULT), steps=0),
    Call("QGemm", (*ROWS, *COLUMNS, None, None, None), {"alpha": 0.5}, steps=0),
    Call("QGemm", (ROWS[0], *ROWS[1:], integers(5, 8, dtype="int8"), scale(0.01), zero(3, "int8"), None, *RESULT),
         {"transB": 1}, steps=0),
    Call("MatMulIntegerToFloat", (ROWS[0], COLUMNS[0], scale(), COLUMNS[1], zero(9), None, floats(5)), steps=0),
    Call("MatMulIntegerToFloat", (ROWS[0], COLUMNS[0], scale(), scale(), zero(9), zero(2, "int8")), steps=0),
    Call("DynamicQuantizeMatMul", (floats(3, 8), COLUMNS[0], COLUMNS[1]), steps=0),
    Call("DynamicQuantizeMatMul", (floats(3, 8), COLUMNS[0], scale(), zero(-4, "int8"), floats(5)), steps=0),
    Call("QLinearMatMul", (*ROWS, *COLUMNS, *RESULT), domain="", steps=0, opset=12),
    Call("QLinearConv", (*POINTWISE, *FILTERS, *RESULT, BIAS[:4]), {"pads": [1] * 4}, "", steps=0, opset=10),
    Call("MatMulNBits", (floats(3, 40), integers(5, 3, 8), scale(0.01, 5, 3)),
         {"K": 40, "N": 5, "bits": 4, "block_size": 16}),
    Call("MatMulNBits", (floats(2, 3, 32), integers(5, 1, 16), scale(0.01, 5, 1), integers(5, 1)),
         {"K": 32, "N": 5, "bits": 4, "block_size": 32}),
]  # fmt: skip
OTHERS = [
    Call("QLinearAdd", (*POINTWISE, *POINTWISE, *RESULT)),
    Call("QLinearAdd", (*POINTWISE, integers(6, 1, 1), scale(), zero(5), *RESULT)),
    Call("QLinearMul", (*POINTWISE, *POINTWISE, *RESULT)),
    Call("QLinearAdd", (*TIED, *TIED, *HALVED), steps=0),
    Call("QLinearMul", (*TIED, *TIED, *HALVED), steps=0),
    Call("QLinearAveragePool", (*TIED, *HALVED), WINDOW, steps=0),
    Call("QLinearSigmoid", (*POINTWISE, scale(1 / 255), zero())),
    Call("QLinearLeakyRelu", (*POINTWISE, *RESULT), {"alpha": 0.1}),
    Call("QLinearAveragePool", (*POINTWISE, *RESULT), WINDOW),
    Call("QLinearGlobalAveragePool", (*POINTWISE, *RESULT)),
    Call("QLinearSoftmax", (*ROWS, scale(1 / 255), zero()), {"axis": -1, "opset": 17}),
    Call("QLinearSoftmax", (*POINTWISE, scale(1 / 255), zero()), {"axis": 1, "opset": 13}),
    Call("QLinearConcat", (*RESULT, *POINTWISE, integers(1, 2, 5, 5), scale(), zero(3)), {"axis": 1}, fed=(2, 5)),
    Call("QLinearWhere", (integers(6, 5, 1) > 128, *POINTWISE, integers(5), scale(), zero(9), *RESULT)),
    Call(
        "QAttention",
        (integers(2, 3, 8), integers(8, 24, dtype="int8"), floats(24), scale(), scale(0.01), None, zero(120)),
        {"num_heads": 2},
        steps=0,
    ),
    Call(
        "QAttention",
        (
            integers(2, 3, 8), integers(8, 24, dtype="int8"), floats(24), scale(), scale(0.01), None, zero(120), None,
            floats(2, 2, 2, 4, 4),
        ),
        {"num_heads": 2, "unidirectional": 1},
        fed=(0, 8),
        outputs=2,
        steps=0,
    ),
    Call(
        "QAttention",
        (
            integers(2, 3, 8),
            integers(8, 24, dtype="int8"),
            floats(24),
            scale(),
            scale(0.01),
            np.array([[1, 1, 0], [1, 1, 1]], np.int32),
            zero(120),
            zero(3, "int8"),
        ),
        {"num_heads": 4},
    ),
    Call("QuantizeLinear", (floats(3, 8), scale(0.0001), zero(30000, "uint16")), steps=0),
    Call("DequantizeLinear", (integers(3, 8, dtype="int16"), scale(), zero(-7, "int16")), steps=0),
    Call("QuantizeLinear", (floats(3, 8), scale(), zero(100)), steps=0),
    Call("DequantizeLinear", ROWS, steps=0),
    Call("DynamicQuantizeLinear", (floats(3, 8),), domain="", outputs=3, steps=0),
    Call("DynamicQuantizeLinear", (np.abs(floats(3, 8)) + 1,), domain="", outputs=3, steps=0),
    Call("DynamicQuantizeLinear", (np.zeros((3, 8), np.float32),), domain="", outputs=3, steps=0),
]


def recurrence(directions: int, batch: int, parts: str = "", columns: int | None = None, **attributes: Any) -> Call:
    """An LSTM of ONNX Runtime's dynamic quantisation; `parts` has what it is given: b(ias), h and c, l(engths)."""
    units = 6
    scales = (directions,) if columns is None else (directions, columns)
    shape = (directions, batch, units)
    weights = (integers(directions, each, 4 * units) for each in (5, units))
    operands = (
        floats(7, batch, 5),
        *weights,
        floats(directions, 8 * units) if "b" in parts else None,
        np.full(batch, 5, np.int32) if "l" in parts else None,
        floats(*shape) * 0.3 if "h" in parts else None,
        floats(*shape) if "c" in parts else None,
        None,
        *(scale(0.008, *scales), zero(128, "uint8", *scales)) * 2,
    )
    way = "bidirectional" if directions > 1 else "forward"
    settings = {"direction": way, "hidden_size": units} | attributes
    return Call("DynamicQuantizeLSTM", operands, settings, outputs=3)


RECURRENT = [
    recurrence(1, 1),
    recurrence(1, 3, "b"),
    recurrence(1, 1, "hc", direction="reverse"),
    recurrence(2, 2, "bhc"),
    recurrence(2, 1, "b", columns=24),
    recurrence(1, 2, "b", activations=["Sigmoid", "Tanh", "Tanh"]),
]


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Array]:
    return list(open_session(model).run(None, feeds))


def with_types(model: onnx.ModelProto, results: list[Array]) -> onnx.ModelProto:
    """The model with the types of its results."""
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    for port, array in zip(typed.graph.output, results, strict=True):
        element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        port.CopyFrom(helper.make_tensor_value_info(port.name, element_type, array.shape))
    return typed


def run_taken_apart(call: Call) -> list[tuple[Array, Array]]:
    """Each result of the operator's parts, beside that of its kernel, of the same type and shape."""
    whole = call.model()
    expected = run(whole, call.feeds())
    model = read(with_types(whole, expected))
    assert list_expandable(model)
    model = inline_functions(expand_operators(model, infer(model).types))
    assert not list_expandable(model)
    assert any(len(np.unique(array)) > 2 for array in expected) or not np.any(call.operands[0])
    pairs = list(zip(run(serde.serialize_model(model.ir), call.feeds()), expected, strict=True))
    assert all((found.dtype, found.shape) == (wanted.dtype, wanted.shape) for found, wanted in pairs)
    return pairs


@pytest.mark.parametrize("call", [*PRODUCTS, *OTHERS, *RECURRENT], ids=lambda call: call.op)
def test_the_parts_give_what_the_kernel_gives(call: Call) -> None:
    for found, wanted in run_taken_apart(call):
        if found.dtype == np.float32:
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
        else:
            assert np.abs(found.astype(int) - wanted.astype(int)).max(initial=0) <= call.steps


FINE_FILTERS = FILTERS[0] // 2, *FILTERS[1:]
"""Filters no two neighbours of which add up to more than 128: the kernel does not saturate on any processor."""


@pytest.mark.parametrize(("largest", "added"), [(20_000, "float32"), (1 << 24, "int32")])
def test_a_bias_is_added_to_numbers_if_float32_holds_all_sums(largest: int, added: str) -> None:
    bias = np.array([largest, -largest, 17, 0], np.int32)
    call = Call("QLinearConv", (*POINTWISE, *FINE_FILTERS, scale(0.1 * largest / 1000), zero(130), bias), domain="")
    whole = call.model()
    expected = run(whole, call.feeds())
    model = read(with_types(whole, expected))
    model = inline_functions(expand_operators(model, infer(model).types))
    (addition,) = [node for node in model.graph if node.op_type == "Add"]
    types = infer(model).types
    assert {types[str(value.name)].dtype for value in addition.inputs if value is not None} == {added}
    np.testing.assert_array_equal(run(serde.serialize_model(model.ir), call.feeds())[0], expected[0])


@pytest.mark.parametrize(
    "call",
    [
        Call("QLinearGlobalAveragePool", (*POINTWISE, *RESULT), {"channels_last": 1}),
        Call("QLinearSoftmax", (*POINTWISE, scale(1 / 255), zero()), {"axis": 1, "opset": 12}),
        Call("QuantizeLinear", (floats(3, 8), scale(), None)),
        Call(
            "MatMulNBits",
            (floats(3, 32), integers(5, 1, 16), scale(0.01, 5, 1)),
            {"K": 32, "N": 5, "bits": 4, "block_size": 32},
            fed=(0, 1),
        ),
        recurrence(1, 2, "l"),
        recurrence(1, 2, activations=["Sigmoid", "Relu", "Tanh"]),
    ],
    ids=lambda call: call.op,
)
def test_other_forms_stay(call: Call) -> None:
    whole = call.model()
    model = read(with_types(whole, run(whole, call.feeds())))
    assert [node.op_type for node in expand_operators(model, infer(model).types).ir.graph] == [call.op]


@pytest.mark.conformance
@pytest.mark.parametrize("call", RECURRENT, ids=lambda call: call.attributes["direction"])
def test_recurrences_compile_without_the_runtime(call: Call, tmp_path: Path) -> None:
    whole = call.model()
    expected = run(whole, call.feeds())
    onnx.save(with_types(whole, expected), tmp_path / "one.onnx")
    eqfuse.compile(tmp_path / "one.onnx", tmp_path / "build", threads=1, verify=False, measure=False)
    model = eqfuse.load(tmp_path / "build")
    assert not model.manifest.fallbacks
    for name, wanted in zip(("y0", "y1", "y2"), expected, strict=True):
        np.testing.assert_allclose(model.run(call.feeds())[name], wanted, rtol=1e-5, atol=1e-5)
