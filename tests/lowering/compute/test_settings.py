"""Settings of operators that the random calls of test_operators.py leave out, element types and bounds among them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import helper

from eqfuse.lowering.compute import lowerable
from eqfuse.lowering.kernels.prim_funcs import lower_kernel

from ...ir.operators.onnx_answers import random_array
from ..in_tvm import Array, Call, assert_as_onnx_runtime, in_tvm, single


def x(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return random_array(shape, dtype, seed)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


def unary(op: str, values: Any, **attributes: Any) -> Call:
    return single(op, {"x": np.asarray(values)}, **attributes)


def binary(op: str, a: Array, b: Array, **attributes: Any) -> Call:
    return single(op, {"a": a, "b": b}, **attributes)


def gemms() -> Iterator[Call]:
    for flip_a, flip_b, alpha, beta in product((0, 1), (0, 1), (1.0, 0.5), (1.0, 2.0)):
        a, b = x(3, 4) if not flip_a else x(4, 3), x(4, 5) if not flip_b else x(5, 4)
        settings = {"transA": flip_a, "transB": flip_b, "alpha": alpha, "beta": beta}
        yield single("Gemm", {"a": a, "b": b, "c": x(5)}, **settings)
        yield single("Gemm", {"a": a, "b": b}, **settings)


def convolutions() -> Iterator[Call]:
    for group, outputs in ((1, 6), (2, 6), (4, 4), (4, 8)):
        operands = {"x": x(2, 4, 7, 8), "w": x(outputs, 4 // group, 3, 2), "b": x(outputs)}
        yield single("Conv", operands, pads=[0, 1, 2, 1], strides=[2, 1], dilations=[1, 2], group=group)
        operands = {"x": x(2, 4, 5, 4), "w": x(4, outputs // group, 3, 2), "b": x(outputs)}
        windows = {"pads": [0, 1, 2, 0], "strides": [2, 3], "dilations": [2, 1], "output_padding": [1, 2]}
        yield single("ConvTranspose", operands, group=group, **windows)
    for kernel, strides, pads in (
        ((4, 3), (2, 1), (1, 0, 1, 2)),
        ((3, 3), (2, 2), (1, 1, 0, 1)),
        ((6, 5), (3, 2), (4, 3, 2, 0)),
        ((2, 2), (2, 2), (0, 0, 0, 0)),
        ((5, 4), (3, 4), (0, 3, 1, 1)),
    ):
        for group, outputs in ((1, 6), (2, 6), (4, 4)):
            operands = {"x": x(2, 4, 5, 4), "w": x(4, outputs // group, *kernel), "b": x(outputs)}
            windows = {"strides": strides, "pads": pads, "output_padding": [s - 1 for s in strides]}
            yield single("ConvTranspose", operands, group=group, **windows)
    for padding, extra in product(("SAME_UPPER", "SAME_LOWER", "VALID"), (0, 1)):
        for kernel, strides in (((2, 3), (3, 2)), ((1, 4), (2, 3))):  # a stride above the kernel, and one below
            operands = {"x": x(1, 4, 5, 4), "w": x(4, 3, *kernel)}
            more = {"output_padding": [extra, extra], "auto_pad": padding}
            yield single("ConvTranspose", operands, strides=strides, **more)
    yield single("ConvTranspose", {"x": x(1, 4, 5), "w": x(4, 3, 3)}, strides=[2], output_shape=[8])
    yield single("Conv", {"x": x(1, 3, 9, 9), "w": x(2, 3, 3, 3)}, auto_pad="SAME_LOWER", strides=[2, 2])
    yield single("Conv", {"x": x(1, 3, 9), "w": x(2, 3, 3)}, auto_pad="SAME_UPPER", strides=[2])


def pools() -> Iterator[Call]:
    for op, same in product(("AveragePool", "MaxPool"), ("SAME_UPPER", "SAME_LOWER")):
        for kernel, strides, dilations in (((3, 2), (2, 1), (2, 3)), ((2, 3), (1, 3), (2, 1))):
            windows = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
            yield unary(op, x(1, 2, 10, 9), auto_pad=same, **windows)
    for ceil_mode, padding in product((0, 1), (0, 1)):
        settings = {"kernel_shape": [3, 2], "pads": [1, 0, 0, 1], "strides": [2, 3], "ceil_mode": ceil_mode}
        yield unary("AveragePool", x(1, 2, 8, 9), count_include_pad=padding, **settings)
        yield unary("AveragePool", x(1, 2, 8, 9), count_include_pad=padding, dilations=[2, 1], **settings)
        yield unary("MaxPool", x(1, 2, 8, 9), dilations=[2, 1], **settings)
    yield unary("MaxPool", x(1, 2, 8, dtype="uint8"), kernel_shape=[3], pads=[1, 1])


def large_windows() -> Iterator[Call]:
    """Windows that reach over the whole input, or beyond its padding."""
    for op, padding in (("AveragePool", 0), ("AveragePool", 1), ("MaxPool", 0)):
        settings = {"count_include_pad": 1} if padding else {}
        yield unary(op, x(1, 2, 7, 7), kernel_shape=[90, 70], strides=[90, 70], ceil_mode=1, **settings)
        yield unary(op, x(1, 2, 5, 7), kernel_shape=[9, 7], pads=[2, 3, 2, 0], strides=[1, 3], **settings)
        yield unary(op, x(1, 2, 6, 5), kernel_shape=[4, 5], pads=[2, 4, 2, 4], strides=[2, 8], **settings)
        yield unary(op, x(1, 2, 5, 5), kernel_shape=[4, 3], pads=[3, 1, 3, 1], dilations=[3, 2], **settings)


def casts() -> Iterator[Call]:
    types = ("float32", "float64", "int32", "int64", "uint8", "bool")
    for source, target in product(types, types):
        values = np.abs(x(3, 4, dtype=source)) if target == "uint8" and source != "bool" else x(3, 4, dtype=source)
        yield unary("Cast", values, to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


def integers() -> Iterator[Call]:
    for dtype in ("int32", "int64"):
        a, b = x(3, 4, dtype=dtype), np.array([-3, -1, 2, 5], dtype)
        yield from (binary(op, a, b) for op in ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Less", "Equal"))
        yield binary("Mod", a, b, fmod=1)
        yield binary("Pow", a, np.array([0, 1, 2, 3], dtype))
        yield from (unary(op, a) for op in ("Neg", "Abs", "Sign", "Relu"))
        yield from (unary(op, a, keepdims=0) for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"))
        yield binary("MatMul", x(2, 3, dtype=dtype), x(3, 2, dtype=dtype))
        yield single("Clip", {"x": a, "low": scalar(-2, dtype), "high": scalar(3, dtype)})
        yield single("Where", {"c": x(3, 1, dtype="bool"), "a": a, "b": b})
    yield binary("BitShift", np.array([1, 9, 255], np.uint8), np.array([0, 3, 7], np.uint8), direction="RIGHT")
    yield binary("Mod", x(3, 4), x(4, seed=1), fmod=1)


def truth_values() -> Iterator[Call]:
    a, b = x(3, 4, dtype="bool"), x(4, dtype="bool", seed=1)
    yield from (binary(op, a, b) for op in ("And", "Or", "Xor", "Equal"))
    yield single("Where", {"c": b, "a": a, "b": b})
    yield single("Concat", {"a": a, "b": a}, axis=1)
    yield unary("Transpose", a)


def clips() -> Iterator[Call]:
    low, high = scalar(-0.5), scalar(0.75)
    yield single("Clip", {"x": x(4, 5), "low": low})
    yield single("Clip", {"x": x(4, 5), "low": None, "high": high})
    yield single("Clip", {"x": x(4, 5), "low": low, "high": high}, ["low", "high"])
    ends = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38], np.float32)
    yield single("Clip", {"x": ends, "low": low})
    yield single("Clip", {"x": ends, "low": None, "high": high})
    yield single("Clip", {"x": ends})


def powers() -> Iterator[Call]:
    for exponent in (1.0, 2.0, 3.0, 0.5, 0.75, -0.5, 1.7, -2.0):
        yield single("Pow", {"x": np.abs(x(4, 5)) + 0.1, "y": scalar(exponent)}, ["y"])
    yield single("Pow", {"x": x(4, 5), "y": scalar(2, "int64")}, ["y"])
    yield single("Pow", {"x": x(4, 5), "y": scalar(3, "int64")})


def layouts() -> Iterator[Call]:
    for before, after in (((2, 3, 4), (6, 4)), ((1, 6, 4), (1, 6, 2, 2)), ((2, 1, 3), (1, 3, 2, 1)), ((4, 6), (3, 8))):
        yield single("Reshape", {"x": x(*before), "shape": ints(*after)}, ["shape"])
    yield single("Reshape", {"x": x(1, 1), "shape": ints()}, ["shape"])
    for mode, pads in product(("constant", "edge", "reflect", "wrap"), ((1, 0, 2, 2), (0, -1, 1, 2), (-1, -1, -1, 0))):
        yield single("Pad", {"x": x(4, 5), "pads": ints(*pads)}, ["pads"], mode=mode)
    yield single("Pad", {"x": x(4, 5), "pads": ints(1, 1, 1, 1), "fill": scalar(3.5)}, ["pads", "fill"])
    yield single("Pad", {"x": x(4, 5), "pads": ints(0, 0, 0, 0)}, ["pads"])
    yield unary("DepthToSpace", x(2, 8, 3, 2), blocksize=2, mode="CRD")
    yield unary("DepthToSpace", x(2, 8, 3, 2), blocksize=2, mode="DCR")
    yield single("Concat", {"a": x(2, 3), "b": x(2, 1), "c": x(2, 4)}, axis=-1)
    yield unary("Split", x(2, 7), axis=1, num_outputs=3, outputs=3)
    cut = {"starts": ints(-3, 1), "ends": ints(1000, -1), "axes": ints(-1, 0), "steps": ints(2, 1)}
    yield single("Slice", {"x": x(4, 5), **cut}, list(cut))
    for upper, k in product((0, 1), (-2, 0, 3, 2**40)):
        yield single("Trilu", {"x": x(2, 4, 5), "k": scalar(k, "int64")}, ["k"] if k else [], upper=upper)
    yield unary("Trilu", np.arange(12).reshape(3, 4), upper=0)


def indices() -> Iterator[Call]:
    for dtype, axis in product(("int32", "int64"), (0, 1, -1)):
        yield single("Gather", {"x": x(3, 4, 3), "i": np.array([[0, -1], [2, -3]], dtype)}, axis=axis)
    yield single("Gather", {"x": x(3, 4), "i": scalar(-1, "int64")}, ["i"], axis=1)
    yield single("GatherND", {"x": x(3, 4, 2), "i": np.array([[0, 1], [2, -1]])})
    yield single("GatherND", {"x": x(2, 3, 4), "i": np.array([[[0]], [[-1]]])}, batch_dims=1)
    for axis in (0, -1):
        yield single("GatherElements", {"x": x(3, 4), "i": np.array([[0, -1, 2], [2, -3, 1]])}, axis=axis)


def samples() -> Iterator[Call]:
    """At places inside, on the border and outside; of maps of two and of three axes."""
    for mode, padding, aligned in product(("linear", "nearest"), ("zeros", "border"), (0, 1)):
        settings = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
        yield single("GridSample", {"x": x(2, 3, 4, 5), "grid": 1.3 * x(2, 3, 2, 2)}, **settings)
    yield single("GridSample", {"x": x(1, 2, 3, 4, 5), "grid": 1.3 * x(1, 2, 3, 2, 3)})
    corners = np.array([[[[-1, -1], [1, 1], [0, 0], [9, -9], [np.nan, np.inf]]]], np.float32)
    yield single("GridSample", {"x": x(1, 2, 4, 4), "grid": corners}, align_corners=1)


def reductions() -> Iterator[Call]:
    for op, keepdims in product(("ReduceMean", "ReduceMax", "ReduceLogSumExp"), (0, 1)):
        yield single(op, {"x": x(2, 3, 4), "axes": ints(-1, 0)}, ["axes"], keepdims=keepdims)
    yield unary("ReduceMax", np.full((2, 3), -np.inf, np.float32))
    yield unary("ReduceLogSumExp", np.array([[1000.0, 1001.0], [-1000.0, -1001.0]], np.float32))
    yield unary("ReduceMin", x(3, 4, dtype="bool"), keepdims=0)
    for exclusive, reverse, axis in product((0, 1), (0, 1), (0, -1)):
        yield single(
            "CumSum", {"x": x(3, 4), "axis": scalar(axis, "int64")}, ["axis"], exclusive=exclusive, reverse=reverse
        )


def normalisations() -> Iterator[Call]:
    image, channel = x(2, 6, 3, 4), x(6)
    for groups in (1, 2, 3, 6):
        yield single(
            "GroupNormalization", {"x": image, "s": channel, "b": x(6, seed=1)}, num_groups=groups, epsilon=1e-3
        )
    yield single("InstanceNormalization", {"x": image, "s": channel, "b": x(6, seed=1)}, epsilon=1e-2)
    yield single("LayerNormalization", {"x": image, "s": x(3, 4), "b": x(3, 4, seed=1)}, axis=2, epsilon=1e-2)
    yield single("LayerNormalization", {"x": image, "s": x(4)}, axis=-1)
    yield unary("LRN", x(1, 7, 3, 2), size=5, alpha=0.5, beta=0.75, bias=2.0)
    yield unary("LRN", x(1, 7, 3, 2), size=3, alpha=0.5, beta=0.6)
    for op, axis in product(("Softmax", "LogSoftmax", "Hardmax"), (0, 1, -1)):
        yield unary(op, x(3, 4, 5), axis=axis)
    yield unary("Hardmax", np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]], np.float32))


def further() -> Iterator[Call]:
    yield single("Sum", {"a": x(2, 3), "b": x(3), "c": x(2, 1)})
    yield unary("Dropout", x(2, 3))
    yield unary("Identity", x(2, 3))
    yield unary("Gelu", x(4, 5), approximate="tanh")
    yield from (unary(op, x(4, 5), alpha=0.3) for op in ("Elu", "Celu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid"))
    yield unary("Swish", x(4, 5), alpha=1.5)
    yield unary("Round", np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.6], np.float32))
    yield unary("IsNaN", np.array([np.nan, 1.0, np.inf], np.float32))
    yield unary("ThresholdedRelu", np.array([np.nan, np.inf, -np.inf, 0.5, 0.25], np.float32), alpha=0.25)


FAMILIES = (
    gemms, convolutions, pools, large_windows, casts, integers, truth_values, clips, powers, layouts, indices, samples,
    reductions, normalisations, further,
)  # fmt: skip


@pytest.mark.representatives(2)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_as_onnx_runtime(family: Any) -> None:
    assert_as_onnx_runtime(list(family()))


@pytest.mark.representatives(1)
@pytest.mark.parametrize("family", [clips, powers, layouts, indices], ids=lambda f: f.__name__)
def test_constants_of_one_element_written_into_the_code(family: Any) -> None:
    assert_as_onnx_runtime(list(family()), immediates=True)


@pytest.mark.parametrize("padding", [0, 1])
def test_a_window_over_everything_is_a_plain_reduction(padding: int) -> None:
    settings = {"kernel_shape": [80, 80], "strides": [80, 80], "ceil_mode": 1, "count_include_pad": padding}
    call = unary("AveragePool", x(1, 2, 7, 7), **settings)
    script = lower_kernel(call.graph, [0], "pool").prim_func.script()
    assert "_pad_" not in script
    assert "T.grid(1, 2, 1, 1, 7, 7)" in script


def test_a_window_of_any_size_takes_no_memory() -> None:
    call = unary("MaxPool", x(1, 2, 7, 7), kernel_shape=[2**40 + 7] * 2, pads=[2**39] * 4)
    assert "T.grid(1, 2, 1, 1, 7, 7)" in lower_kernel(call.graph, [0], "pool").prim_func.script()


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (unary("Det", x(3, 3)), "no lowering"),
        (unary("Relu", x(3, dtype="float16")), "float16"),
        (unary("Relu", x(0, 3)), "no elements"),
        (unary("Identity", np.array(["text"], object)), "string"),
        (unary("MaxPool", x(1, 1, 4), kernel_shape=[2], outputs=2), "form of MaxPool"),
        (binary("Mod", x(3), x(3), fmod=0), "fmod"),
        (single("CumSum", {"x": x(2, 100), "axis": scalar(1, "int64")}, ["axis"]), "a running sum of 100 elements"),
        (single("Dropout", {"x": x(3), "ratio": scalar(0.5), "training": scalar(1, "bool")}), "training"),
        (single("BitShift", {"a": x(3, dtype="uint8"), "b": x(3, dtype="uint8")}, direction="LEFT"), ""),
        (unary("Relu", x(3)), ""),
    ],
    ids=str,
)
def test_says_why_not(call: Call, reason: str) -> None:
    (operator,) = call.graph.operators
    refusal = lowerable(operator, call.graph)
    assert reason in (refusal or "")
    assert (refusal is None) == (reason == "")


def test_a_softmax_of_large_numbers_and_of_masked_ones() -> None:
    x = np.array([[1e4, 1e4 + 1, -1e4], [-np.inf, 0.0, 1.0], [-np.inf] * 3, [1e-30, -1e-30, 0.0]], np.float32)
    assert_as_onnx_runtime([single("Softmax", {"x": x}), single("LogSoftmax", {"x": x[:2]})])


def test_the_variance_of_numbers_far_from_zero() -> None:
    x = (1000 + np.random.default_rng(0).standard_normal((4, 64))).astype(np.float32)
    (outputs,) = in_tvm([single("LayerNormalization", {"x": x, "s": np.ones(64, np.float32)}, epsilon=1e-5)])
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(outputs["y0"], expected, 0, 1e-3)


def test_the_mean_of_a_large_plane_is_not_off_by_its_length() -> None:
    plane = np.full((1, 1, 160, 160), 6.1, np.float32)  # each sum rounds the same way
    mean = single("ReduceMean", {"x": plane, "axes": ints(2, 3)}, ["axes"])
    for outputs in in_tvm([mean, single("GlobalAveragePool", {"x": plane})]):
        np.testing.assert_allclose(outputs["y0"], plane[:, :, :1, :1], rtol=2e-7)
