"""Plain loops give what ONNX Runtime gives, on inputs that are awkward: ties, NaN, nothing, negative places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from eqfuse.engine.onnx.exact_products import make_products_exact
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.loops.program import node_types

from .in_c import Array, InC, LoopError

CLASSICAL = "ai.onnx.ml"
Draw = Callable[[np.random.Generator], Sequence[Any]]


@dataclass(frozen=True)
class Loop:
    """A node, and what draws its inputs; all of them may have any shape."""

    operator: str
    draw: Draw
    attributes: Mapping[str, Any]
    outputs: int = 1
    opset: int = 18
    domain: str = ""

    @property
    def model(self) -> onnx.ModelProto:
        arrays = self.draw(np.random.default_rng(0))
        inputs = [_port(f"x{i}", a) for i, a in enumerate(arrays)]
        outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(self.outputs)]
        node = helper.make_node(
            self.operator, [i.name for i in inputs], [o.name for o in outputs], domain=self.domain, **self.attributes
        )
        graph = helper.make_graph([node], "loop", inputs, outputs)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CLASSICAL, 3)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def _port(name: str, array: Array) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, [f"{name}_{axis}" for axis in range(array.ndim)])


def shape(random: np.random.Generator, rank: int, least: int = 0) -> list[int]:
    """Mostly small sizes, now and then 0 or 1."""
    return [int(random.choice([max(least, 0), max(least, 1), 2, 3, 5])) for _ in range(rank)]


def floats(random: np.random.Generator, sizes: Sequence[int], special: bool = True) -> Array:
    """Whole and halves, so that there are ties; zeros of both signs, infinities and perhaps NaN."""
    values = random.integers(-4, 5, sizes) / 2
    if special:
        odd = random.choice([np.inf, -np.inf, -0.0, np.nan], sizes)
        values = np.where(random.random(sizes) < 0.15, odd, values)
    return np.asarray(values, np.float32)


def integers(random: np.random.Generator, low: int, high: int, sizes: Sequence[int] | int) -> Array:
    return np.asarray(random.integers(low, high, sizes), np.int64)


def top_k(random: np.random.Generator) -> Sequence[Any]:
    x = floats(random, shape(random, 3), special=False)
    return x, integers(random, 0, x.shape[1] + 1, [1])


def ranked(rank: int, special: bool = True, least: int = 0) -> Draw:
    return lambda random: (floats(random, shape(random, rank, least), special),)


def slices(random: np.random.Generator) -> Sequence[Any]:
    bounds = [-(2**63), -7, -2, -1, 0, 1, 2, 4, 9, 2**63 - 1]
    starts, ends = (np.asarray(random.choice(bounds, 2), np.int64) for _ in range(2))
    steps = np.asarray(random.choice([-3, -2, -1, 1, 2, 4], 2), np.int64)
    return floats(random, shape(random, 3)), starts, ends, np.asarray([-1, 0]), steps


def gathered(random: np.random.Generator) -> Sequence[Any]:
    x = floats(random, shape(random, 3, 1))
    return x, integers(random, -x.shape[1], x.shape[1], shape(random, 2))


def elements(random: np.random.Generator) -> Sequence[Any]:
    x = floats(random, shape(random, 2, 1), special=False)
    sizes = [int(random.integers(0, x.shape[0] + 1)), int(random.integers(0, 4))]
    return x, integers(random, -x.shape[1], x.shape[1], sizes)


def scattered(random: np.random.Generator) -> Sequence[Any]:
    x, places = elements(random)
    return x, places, floats(random, places.shape, special=False)


def gathered_nd(random: np.random.Generator) -> Sequence[Any]:
    x = floats(random, shape(random, 3, 1))
    count = shape(random, 2)
    return x, np.stack([integers(random, -d, d, count) for d in x.shape[:2]], axis=-1)


def scattered_nd(random: np.random.Generator) -> Sequence[Any]:
    x, places = gathered_nd(random)
    return np.nan_to_num(x), places, floats(random, (*places.shape[:-1], x.shape[2]), special=False)


def padded(random: np.random.Generator) -> Sequence[Any]:
    x = floats(random, shape(random, 2, 3))
    return x, integers(random, -1, 3, 4), np.float32(random.integers(-3, 4))


def pair(dtype: str, low: int = -6) -> Draw:
    def draw(random: np.random.Generator) -> Sequence[Any]:
        right = random.integers(low, 7, shape(random, 1)).astype(dtype)
        left = random.integers(-9, 9, (3, right.shape[0])).astype(dtype)
        return left, np.where(right == 0, np.asarray(4, dtype), right)

    return draw


def boxes(random: np.random.Generator) -> Sequence[Any]:
    count = int(random.integers(1, 9))
    corners = np.asarray(random.integers(0, 6, (2, count, 4)), np.float32)
    scores = np.asarray(random.permutation(2 * 3 * count).reshape(2, 3, count) / (6 * count), np.float32)
    most, overlap = integers(random, 0, 5, [1]), np.asarray([random.choice([0.0, 0.3, 0.7])], np.float32)
    return corners, scores, most, overlap, np.asarray([random.choice([0.1, 0.5])], np.float32)


def compressed(random: np.random.Generator) -> Sequence[Any]:
    x = floats(random, shape(random, 2, 1))
    return x, random.random(int(random.integers(0, x.shape[1] + 1))) < 0.5


def one_hot(random: np.random.Generator) -> Sequence[Any]:
    return integers(random, -7, 7, shape(random, 2)), np.int64(random.integers(1, 6)), floats(random, [2])


def sequences(random: np.random.Generator) -> Sequence[Any]:
    x = floats(random, shape(random, 3, 1))
    return x, integers(random, 1, x.shape[0] + 1, x.shape[1])


def axes_of(count: int) -> Draw:
    def draw(random: np.random.Generator) -> Sequence[Any]:
        return floats(random, shape(random, 3, 1), special=False), np.asarray([-1, 0][:count], np.int64)

    return draw


def gemm_operands(transposed_a: int, transposed_b: int) -> Draw:
    def draw(random: np.random.Generator) -> Sequence[Any]:
        a, b = [70, 9][:: 1 if transposed_a else -1], [41, 70][:: 1 if transposed_b else -1]
        return floats(random, a, False), floats(random, b, False), floats(random, [41], False)

    return draw


def only_window(random: np.random.Generator) -> Sequence[Any]:
    return (floats(random, [2, 3, *random.integers(2, 8, 2)], special=False),)


def ranges(random: np.random.Generator) -> Sequence[Any]:
    return tuple(np.float32(v) for v in (random.integers(-5, 5), random.integers(-5, 5), random.choice([-1.5, 0.5, 2])))


def image_of_bytes(width: float) -> Draw:
    """An image, no region, and the scales of its sides."""
    scales = np.float32([1, 1, 0.8, width])
    return lambda r: (integers(r, 0, 256, [1, 8, 20, 30]).astype("uint8"), np.float32([]), scales)


def some_rows(random: np.random.Generator) -> Sequence[Any]:
    return (floats(random, [int(random.integers(1, 4)), 3], special=False),)


def recurrence(
    gates: int, directions: int = 1, states: int = 1, *, lengths: bool = False, peepholes: bool = False
) -> Draw:
    """Inputs of a recurrence of 3 hidden units over rows of 2 numbers."""

    def inputs(random: np.random.Generator) -> Sequence[Any]:
        steps, batch = int(random.integers(1, 5)), int(random.integers(1, 4))
        weights = [[directions, gates * 3, 2], [directions, gates * 3, 3], [directions, 2 * gates * 3]]
        arrays = [floats(random, each, False) for each in ([steps, batch, 2], *weights)]
        arrays.append(random.integers(1 if lengths else steps, steps + 1, batch).astype(np.int32))
        arrays += [floats(random, [directions, batch, 3], False) for _ in range(states)]
        return [*arrays, floats(random, [directions, 9], False)] if peepholes else arrays

    return inputs


LOOPS = {
    "TopK": Loop("TopK", top_k, {"axis": -2}, outputs=2),
    "TopK of many": Loop("TopK", lambda r: (floats(r, [2, 300]), np.array([200])), {}, outputs=2),
    "TopK of many ties": Loop("TopK", lambda r: (floats(r, [900], False), np.array([150])), {"largest": 0}, outputs=2),
    "TopK of few ties": Loop("TopK", lambda r: (floats(r, [90, 3], False), np.array([7])), {"axis": 0}, outputs=2),
    "TopK of rising numbers": Loop("TopK", lambda r: (np.float32(range(900)), np.array([100])), {}, outputs=2),
    "TopK of long numbers": Loop("TopK", lambda r: (floats(r, [700]).astype(float), np.array([9])), {"largest": 0}, 2),
    "TopK of integers": Loop("TopK", lambda r: (integers(r, -90, 90, [3, 400]), np.array([30])), {}, outputs=2),
    "TopK of the smallest": Loop("TopK", top_k, {"axis": 1, "largest": 0}, outputs=2),
    "ArgMax": Loop("ArgMax", ranked(3, special=False, least=1), {"axis": -2}),
    "ArgMin, last": Loop("ArgMin", ranked(3, False, 1), {"axis": 1, "keepdims": 0, "select_last_index": 1}),
    "ArgMax that keeps by 2": Loop("ArgMax", ranked(3, special=False, least=1), {"axis": 0, "keepdims": 2}),
    "NonZero": Loop("NonZero", ranked(3), {}),
    "Unique": Loop("Unique", ranked(2, special=False, least=1), {}, outputs=4),
    "Unique along an axis": Loop("Unique", ranked(2, special=False, least=1), {"axis": -1}, outputs=4),
    "Unique, first come": Loop("Unique", ranked(2, special=False, least=1), {"sorted": 0}, outputs=4),
    "Slice": Loop("Slice", slices, {}),
    "Gather": Loop("Gather", gathered, {"axis": -2}),
    "GatherElements": Loop("GatherElements", elements, {"axis": 1}),
    "GatherND": Loop("GatherND", gathered_nd, {}),
    "ScatterElements": Loop("ScatterElements", scattered, {"axis": -1, "reduction": "add"}),
    "ScatterElements, max": Loop("ScatterElements", scattered, {"axis": 1, "reduction": "max"}),
    "ScatterND": Loop("ScatterND", scattered_nd, {"reduction": "mul"}),
    "Pad": Loop("Pad", padded, {}),
    "Pad by reflection": Loop("Pad", lambda r: (floats(r, shape(r, 2, 3)), integers(r, 0, 2, 4)), {"mode": "reflect"}),
    "Pad by edges": Loop("Pad", lambda r: (floats(r, shape(r, 2, 3)), integers(r, 0, 2, 4)), {"mode": "edge"}),
    "Mod": Loop("Mod", pair("int32"), {}),
    "Mod of floats": Loop("Mod", pair("float32"), {"fmod": 1}),
    "Div": Loop("Div", pair("int64"), {}),
    "Pow": Loop("Pow", pair("float32"), {}),
    "Equal": Loop("Equal", pair("int64"), {}),
    "NonMaxSuppression": Loop("NonMaxSuppression", boxes, {}),
    "NonMaxSuppression of centres": Loop("NonMaxSuppression", boxes, {"center_point_box": 1}),
    "Compress": Loop("Compress", compressed, {"axis": 1}),
    "OneHot": Loop("OneHot", one_hot, {"axis": 1}),
    "ReverseSequence": Loop("ReverseSequence", sequences, {}),
    "CumSum": Loop("CumSum", lambda r: (floats(r, shape(r, 2), False), np.int64(-1)), {"exclusive": 1}),
    "CumSum, back": Loop("CumSum", lambda r: (floats(r, shape(r, 2), False), np.int64(0)), {"reverse": 1}),
    "CumSum of what is before": Loop(
        "CumSum", lambda r: (floats(r, shape(r, 3), False), np.int64(1)), {"exclusive": 1, "reverse": 1}
    ),
    "ReduceSum": Loop("ReduceSum", axes_of(2), {}),
    "ReduceMax": Loop("ReduceMax", axes_of(1), {"keepdims": 0}),
    "ReduceMax that keeps by 2, which is no": Loop("ReduceMax", axes_of(1), {"keepdims": 2}),
    "ReduceMin of all": Loop("ReduceMin", axes_of(0), {}),
    "ReduceL2": Loop("ReduceL2", axes_of(1), {}),
    "ReduceMean without axes": Loop("ReduceMean", axes_of(0), {"noop_with_empty_axes": 1}),
    "Range": Loop("Range", ranges, {}),
    "Trilu": Loop("Trilu", lambda r: (floats(r, shape(r, 3)), np.int64(r.integers(-4, 5))), {"upper": 0}),
    "EyeLike": Loop("EyeLike", ranked(2), {"k": -1}),
    "Max": Loop("Max", lambda r: (floats(r, [2, 3]), floats(r, [3]), floats(r, [2, 1])), {}),
    "Where": Loop("Where", lambda r: (r.random((3, 1)) < 0.5, floats(r, [4]), floats(r, [3, 4])), {}),
    "Clip": Loop("Clip", lambda r: (floats(r, shape(r, 2)), np.float32(-1), np.float32(1.5)), {}),
    "Einsum": Loop("Einsum", lambda r: (floats(r, [3, 4], False), floats(r, [4, 5], False)), {"equation": "ij,jk->ki"}),
    "Einsum of a diagonal": Loop("Einsum", lambda r: (floats(r, [2, 3, 3], False),), {"equation": "...ii->...i"}),
    **{
        f"Gemm transposed {a}, {b}": Loop(
            "Gemm", gemm_operands(a, b), {"transA": a, "transB": b, "alpha": 0.5, "beta": 2.0}
        )
        for a in (0, 1) for b in (0, 1)
    },
    "MatMul of a row": Loop("MatMul", lambda r: (floats(r, [70], False), floats(r, [2, 70, 41], False)), {}),
    "MatMul with a column": Loop("MatMul", lambda r: (floats(r, [5, 70], False), floats(r, [70], False)), {}),
    "RoiAlign": Loop(
        "RoiAlign",
        lambda r: (floats(r, [2, 3, 9, 8], False), np.float32(r.uniform(-2, 10, [3, 4])), np.array([0, 1, 1])),
        {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.8},
    ),
    "MatMul": Loop("MatMul", lambda r: (floats(r, [2, 1, 3, 4], False), floats(r, [5, 4, 2], False)), {}),
    "MatMulInteger": Loop(
        "MatMulInteger",
        lambda r: (
            integers(r, 0, 256, [2, 3, 4]).astype("uint8"),
            integers(r, -128, 128, [4, 5]).astype("int8"),
            np.uint8(131),
            integers(r, -128, 128, 5).astype("int8"),
        ),
        {},
    ),
    "Expand": Loop("Expand", lambda r: (floats(r, [3, 1]), np.asarray([2, 1, 4])), {}),
    "Tile": Loop("Tile", lambda r: (floats(r, shape(r, 2)), integers(r, 0, 4, 2)), {}),
    "Split": Loop("Split", lambda r: (floats(r, [2, 5]), np.asarray([0, 4, 1])), {"axis": -1}, outputs=3),
    "Concat": Loop("Concat", lambda r: tuple(floats(r, [2, n, 3]) for n in (1, 0, 4)), {"axis": -2}),
    "Transpose": Loop("Transpose", ranked(3), {"perm": [2, 0, 1]}),
    "LpPool": Loop("LpPool", lambda r: (floats(r, [2, 3, 7, 6], False),), {"kernel_shape": [3, 2], "strides": [2, 1]}),
    "MaxPool of a part": Loop("MaxPool", only_window, {"kernel_shape": [4, 4], "strides": [3, 3]}),
    "AveragePool of a part": Loop("AveragePool", only_window, {"kernel_shape": [4, 4], "strides": [3, 3]}),
    "AveragePool of a part and padding": Loop(
        "AveragePool", only_window,
        {"kernel_shape": [5, 5], "strides": [3, 3], "pads": [1, 0, 0, 1], "count_include_pad": 1},
    ),
    "AveragePool of everything": Loop("AveragePool", only_window, {"kernel_shape": [80, 90], "strides": [80, 90]}),
    "AveragePool of everything and padding": Loop(
        "AveragePool", only_window,
        {"kernel_shape": [80, 90], "strides": [79, 90], "pads": [3, 0, 1, 2], "count_include_pad": 1, "ceil_mode": 1},
    ),
    **{
        f"GridSample {mode} {padding}": Loop(
            "GridSample", lambda r: (floats(r, [2, 3, 5, 4], False), floats(r, [2, 3, 4, 2], False)),
            {"mode": mode, "padding_mode": padding, "align_corners": 1}, opset=16,
        )
        for mode in ("bilinear", "nearest", "bicubic") for padding in ("zeros", "border", "reflection")
    },
    **{
        f"Resize of bytes, {mode}, {width}": Loop(
            "Resize", image_of_bytes(width), {"mode": "linear", "coordinate_transformation_mode": mode}
        )
        for mode in ("half_pixel", "align_corners", "asymmetric") for width in (0.535, 1, 2)
    },
    "IsInf": Loop("IsInf", ranked(2), {"detect_negative": 0}),
    "Sign": Loop("Sign", ranked(2, special=False), {}),
    **{
        f"{name} of all axes from one on": Loop(name, ranked(3, special=False), {"axis": 1}, opset=12)
        for name in ("Softmax", "LogSoftmax", "Hardmax")
    },
    "Scaler": Loop(
        "Scaler", some_rows, {"offset": [1.0, 0.5, -2.0], "scale": [2.0, 0.0, 0.3]},
        domain=CLASSICAL,
    ),
    "Scaler by one number": Loop(
        "Scaler", lambda r: (integers(r, -9, 9, [3, 2]),), {"offset": [0.5], "scale": [0.25]}, domain=CLASSICAL
    ),
    "Binarizer": Loop("Binarizer", some_rows, {"threshold": 0.5}, domain=CLASSICAL),
    **{
        f"Normalizer {norm}": Loop("Normalizer", some_rows, {"norm": norm}, domain=CLASSICAL)
        for norm in ("MAX", "L1", "L2")
    },
    "RNN back": Loop("RNN", recurrence(1), {"hidden_size": 3, "direction": "reverse", "activations": ["Relu"]}, 2),
    "GRU both ways": Loop(
        "GRU", recurrence(3, 2, lengths=True), {"hidden_size": 3, "direction": "bidirectional"}, 2
    ),
    "GRU that resets late": Loop(
        "GRU", recurrence(3), {
            "hidden_size": 3, "linear_before_reset": 1, "activations": ["HardSigmoid", "Softsign"],
            "activation_alpha": [0.3], "activation_beta": [0.4],
        }, 2,
    ),
    "LSTM both ways": Loop(
        "LSTM", recurrence(4, 2, 2, lengths=True), {"hidden_size": 3, "direction": "bidirectional"}, 3
    ),
    "LSTM with peepholes": Loop("LSTM", recurrence(4, 1, 2, peepholes=True), {"hidden_size": 3, "clip": 1.5}, 3),
}  # fmt: skip


@cache
def in_both(name: str) -> tuple[InC, onnxruntime.InferenceSession]:
    model = LOOPS[name].model
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    exact = make_products_exact(model)  # without VNNI it would add up products of bytes in 16 bits
    session = onnxruntime.InferenceSession(exact.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return InC(model), session


@pytest.mark.representatives(3)
@pytest.mark.parametrize("name", LOOPS)
@given(seed=st.integers(0, 2**32 - 1))
def test_as_onnx_runtime(name: str, seed: int) -> None:
    in_c, session = in_both(name)
    inputs = list(LOOPS[name].draw(np.random.default_rng(seed)))
    feeds = {port.name: np.asarray(array) for port, array in zip(session.get_inputs(), inputs, strict=True)}
    expected = session.run(None, feeds)
    for result, wanted in zip(in_c(inputs), expected, strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=3e-6)


def test_an_stft_takes_real_signals_without_their_last_axis() -> None:
    """As ONNX Runtime does, and PyTorch writes them."""
    signal = floats(np.random.default_rng(0), [2, 20, 1])
    others = np.array(3), np.hanning(9)[1:-1].astype("float32")

    def computed(taken: Array) -> list[Array]:
        return InC(Loop("STFT", lambda _: (taken, *others), {}).model)([taken, *others])

    results = computed(signal), computed(signal[..., 0])
    np.testing.assert_array_equal(results[0], results[1])
    assert results[0][0].shape == (2, 5, 4, 2)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "message"),
    [
        ("Gather", ([1.0, 2.0], [2]), {}, "an index is outside of its axis"),
        ("ScatterND", ([1.0, 2.0], [[-3]], [1.0]), {}, "an index is outside of its axis"),
        ("TopK", ([1.0, 2.0], [3]), {}, "k is larger than the axis"),
        ("Reshape", ([1.0, 2.0], [3, -1]), {}, "the elements do not fit the new shape"),
        ("ArgMax", (np.zeros((2, 0)), []), {"axis": 1}, "an empty axis has no largest element"),
        ("ScatterND", ([1.0, 2.0], [[1]], [1.0, 2.0]), {}, "the updates have another shape than the indices ask for"),
        ("GatherND", (np.zeros((2, 3)), [[1]]), {"batch_dims": 1}, "the indices are of other batches"),
        ("GridSample", (np.zeros((2, 1, 4, 4)), np.zeros((1, 2, 2, 2))), {}, "does not give places in all images"),
    ],
)
def test_says_what_is_wrong(operator: str, inputs: Sequence[Any], attributes: Mapping[str, Any], message: str) -> None:
    arrays = [np.asarray(a) for a in inputs if np.size(a) or np.ndim(a) > 1]
    arrays = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in arrays]
    loop = Loop(operator, lambda random: arrays, attributes, outputs=2 if operator == "TopK" else 1)
    with pytest.raises(LoopError, match=message):
        InC(loop.model)(arrays)


def test_an_operator_that_is_newer_than_the_opset_has_no_loop() -> None:
    with pytest.raises(LoweringError, match="Range has no plain loop"):
        node_types(helper.make_node("Range", ["a", "b", "c"], ["y"]), {"": 1}, {})


@pytest.mark.parametrize("lengths", [(3, 3), (3, 2), (2, 3)])
def test_the_sequences_of_a_scan_are_of_one_length(lengths: tuple[int, int]) -> None:
    parts = [helper.make_tensor_value_info(name, 1, []) for name in ("a", "b")]
    sequences = [helper.make_tensor_value_info(name, 1, [None]) for name in ("as", "bs")]
    both = helper.make_node("Add", ["a", "b"], ["c"])
    body = helper.make_graph([both], "body", parts, [helper.make_tensor_value_info("c", 1, [])])
    node = helper.make_node("Scan", ["as", "bs"], ["y"], body=body, num_scan_inputs=2)
    graph = helper.make_graph([node], "scan", sequences, [helper.make_tensor_value_info("y", 1, [None])])
    in_c = InC(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    inputs = [np.arange(length, dtype=np.float32) for length in lengths]
    if lengths == (3, 3):
        np.testing.assert_array_equal(in_c(inputs)[0], [0, 2, 4])
        return
    with pytest.raises(LoopError, match="the sequences of a Scan have different lengths"):
        in_c(inputs)
