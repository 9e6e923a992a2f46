"""Each operator of a quantised network, fed what ONNX Runtime has in front of it, gives its integers within a step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import eqfuse
from eqfuse.lowering.plan.kernel_facts import read_table

from ..onnx_runtime import outputs_of

Array = np.ndarray[Any, Any]
_BANDS, _FRAMES, _WIDTH = 12, 32, 16
ENCODER = """<ir_version: 8, opset_import: ["": 17]> encoder (float[1, 12, 32] x) => (float[1, 16, 16] y)
    <int64[4] heads = {0, 0, 2, 8}, int64[3] rows = {0, 0, 16}, float root = {1.4142135}, float one = {1},
     float half = {0.5}, float factor = {0.35355}> {
    a = Conv <kernel_shape = [3], pads = [1, 1]> (x, filters1, bias)
    b = Mul (a, half)
    c = Div (a, root)
    d = Erf (c)
    e = Add (d, one)
    f = Mul (b, e)
    g = Conv <kernel_shape = [3], pads = [1, 1], strides = [2]> (f, filters2, bias)
    h = Relu (g)
    t = Transpose <perm = [0, 2, 1]> (h)
    n = LayerNormalization <axis = -1> (t, gain, bias)
    q0 = MatMul (n, queries)
    q1 = Add (q0, bias)
    q2 = Reshape (q1, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (q2)
    k0 = MatMul (n, keys)
    k2 = Reshape (k0, heads)
    k = Transpose <perm = [0, 2, 3, 1]> (k2)
    v0 = MatMul (n, values)
    v2 = Reshape (v0, heads)
    v = Transpose <perm = [0, 2, 1, 3]> (v2)
    s0 = MatMul (q, k)
    s1 = Mul (s0, factor)
    s = Softmax <axis = -1> (s1)
    o0 = MatMul (s, v)
    o1 = Transpose <perm = [0, 2, 1, 3]> (o0)
    o2 = Reshape (o1, rows)
    o = MatMul (o2, mixing)
    r = Add (t, o)
    y = LayerNormalization <axis = -1> (r, gain, bias)
}"""
"""Convolutions along time, then attention of two heads."""


def _numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class _Sounds(CalibrationDataReader):  # type: ignore[misc]
    """Inputs that determine the scales."""

    def __init__(self) -> None:
        self._left = [_numbers(seed, 1, _BANDS, _FRAMES) for seed in range(8)]

    def get_next(self) -> dict[str, Array] | None:
        return {"x": self._left.pop()} if self._left else None


@pytest.fixture(scope="module", params=[False, True], ids=["one scale", "scales of channels"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    """The encoder as ONNX Runtime quantises it."""
    folder = tmp_path_factory.mktemp("quantised")
    encoder = onnx.parser.parse_model(ENCODER)
    shapes = {"filters1": (_WIDTH, _BANDS, 3), "filters2": (_WIDTH, _WIDTH, 3), "bias": (_WIDTH,), "gain": (_WIDTH,)}
    shapes |= dict.fromkeys(("queries", "keys", "values", "mixing"), (_WIDTH, _WIDTH))
    for seed, (name, shape) in enumerate(shapes.items()):
        array = _numbers(seed, *shape) / np.sqrt(np.prod(shape[1:]), dtype=np.float32)
        encoder.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(onnx.shape_inference.infer_shapes(encoder), folder / "float.onnx")
    logging.disable(logging.WARNING)  # it wishes for preprocessing
    quantize_static(
        folder / "float.onnx", folder / "quantised.onnx", _Sounds(), quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=request.param,
    )  # fmt: skip
    logging.disable(logging.NOTSET)
    return onnx.load(folder / "quantised.onnx")


def _quantisers(model: onnx.ModelProto) -> list[str]:
    """What its QuantizeLinear make."""
    return [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]


def _with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """The model with these values of uint8, of any shape, as its outputs."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.output[:]
    ports = (helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, None) for name in names)
    changed.graph.output.extend(ports)
    return changed


def _port(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, int(helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)


def _taken_apart(model: onnx.ModelProto, rounded: dict[str, Array]) -> onnx.ModelProto:
    """All rounded values are outputs, and operators read inputs in their place."""
    changed = _with_outputs(model, rounded)
    for node in changed.graph.node:
        node.input[:] = [f"{name}.given" if name in rounded else name for name in node.input]
    changed.graph.input.extend(_port(f"{name}.given", array) for name, array in rounded.items())
    return changed


def _optimised(model: onnx.ModelProto, feeds: dict[str, Array], folder: Path) -> dict[str, Array]:
    result = eqfuse.optimize(model, verify=False)
    names = [port.name for port in model.graph.output]
    return dict(zip(names, outputs_of(result, feeds, as_written=True), strict=True))


def _compiled(model: onnx.ModelProto, feeds: dict[str, Array], folder: Path) -> dict[str, Array]:
    onnx.save(model, folder / "apart.onnx")
    eqfuse.compile(folder / "apart.onnx", folder / "build", threads=1, verify=False, measure=False)
    loaded = eqfuse.load(folder / "build")
    assert not loaded.manifest.fallbacks
    return dict(loaded.run(feeds))


@pytest.mark.parametrize("run", [pytest.param(_compiled, marks=pytest.mark.conformance), _optimised])
def test_each_operator_is_within_a_step(
    run: Callable[..., dict[str, Array]], network: onnx.ModelProto, tmp_path: Path
) -> None:
    sound = {"x": _numbers(99, 1, _BANDS, _FRAMES)}
    names = _quantisers(network)
    found = outputs_of(_with_outputs(network, names), sound, as_written=True)
    rounded = dict(zip(names, found, strict=True))
    assert sum(len(np.unique(array)) > 2 for array in found) > 20
    feeds = sound | {f"{name}.given": array for name, array in rounded.items()}
    results = run(_taken_apart(network, rounded), feeds, tmp_path)
    off = {name: int(np.abs(results[name].astype(int) - array).max()) for name, array in rounded.items()}
    assert {name: steps for name, steps in off.items() if steps > 1} == {}


def test_a_small_model_may_store_what_its_integers_need(tmp_path: Path) -> None:
    """Sums of 32 bits for the zero point of a product, and depthwise weights as floats: 8 KB beside 12 KB of bytes."""
    source = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]> net (uint8[1, 96, 5, 5] x, uint8 zero)
            => (float[1, 96, 5, 5] y, float[1, 96, 5, 5] z) {
            a = ConvInteger <kernel_shape = [1, 1]> (x, dense, zero)
            b = ConvInteger <kernel_shape = [5, 5], pads = [2, 2, 2, 2], group = 96> (x, depthwise, zero)
            y = Cast <to = 1> (a)
            z = Cast <to = 1> (b)
        }""")  # fmt: skip
    generator = np.random.default_rng(0)
    for name, shape in (("dense", (96, 96, 1, 1)), ("depthwise", (96, 1, 5, 5))):
        weights = generator.integers(-128, 128, shape).astype(np.int8)
        source.graph.initializer.append(numpy_helper.from_array(weights, name))
    onnx.save(source, tmp_path / "net.onnx")
    eqfuse.compile(tmp_path / "net.onnx", tmp_path / "build", threads=1, measure=False)
    kernels = [kernel.operators for kernel in read_table(tmp_path / "build")]
    assert any({"ConvInteger", "Sub"} <= set(operators) for operators in kernels)
    assert any("Conv" in operators for operators in kernels)
