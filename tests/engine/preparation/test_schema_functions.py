"""Operators that ONNX defines by others compute the same once they are taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_ir import serde

from eqfuse.engine.onnx.model import read
from eqfuse.engine.preparation.schema_functions import expand_operators, list_expandable
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.annotations.local_functions import inline_functions


def model_of(operator: str, opset: int, inputs: list[np.ndarray[Any, Any]], **attributes: Any) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info(f"x{n}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for n, array in enumerate(inputs)
    ]
    node = helper.make_node(operator, [port.name for port in ports], ["y"], **attributes)
    graph = helper.make_graph([node], "one", ports, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("operator", "opset", "inputs", "attributes"),
    [
        ("Clip", 9, [X], {"min": -0.5, "max": 0.25}),
        ("Clip", 9, [X], {"max": 0.5}),
        ("MeanVarianceNormalization", 13, [X[None]], {"axes": [1, 2]}),
        ("MeanVarianceNormalization", 13, [X[None]], {}),
        ("NegativeLogLikelihoodLoss", 13, [X[..., 0], np.array([2, 0])], {"reduction": "sum"}),
        ("SoftmaxCrossEntropyLoss", 13, [X[..., 0], np.array([1, 2])], {}),
        ("Shrink", 18, [X], {"lambd": 0.4, "bias": 0.2}),
        ("CenterCropPad", 18, [X, np.array([5, 2])], {"axes": [1, 2]}),
        ("CenterCropPad", 21, [X, np.array([1, 6])], {"axes": [0, 2]}),
        ("CastLike", 19, [X, np.zeros(1, np.int64)], {}),
    ],
)
def test_the_parts_compute_the_same(operator: str, opset: int, inputs: Any, attributes: Any) -> None:
    proto = model_of(operator, opset, inputs, **attributes)
    model = read(proto)
    while list_expandable(model):
        model = inline_functions(expand_operators(model, infer(model).types))
    feeds = {port.name: array for port, array in zip(proto.graph.input, inputs, strict=True)}
    parts = ReferenceEvaluator(serde.serialize_model(model.ir)).run(None, feeds)
    whole = ReferenceEvaluator(proto).run(None, feeds)
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", ["23", "34"]),
        ("bhls,bshp->blhp", ["2345", "2536"]),
        ("bln,bsn,bhls,bshp->blhp", ["245", "265", "2346", "2637"]),
        ("bhkn,bkv->bhvn", ["2345", "246"]),
        ("bik,bjk->bij", ["234", "254"]),
        ("ijk,ilm->jklm", ["234", "256"]),
        ("ijk,kjl", ["234", "436"]),
        ("...ij,jk->...ik", ["2534", "42"]),
        ("...i,i->...", ["234", "4"]),
        ("i,j->ij", ["3", "4"]),
        ("bi,bj->bij", ["23", "25"]),
        ("ab,abc->ac", ["23", "234"]),
        ("btd,edh->bteh", ["234", "546"]),
        ("xay,aby->bxya", ["234", "354"]),
        ("ijk->ki", ["234"]),
        ("ij->", ["23"]),
        (",", ["", ""]),
        (",i->i", ["", "3"]),
    ],
)
@pytest.mark.parametrize("free", ["known sizes", "a free batch", "free sizes"])
def test_an_einsum_is_products(equation: str, shapes: list[str], free: str) -> None:
    arrays = [np.random.default_rng(n).standard_normal(tuple(map(int, s))) for n, s in enumerate(shapes)]
    proto = model_of("Einsum", 18, arrays, equation=equation)
    for port, letters in zip(proto.graph.input, equation.split(","), strict=True):
        dimensions = port.type.tensor_type.shape.dim
        if free == "a free batch" and dimensions and letters[0] == equation[0]:
            dimensions[0].dim_param = "n"
        for dimension in dimensions if free == "free sizes" else ():
            dimension.dim_param = f"n{dimension.dim_value}"
    model = read(proto)
    expanded = inline_functions(expand_operators(model, infer(model).types))
    assert all(node.op_type != "Einsum" for node in expanded.ir.graph)
    feeds = {port.name: array for port, array in zip(proto.graph.input, arrays, strict=True)}
    (computed,) = ReferenceEvaluator(serde.serialize_model(expanded.ir)).run(None, feeds)
    np.testing.assert_allclose(computed, np.einsum(equation, *arrays), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("equation", "shapes"), [("ii->i", ["33"]), ("ij,jk->ik", ["21", "34"])])
def test_diagonals_and_broadcast_letters_stay_an_einsum(equation: str, shapes: list[str]) -> None:
    arrays = [np.ones(tuple(map(int, shape))) for shape in shapes]
    model = read(model_of("Einsum", 18, arrays, equation=equation))
    assert [node.op_type for node in expand_operators(model, infer(model).types).ir.graph] == ["Einsum"]


@pytest.mark.parametrize("has_parts", [True, False])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(
    ("count", "window", "frames"), [(6, 6, "L//3 - 1"), (7, 5, "(L + 2)//3 - 2"), (None, 8, "(L + 1)//3 - 2")]
)
def test_a_short_time_fourier_transform_is_a_convolution(
    count: int | None, window: int, frames: str, onesided: int, has_parts: bool
) -> None:
    """A real signal as ONNX has it, and without its last axis, as PyTorch writes it and ONNX Runtime takes it."""
    signal, shape = np.random.default_rng(0).standard_normal((2, 25, 1)).astype(np.float32), np.hanning(window + 2)
    stored: dict[str, Any] = {"step": np.int64(3), "window": shape[1:-1].astype(np.float32)}
    stored |= {} if count is None else {"count": np.int64(count)}
    node = helper.make_node("STFT", ["x", *stored], ["y"], onesided=onesided)
    taken, given = (["B", "L", 1], signal) if has_parts else (["B", "L"], signal[..., 0])
    ports = [helper.make_tensor_value_info("x", 1, taken)], [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph([node], "stft", *ports, [numpy_helper.from_array(a, n) for n, a in stored.items()])
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    types = infer(model).types
    expanded = inline_functions(expand_operators(model, types))
    assert all(node.op_type != "STFT" for node in expanded.ir.graph)
    (computed,) = ReferenceEvaluator(serde.serialize_model(expanded.ir)).run(None, {"x": given})
    length = count or window
    weights = np.pad(stored["window"], (0, length - window))
    parts = np.stack([signal[:, at : at + length, 0] * weights for at in range(0, 26 - length, 3)], 1)
    wanted = (np.fft.rfft if onesided else np.fft.fft)(parts)
    np.testing.assert_allclose(computed, np.stack([wanted.real, wanted.imag], -1), rtol=1e-4, atol=1e-5)
    assert types["y"].shape == ("B", frames, length // 2 + 1 if onesided else length, 2)


@pytest.mark.parametrize(
    ("shape", "axis", "count", "onesided", "inverse", "opset"),
    [
        ((2, 6, 1), 1, None, 0, 0, 17), ((2, 7, 2), 1, None, 0, 1, 17), ((2, 3, 5, 2), 1, 4, 0, 0, 20),
        ((2, 5, 1), -2, 8, 1, 0, 20), ((2, 3, 300, 1), 2, None, 1, 0, 20), ((2, 272, 3, 2), 1, None, 0, 1, 17),
    ],
)  # fmt: skip
def test_a_fourier_transform_is_products(
    shape: tuple[int, ...], axis: int, count: int | None, onesided: int, inverse: int, opset: int
) -> None:
    """Of few elements one product, of 300 and 272 two; padded, halved and backwards."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    stored: dict[str, Any] = {} if count is None else {"count": np.int64(count)}
    stored |= {"axis": np.int64(axis)} if opset >= 20 else {}
    names = ["x", "" if count is None else "count", *(["axis"] if opset >= 20 else [])]
    attributes = {"onesided": onesided, "inverse": inverse} | ({} if opset >= 20 else {"axis": axis})
    node = helper.make_node("DFT", names, ["y"], **attributes)
    ports = [helper.make_tensor_value_info("x", 1, ["B", *shape[1:]])], [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph([node], "dft", *ports, [numpy_helper.from_array(a, n) for n, a in stored.items()])
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))
    expanded = inline_functions(expand_operators(model, infer(model).types))
    assert all(node.op_type != "DFT" for node in expanded.ir.graph)
    (computed,) = ReferenceEvaluator(serde.serialize_model(expanded.ir)).run(None, {"x": x})
    signal = x[..., 0] + (1j * x[..., 1] if shape[-1] == 2 else 0)
    place = axis + len(shape) if axis < 0 else axis
    transform = np.fft.ifft if inverse else np.fft.fft
    wanted = transform(signal, count, axis=place)
    wanted = wanted.take(range(wanted.shape[place] // 2 + 1), place) if onesided else wanted
    np.testing.assert_allclose(computed, np.stack([wanted.real, wanted.imag], -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("operator", ["Relu", "Softmax", "Range"])
def test_operators_of_the_table_and_loops_stay(operator: str) -> None:
    inputs = [np.float32(n) for n in range(3)] if operator == "Range" else [X]
    assert list_expandable(read(model_of(operator, 18, list(map(np.asarray, inputs))))) == []
