"""Parts of a model."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from eqfuse.driver.parts import front_of, with_known_values
from eqfuse.engine.onnx.model import read

from ..onnx_runtime import outputs_of

TEXT = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[2, 12] x) => (float[2, 3, 4] y)
<float scale = {0.1}, int64 first = {0}, int64[1] outermost = {0}, int64[2] sides = {3, 4}> {
    shape = Shape(x)
    count = Gather(shape, first)
    batch = Unsqueeze(count, outermost)
    sizes = Concat<axis=0>(batch, sides)
    q = QuantizeLinear(x, scale)
    d = DequantizeLinear(q, scale)
    y = Reshape(d, sizes)
}
"""


def test_what_follows_from_shapes_is_no_part() -> None:
    model = read(onnx.parser.parse_model(TEXT))
    assert front_of(model) is not None
    known = with_known_values(model)
    assert front_of(known) is None
    assert [node.op_type for node in known.graph] == ["QuantizeLinear", "DequantizeLinear", "Reshape"]
    feeds = {"x": np.random.default_rng(0).random((2, 12), np.float32)}
    expected, found = (outputs_of(ir.to_proto(each.ir), feeds) for each in (model, known))
    np.testing.assert_array_equal(found[0], expected[0])
