"""The comparison with TVM's FuseOps on whole networks."""

from __future__ import annotations

from onnx import parser

from eqfuse.benchmarks.fuse_ops import LIMITS, compare

MODEL = """<ir_version: 10, opset_import: ["" : 18]> g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,6,6] y) {
    product = Conv(x, w)
    positive = Relu(product)
    unread = Exp(product)
    y = Add(positive, product)
}"""


def test_a_network_has_equal_groups_at_each_level_and_depth() -> None:
    found = compare(parser.parse_model(MODEL))
    assert (found.calls, set(found.is_equal.values())) == (3, {True})
    assert [found.groups[limits] for limits in LIMITS] == [3, 3, 3, 3, 1, 1]
