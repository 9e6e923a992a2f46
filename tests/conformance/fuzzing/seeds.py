"""Small valid models of every kind, from which the fuzzer makes mutants. Each has less than 30 nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser


@dataclass(frozen=True)
class Seed:
    """A model, and the files beside it that it reads."""

    model: onnx.ModelProto
    files: dict[str, bytes] = field(default_factory=dict)


def seeded(*shape: int) -> np.ndarray[Any, Any]:
    """Weights of moderate size, the same in every run."""
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def parsed(text: str, opset: int, ir_version: int = 8, **weights: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """A model from onnx's text format, with larger weights than one wants to write there."""
    model = parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "own" : 1]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def convolutions() -> Seed:
    text = """convolutions (float[1, 3, 8, 8] x) => (float[1, 5] y) {
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w, b)
        n = BatchNormalization <epsilon = 0.001> (c, scale, shift, mean, variance)
        r = Relu (n)
        p = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (r)
        d = Conv <group = 4, pads = [1, 1, 1, 1]> (p, v)
        a = Add (p, d)
        q = AveragePool <kernel_shape = [2, 2], strides = [1, 1]> (a)
        t = ConvTranspose <strides = [2, 2]> (q, u)
        g = GlobalAveragePool (t)
        f = Flatten <axis = 1> (g)
        m = Gemm <alpha = 0.5, transB = 1> (f, k, o)
        y = Softmax <axis = -1> (m)
    }"""
    vectors = {name: abs(seeded(4) + i) + 0.1 for i, name in enumerate(("b", "scale", "shift", "mean", "variance"))}
    kernels = {"w": seeded(4, 3, 3, 3), "v": seeded(4, 1, 3, 3), "u": seeded(4, 2, 2, 2), "k": seeded(5, 2)}
    return Seed(parsed(text, 17, o=seeded(5), **vectors, **kernels))


def attention() -> Seed:
    text = """attention (float[batch, length, 8] x) => (float[batch, length, 8] y)
    <int64[4] heads = {0, 0, 2, 4}, int64[3] whole = {0, 0, 8}, float half = {0.5}, float one = {1.0}> {
        q = MatMul (x, wq)
        k = MatMul (x, wk)
        v = MatMul (x, wv)
        q4 = Reshape (q, heads)
        k4 = Reshape (k, heads)
        v4 = Reshape (v, heads)
        qt = Transpose <perm = [0, 2, 1, 3]> (q4)
        kt = Transpose <perm = [0, 2, 3, 1]> (k4)
        vt = Transpose <perm = [0, 2, 1, 3]> (v4)
        s = MatMul (qt, kt)
        scaled = Mul (s, half)
        p = Softmax <axis = 3> (scaled)
        c = MatMul (p, vt)
        ct = Transpose <perm = [0, 2, 1, 3]> (c)
        flat = Reshape (ct, whole)
        sum = Add (flat, x)
        n = LayerNormalization <axis = -1> (sum, g, b)
        e = Erf (n)
        e1 = Add (e, one)
        h = Mul (n, e1)
        y = Mul (h, half)
    }"""
    weights = {"wq": seeded(8, 8), "wk": seeded(8, 8) + 1, "wv": seeded(8, 8) - 1}
    return Seed(parsed(text, 18, g=seeded(8), b=-seeded(8), **weights))


def control_flow() -> Seed:
    text = """control (float[2, 3] x, bool flag) => (float[2, 3] y, float[N, 2, 3] z)
    <int64 trips = {3}, bool always = {1}, float two = {2.0}> {
        r = Relu (x)
        i = If (flag) <
            then_branch = then () => (float[2, 3] t) { s = Mul (r, two)  t = Relu (s) },
            else_branch = other () => (float[2, 3] e) { m = Neg (r)  e = Add (m, x) }>
        y, z = Loop (trips, always, i) <body = turn (int64 n, bool go, float[2, 3] v) =>
            (bool on, float[2, 3] w, float[2, 3] scan) { on = Identity (go)  h = Mul (v, two)
            w = Sub (h, x)  scan = Abs (w) }>
    }"""
    return Seed(parsed(text, 16))


