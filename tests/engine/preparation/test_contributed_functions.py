"""Operators that ONNX Runtime fuses compute the same taken apart."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_ir import serde

from eqfuse.engine.onnx.model import read
from eqfuse.engine.preparation.schema_functions import expand_operators
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.annotations.local_functions import inline_functions

from .test_quantised_functions import Call, floats, run, run_taken_apart, with_types

ROWS, TABLE = floats(2, 5, 16), floats(20, 16)
SKIPPED = ROWS, floats(2, 5, 16), floats(16)
PACKED = ROWS, floats(16, 48) / 4, floats(48)
THREE = ROWS, floats(2, 7, 16), floats(2, 7, 24)
RAW = np.array([[1, 1, 0, 1, 1], [1, 0, 0, 0, 1]], np.int32)
WORDS = np.array([[3, 1, 4], [1, 5, 9]], np.int32)
EMBEDDED = WORDS, WORDS % 2, TABLE, floats(8, 16), floats(2, 16), floats(16), floats(16)
WINDOWS = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1], "group": 2}
CONVOLUTION = floats(2, 4, 6, 7), floats(6, 2, 3, 2), floats(6)
SELF, NOTHING = (ROWS, floats(2, 5, 16), floats(2, 5, 16)), (None, None, None)
PAST, PASTS = floats(2, 2, 4, 3, 4), (floats(2, 4, 3, 4), floats(2, 4, 3, 4))
"""Keys and values of three positions, and 4 heads."""
LONG = np.concatenate([np.ones((2, 3), np.int32), RAW], 1)
WORDS_OF_FIVE = np.array([[0, 1, 2, 3, 4], [7, 3, 8, 2, 9]])
ANGLES = {
    width: [turn(np.outer(np.arange(12), 0.7 ** np.arange(width // 2))).astype(np.float32) for turn in (np.cos, np.sin)]
    for width in (4, 8)
}
"""Cosines and sines of 12 positions by the number of channels that are turned."""
CALLS = [
    Call("Gelu", (ROWS,)),
    Call("BiasGelu", (ROWS, floats(16))),
    Call("FastGelu", (ROWS,)),
    Call("FastGelu", (ROWS, floats(16))),
    Call("QuickGelu", (ROWS,), {"alpha": 0.75}),
    Call("SkipLayerNormalization", (*SKIPPED, floats(16), floats(16)), {"epsilon": 1e-3}),
    Call("SkipLayerNormalization", (*SKIPPED, floats(16)), {"epsilon": 1e-3}, opset=13),
    Call("SkipLayerNormalization", SKIPPED, {"epsilon": 1e-5}),
    Call("SkipSimplifiedLayerNormalization", (*SKIPPED, floats(16)), {"epsilon": 1e-3}),
    Call("SkipSimplifiedLayerNormalization", SKIPPED, {"epsilon": 1e-3}, opset=18),
    Call("EmbedLayerNormalization", EMBEDDED, {"epsilon": 1e-5}, fed=(0, 1), outputs=2),
    *(
        Call("EmbedLayerNormalization", (*EMBEDDED, mask, WORDS % 8), {"epsilon": 1e-5}, fed=(0, 1, 7, 8), outputs=3)
        for mask in (RAW[:, :3], RAW[:, :3] + 1)
    ),
    Call("FusedMatMul", (floats(2, 4, 3), floats(5, 4)), {"alpha": 0.25, "transA": 1, "transB": 1}),
    Call("FusedMatMul", (floats(3, 4), floats(4, 5)), {"alpha": 0.5}),
    *(Call("FusedConv", CONVOLUTION, {"activation": name, **WINDOWS}) for name in ("Relu", "Sigmoid", "Tanh")),
    Call("FusedConv", CONVOLUTION, {"activation": "LeakyRelu", "activation_params": [0.125], **WINDOWS}),
    Call("FusedConv", (*CONVOLUTION, floats(2, 6, 3, 7)), {"activation": "Relu", **WINDOWS}, fed=(0, 3)),
    Call("Attention", PACKED, {"num_heads": 4}),
    Call("Attention", PACKED, {"num_heads": 2, "scale": 0.5}, opset=11),
    Call("Attention", (*PACKED, RAW), {"num_heads": 4}, fed=(0, 3)),
    Call("Attention", (*PACKED, 3 * RAW), {"num_heads": 4}, fed=(0, 3)),
    Call("Attention", (*PACKED, np.array([5, 2], np.int32)), {"num_heads": 4}, fed=(0, 3)),
    Call("Attention", (*PACKED, None, None, floats(2, 4, 5, 5)), {"num_heads": 4}, fed=(0, 5)),
    Call("MultiHeadAttention", THREE, {"num_heads": 4}, fed=(0, 1, 2)),
    Call("MultiHeadAttention", (*THREE, floats(56)), {"num_heads": 2, "scale": 0.3}, fed=(0, 1, 2)),
    Call("MultiHeadAttention", (*THREE, None, np.array([7, 3], np.int32)), {"num_heads": 4}, fed=(0, 1, 2, 4)),
    Call("MultiHeadAttention", (*THREE, None, None, floats(1, 1, 5, 7)), {"num_heads": 4}, fed=(0, 1, 2, 5)),
    Call("Attention", PACKED, {"num_heads": 4, "unidirectional": 1}, outputs=2),
    Call("Attention", (*PACKED, RAW), {"num_heads": 4, "unidirectional": 1}, fed=(0, 3), outputs=2),
    Call("Attention", (*PACKED, None, PAST), {"num_heads": 4, "unidirectional": 1}, fed=(0, 4), outputs=2),
    Call("Attention", (*PACKED, LONG, PAST), {"num_heads": 4, "unidirectional": 1}, fed=(0, 3, 4), outputs=2),
    Call("MultiHeadAttention", SELF, {"num_heads": 4, "unidirectional": 1}, fed=(0, 1, 2)),
    Call("MultiHeadAttention", (*SELF, *NOTHING, *PASTS), {"num_heads": 4}, fed=(0, 1, 2, 6, 7), outputs=3),
    Call("MultiHeadAttention", (*SELF, None, LONG, None, *PASTS), {"num_heads": 4}, fed=(0, 1, 2, 4, 6, 7), outputs=3),
    Call(
        "MultiHeadAttention", (*SELF, *NOTHING, *PASTS), {"num_heads": 4, "unidirectional": 1},
        fed=(0, 1, 2, 6, 7), outputs=3,
    ),
    *(
        Call("RotaryEmbedding", (data, places, *ANGLES[width]), {**heads, "interleaved": pairs}, fed=(0, 1))
        for pairs in (0, 1)
        for data, places, width, heads in (
            (ROWS, WORDS_OF_FIVE, 8, {}),
            (ROWS, np.array([3]), 8, {}),
            (ROWS, WORDS_OF_FIVE, 4, {"num_heads": 2, "rotary_embedding_dim": 4}),
            (floats(2, 3, 5, 8), WORDS_OF_FIVE, 8, {}),
        )
    ),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.op)
def test_the_parts_give_what_the_kernel_gives(call: Call) -> None:
    for found, wanted in run_taken_apart(call):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    "call",
    [
        Call("Attention", (*PACKED, np.array([5, 2], np.int32), PAST), {"num_heads": 4}, fed=(0, 3, 4), outputs=2),
        Call("FusedConv", CONVOLUTION, {"activation": "Clip", "activation_params": [0.0, 6.0], **WINDOWS}),
    ],
    ids=lambda call: call.op,
)
def test_other_forms_stay(call: Call) -> None:
    whole = call.model()
    model = read(with_types(whole, run(whole, call.feeds())))
    assert [node.op_type for node in expand_operators(model, infer(model).types).ir.graph] == [call.op]


def test_a_sum_beside_results_that_nothing_reads() -> None:
    """Tools write the sum as the fourth result, and leave the names of the second and third out."""
    whole = Call("SkipSimplifiedLayerNormalization", SKIPPED, {"epsilon": 1e-3}, outputs=4).model()
    node = whole.graph.node[0]
    node.output[1] = node.output[2] = ""
    del whole.graph.output[1:3]
    feeds = {"x0": ROWS}
    expected = run(whole, feeds)
    model = read(with_types(whole, expected))
    parts = serde.serialize_model(inline_functions(expand_operators(model, infer(model).types)).ir)
    onnx.checker.check_model(parts)
    for found, wanted in zip(run(parts, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)
