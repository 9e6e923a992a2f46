"""What rules leave of small models as exporters write them; each result is verified by running it."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

import eqfuse

CASES = {
    "a slice of every axis of unknown sizes": (
        "(float[n, c] x) => (float[n, c] y) <int64[2] b = {0, 0}, int64[2] e = {2147483647, 9223372036854775807}>"
        "{ s = Slice(x, b, e) y = Relu(s) }",
        ["Relu"],
    ),
    "a slice of one axis beside whole ones of unknown size": (
        "(float[n, 4] x) => (float[n, 1] y) <int64[2] b = {0, 1}, int64[2] e = {2147483647, 4},"
        " int64[1] c = {2}, int64[1] d = {3}, int64[1] one = {1}>"
        "{ s = Slice(x, b, e) y = Slice(s, c, d, one) }",
        ["Slice"],
    ),
    "SAME padding at stride 1 of unknown sizes": (
        "(float[n, 1, h, w] x) => (float[n, 1, h, w] y)"
        " <float[1, 1, 3, 3] f = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[1] c = {2}>"
        '{ a = Conv <auto_pad = "SAME_UPPER"> (x, f) y = Mul(a, c) }',
        ["Conv"],
    ),
    "SAME padding that begins alike for all unknown sizes": (
        "(float[n, 1, h, w] x) => (float[n, 1, p, q] y) <float[1, 1, 2, 2] f = {1, 2, 3, 4}, float[1] c = {2}>"
        '{ a = Conv <auto_pad = "SAME_UPPER", strides = [2, 3]> (x, f) y = Mul(a, c) }',
        ["Conv"],
    ),
    "an axis that goes and comes back": (
        "(float[n, 3, 1, w] x) => (float[n, 3, 1, w] y) <int64[1] two = {2}>"
        "{ a = Squeeze(x, two) b = Relu(a) y = Unsqueeze(b, two) }",
        ["Relu"],
    ),
    "views of unknown sizes in a row": (
        "(float[n, 6] x) => (float[n, 2, 3] y) <int64[2] two = {1, 3}, int64[3] s = {0, 2, 3}>"
        "{ a = Unsqueeze(x, two) r = Relu(a) y = Reshape(r, s) }",
        ["Relu", "Reshape"],
    ),
    "channels last around a maximum with a row and a pad": (
        "(float[n, 4, h, w] x) => (float[n, 5, h, w] y)"
        " <float[4] k = {1, 2, 3, 4}, int64[8] p = {0, 0, 0, 1, 0, 0, 0, 0}>"
        "{ s = Sigmoid(x) t = Transpose <perm = [0, 2, 3, 1]> (s) m = Max(t, k) a = Pad(m, p)"
        " y = Transpose <perm = [0, 3, 1, 2]> (a) }",
        ["Sigmoid", "Max", "Pad"],
    ),
    "channels last around a scale and the largest channel": (
        "(float[n, 4, h, w] x) => (int64[n, 1, h, w] y) <float[4] k = {1, 2, 3, 4}>"
        "{ t = Transpose <perm = [0, 2, 3, 1]> (x) m = Mul(t, k) r = ArgMax <axis = 3> (m)"
        " y = Transpose <perm = [0, 3, 1, 2]> (r) }",
        ["Mul", "ArgMax"],
    ),
    "transposes around an axis that is dropped": (
        "(float[n, 4, 1, w] x) => (float[n, 4, w] y) <int64[1] one = {1}>"
        "{ s = Sigmoid(x) t = Transpose <perm = [0, 2, 3, 1]> (s) q = Squeeze(t, one)"
        " y = Transpose <perm = [0, 2, 1]> (q) }",
        ["Sigmoid", "Squeeze"],
    ),
    "transposes around an axis that is added": (
        "(float[n, 4, w] x) => (float[n, 4, 1, w] y) <int64[1] one = {1}>"
        "{ s = Sigmoid(x) t = Transpose <perm = [0, 2, 1]> (s) q = Unsqueeze(t, one)"
        " y = Transpose <perm = [0, 3, 1, 2]> (q) }",
        ["Sigmoid", "Unsqueeze"],
    ),
    "a recurrent network from states of zeros, as many as the batch": (
        "(float[t, n, 2] x) => (float[t, 1, n, 3] y)"
        " <float[1, 9, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9},"
        " float[1, 9, 3] r = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9},"
        " int64[1] one = {1}, int64[1] two = {2}, int64[1] size = {3}, int64[1] axis = {0}>"
        "{ s = Shape(x) n = Slice(s, one, two, axis) t = Concat <axis = 0> (one, n, size) h = ConstantOfShape(t)"
        " y, last = GRU <hidden_size = 3> (x, w, r, , , h) }",
        ["GRU"],
    ),
    "the last of all states of a recurrent network": (
        "(float[4, n, 2] x) => (float[n, 2] y) <float[1, 2, 2] w = {1, 2, 3, 4}, float[1, 2, 2] r = {4, 3, 2, 1},"
        " int64[1] one = {1}, int64 last = {-1}>"
        "{ all = RNN <hidden_size = 2> (x, w, r) a = Squeeze(all, one) b = Transpose <perm = [1, 0, 2]> (a)"
        " g = Gather <axis = 1> (b, last) y = Tanh(g) }",
        ["RNN", "Reshape", "Tanh"],
    ),
    "a mean of positions between quantised tensors": (
        "(uint8[n, 4, 8, 8] x) => (uint8[n, 4, 1, 1] y) <float s = {0.5}, uint8 z = {3}>"
        "{ a = DequantizeLinear(x, s, z) b = GlobalAveragePool(a) y = QuantizeLinear(b, s, z) }",
        ["DequantizeLinear", "GlobalAveragePool", "QuantizeLinear"],
    ),
    "directions that are joined before the batch comes first": (
        "(float[4, 2, n, 3] x) => (float[n, 4, 6] y) <int64[3] s = {0, 0, -1}>"
        "{ a = Transpose <perm = [0, 2, 1, 3]> (x) b = Reshape(a, s) y = Transpose <perm = [1, 0, 2]> (b) }",
        ["Transpose", "Reshape"],
    ),
    "the maximum of three, one of which is not negative": (
        "(float[n] x, float[n] z) => (float[n] y) { a = Exp(x) m = Max(x, z, a) y = Relu(m) }",
        ["Exp", "Max"],
    ),
    "parts that make up an axis": (
        "(float[n, 6, w] x) => (float[n, 2, w] y) <int64[1] z = {0}, int64[1] one = {1}, int64[1] two = {2},"
        " int64[1] four = {4}, int64[1] six = {6}>"
        "{ a = Slice(x, z, two, one) b = Slice(x, two, four, one) c = Slice(x, four, six, one)"
        " s = Sigmoid(b) q = Mul(a, s) y = Sub(q, c) }",
        ["Split", "Sigmoid", "Mul", "Sub"],
    ),
    "one position of an axis": (
        "(float[n, 6, w] x) => (float[n, w] y) <int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}>"
        "{ a = Slice(x, two, three, one) b = Squeeze(a, one) y = Sigmoid(b) }",
        ["Gather", "Sigmoid"],
    ),
    "blocks of channels become positions": (
        "(float[n, 8, 3, 4] x) => (float[n, 2, 6, 8] y)"
        " <int64[6] s = {0, 2, 2, 2, 3, 4}, int64[4] t = {0, 2, 6, 8}>"
        "{ a = Reshape(x, s) b = Transpose <perm = [0, 1, 4, 2, 5, 3]> (a) y = Reshape(b, t) }",
        ["DepthToSpace"],
    ),
    "an operand that is repeated as broadcasting would": (
        "(float[n, 4, 6] x, float[1, 1, 6] z) => (float[n, 4, 6] y) <int64[3] s = {1, 4, 6}>"
        "{ e = Expand(z, s) y = Sub(x, e) }",
        ["Sub"],
    ),
    "scales around a transposed convolution of two groups": (
        "(float[n, 4, h, w] x) => (float[n, 2, h, w] y) <float[1, 4, 1, 1] k = {1, 2, 3, 4},"
        " float[4, 1, 1, 1] f = {5, 6, 7, 8}, float[2] b = {1, 2}, float[1, 2, 1, 1] c = {3, 5}>"
        "{ s = Mul(x, k) t = ConvTranspose <group = 2> (s, f, b) y = Mul(t, c) }",
        ["ConvTranspose"],
    ),
    "an axis of one element that moves behind a transpose": (
        "(float[n, 3, 1, w] x) => (float[n, w, 3, 1] y) <int64[4] s = {0, -1, 3, 1}>"
        "{ a = Sigmoid(x) t = Transpose <perm = [0, 2, 3, 1]> (a) y = Reshape(t, s) }",
        ["Sigmoid", "Transpose"],
    ),
    "a position of five axes behind a transpose": (
        "(float[n, 7, 3, 2, 4] x) => (float[n, 2, 7, 4] y) <int64[1] z = {0}, int64[1] one = {1}, int64[1] two = {2}>"
        "{ t = Transpose <perm = [2, 0, 3, 1, 4]> (x) a = Slice(t, one, two, z) b = Squeeze(a, z) y = Sigmoid(b) }",
        ["Gather", "Sigmoid", "Transpose"],
    ),
    "a flattening that says allowzero = 0, of a computed batch": (
        "(float[n, 2, 1, 1] x) => (float[n, 2] y) <int64[1] z = {0}, int64[1] one = {1}, int64[1] rest = {-1}>"
        "{ s = Shape(x) b = Slice(s, z, one, z) t = Concat <axis = 0> (b, rest) a = Sigmoid(x)"
        " y = Reshape <allowzero = 0> (a, t) }",
        ["Reshape", "Sigmoid"],
    ),
    "a convolution that is negated": (
        "(float[n, 2, h, w] x) => (float[n, 1, h, w] y) <float[1, 2, 1, 1] f = {1, 2}, float[1] b = {3}>"
        "{ c = Conv(x, f, b) y = Neg(c) }",
        ["Conv"],
    ),
}


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')


@pytest.mark.representatives(5)
@pytest.mark.parametrize("case", CASES)
def test_what_is_left(case: str) -> None:
    text, left = CASES[case]
    result = eqfuse.optimize(model(text))
    assert sorted(node.op_type for node in result.graph.node) == sorted(left)