def external_weights() -> Seed:
    text = """external (float[4, 4] x) => (float[4, 4] y) {
        h = MatMul (x, w)
        r = Relu (h)
        a = Add (r, b)
        y = MatMul (a, w)
    }"""
    model = parsed(text, 17, w=seeded(4, 4), b=seeded(4))
    data = b""
    for tensor in model.graph.initializer:
        entries = {"location": "w.bin", "offset": str(len(data)), "length": str(len(tensor.raw_data))}
        data += tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
    return Seed(model, {"w.bin": data})


def quantized() -> Seed:
    text = """quantized (float[2, 8] x) => (float[2, 4] y, uint8[2, 8] raw)
    <float s = {0.1}, uint8 z = {128}, float t = {0.05}, int8 o = {0}> {
        raw = QuantizeLinear (x, s, z)
        d = DequantizeLinear (raw, s, z)
        w = DequantizeLinear (q, t, o)
        m = MatMul (d, w)
        r = Relu (m)
        c = Clip (r)
        e = QuantizeLinear (c, s, z)
        y = DequantizeLinear (e, s, z)
    }"""
    return Seed(parsed(text, 13, q=(seeded(8, 4) * 20).astype(np.int8)))


def strings() -> Seed:
    text = """strings (string[2, 3] x, int64[2] i) => (string[2, 3] y, bool[2, 3] same, string[2, 2] g) {
        c = StringConcat (x, w)
        k = Identity (c)
        y = StringConcat (k, x)
        g = Gather <axis = 1> (x, i)
        same = Equal (x, w)
    }"""
    model = parsed(text, 20, 10)
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(["a", "é", ""], object), "w"))
    return Seed(model)


def functions() -> Seed:
    text = """functions (float[2, N] x) => (float[2, N] y) <float k = {3.0}> {
        a = own.scaled <by = 2.0> (x, k)
        b = own.twice (a)
        y = own.scaled <by = 1.5> (b, k)
    }
    <domain: "own", opset_import: ["" : 17]>
    scaled <by> (v, k) => (w) { f = Constant <value_float : float = @by> ()  m = Mul (v, f)  w = Add (m, k) }
    <domain: "own", opset_import: ["" : 17]>
    twice (v) => (w) { h = Relu (v)  r = Relu (h)  w = Add (r, h) }
    """
    return Seed(parsed(text, 17))


def sparse_weights() -> Seed:
    text = """sparse (float[2, 4] x) => (float[2, 4] y) {
        h = MatMul (x, w)
        y = Add (h, x)
    }"""
    model = parsed(text, 17)
    values = helper.make_tensor("w", onnx.TensorProto.FLOAT, [3], [1.5, -2.0, 0.5])
    indices = helper.make_tensor("", onnx.TensorProto.INT64, [3], [0, 6, 11])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 4]))
    return Seed(model)


def old_opset() -> Seed:
    text = """old (float[1, 2, 4] x) => (float[1, 2, 2] y, float[1, 2, 6] z)
    <float low = {-1.0}, float high = {1.0}, int64[6] pads = {0, 0, 1, 0, 0, 1}, int64[2] parts = {2, 2}> {
        u = Unsqueeze <axes = [0]> (x)
        s = Squeeze <axes = [0]> (u)
        c = Clip (s, low, high)
        l, r = Split <axis = 2, split = [2, 2]> (c)
        h = Softmax <axis = 1> (l)
        m = ReduceSum <axes = [1], keepdims = 1> (r)
        a = Add (h, m)
        y = Dropout <ratio = 0.5> (a)
        z = Pad <mode = "constant"> (x, pads, low)
    }"""
    return Seed(parsed(text, 11, 6))


def new_opset() -> Seed:
    text = """new (float[2, 4, 8] x, float[1, 1, 4] m) => (float[2, 4, 8] y, float[2, 1, 8] s)
    <int64[1] middle = {1}, float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}> {
        n = RMSNormalization <axis = -1> (x, scale)
        g = Gelu <approximate = "tanh"> (n)
        w = Sigmoid (g)
        r = Add (w, g)
        y = Mish (r)
        s = ReduceSum <keepdims = 1> (y, middle)
        t = Transpose <perm = [2, 1, 0]> (m)
        unused = Neg (t)
    }"""
    return Seed(parsed(text, 23, 11))


def symbolic_shapes() -> Seed:
    text = """symbolic (float[rows, columns] x, int64[n] i) => (float[k, columns] y, float[p, q] z)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] rest = {-1}, int64 begin = {0}, int64 step = {1}> {
        shape = Shape (x)
        r = Gather (shape, zero)
        c = Slice (shape, one, rest, zero)
        swapped = Concat <axis = 0> (one, rest)
        v = Reshape (x, swapped)
        count = Size (x)
        range = Range (begin, count, step)
        f = Cast <to = 1> (range)
        target = Shape (v)
        back = Reshape (f, target)
        z = Mul (v, back)
        g = Gather (x, i)
        e = Expand (g, one)
        y = Tile (e, ones)
    }"""
    return Seed(parsed(text, 15, ones=np.asarray([1, 1])))


def half_precision() -> Seed:
    text = """half (float[2, 6] x) => (float[2, 6] y, float16[2, 1] s) {
        h = Cast <to = 10> (x)
        a = Mul (h, w)
        p = Pow (a, two)
        m = ReduceMean <axes = [1], keepdims = 1> (p)
        s = Sqrt (m)
        d = Div (a, s)
        c = Cast <to = 1> (d)
        y = Tanh (c)
    }"""
    return Seed(parsed(text, 14, two=np.asarray(2, np.float16), w=np.arange(1, 7, dtype=np.float16)))


def sequences() -> Seed:
    text = """sequences (float[4, 3] x, seq(float[2, 3]) given, optional(float[2, 3]) maybe)
    => (float[m, 3] y, seq(float[2, 3]) out, bool has) <int64 at = {1}, int64 size = {2}> {
        parts = SplitToSequence <axis = 0> (x, size)
        first = SequenceAt (parts, at)
        longer = SequenceInsert (given, first)
        out = SequenceErase (longer, at)
        y = ConcatFromSequence <axis = 0> (longer)
        has = OptionalHasElement (maybe)
    }"""
    return Seed(parsed(text, 17))


def integers() -> Seed:
    text = """integers (int64[3, 4] i, float[3, 4] x, float bias) => (float[3, 4] y, int64[3, 2] top, int64[2, m] where)
    <float bias = {0.5}, int64[1] k = {2}, int64[1] axis = {1}> {
        c = Constant <value_ints = [3, 5, 7, 9]> ()
        f = Constant <value = float[4] {1, 2, 3, 4}> ()
        q = Div (i, c)
        m = Mod (q, c)
        e = Equal (m, q)
        n = Not (e)
        w = Where (n, x, f)
        values, top = TopK <axis = 1> (w, k)
        where = NonZero (n)
        s = ReduceMax <axes = [1], keepdims = 1> (w)
        d = Sub (w, s)
        z = CumSum (d, k0)
        y = Add (z, bias)
    }"""
    return Seed(parsed(text, 13, k0=np.asarray(1)))


def recurrent() -> Seed:
    text = """recurrent (float[3, 2, 4] x, float[2, 4] first) => (float[2, 5] y, float[3, 2, 4] states)
    <int64[1] zero = {0}> {
        all, last = GRU <hidden_size = 5> (x, w, r)
        y = Squeeze (last, zero)
        end, states = Scan <num_scan_inputs = 1, body = step (float[2, 4] s, float[2, 4] v) =>
            (float[2, 4] t, float[2, 4] o) { t = Add (s, v)  o = Tanh (t) }> (first, x)
    }"""
    return Seed(parsed(text, 14, w=seeded(1, 15, 4), r=seeded(1, 15, 5)))


SEEDS: dict[str, Callable[[], Seed]] = {
    made.__name__: made
    for made in (
        convolutions, attention, control_flow, external_weights, quantized, strings, functions, sparse_weights,
        old_opset, new_opset, symbolic_shapes, half_precision, sequences, integers, recurrent,
    )
}  # fmt: skip
