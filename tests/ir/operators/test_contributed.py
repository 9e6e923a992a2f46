"""The rows of contributed operators compute what ONNX Runtime's kernels compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from eqfuse.ir.operators import OPERATORS, STANDARD, Array, Operand, Value, evaluate

from ...onnx_runtime import outputs_of

WINDOWS: dict[str, Value] = {
    "kernel_shape": (3, 2), "pads": (1, 0, 1, 1), "strides": (2, 1), "dilations": (1, 2), "group": 2
}  # fmt: skip
GEMM: dict[str, Value] = {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 0}
CONV, MAP = ((2, 4, 6, 7), (6, 2, 3, 2), (6,)), (2, 6, 3, 6)
CALLS: list[tuple[str, tuple[tuple[int, ...] | None, ...], dict[str, Value]]] = [
    ("MicrosoftGelu", ((2, 3, 5),), {}),
    ("BiasGelu", ((2, 3, 5), (5,)), {}),
    ("FastGelu", ((2, 3, 5), None), {}),
    ("FastGelu", ((2, 3, 5), (5,)), {}),
    ("QuickGelu", ((2, 3, 5),), {"alpha": 0.75}),
    ("FusedMatMul", ((2, 3, 4), (2, 4, 5)), {"alpha": 0.25, "transA": 0, "transB": 0}),
    ("FusedMatMul", ((2, 4, 3), (5, 4)), {"alpha": 1.0, "transA": 1, "transB": 1}),
    *(("FusedGemm", ((4, 3), (4, 5), (5,)), {"activation": name, **GEMM}) for name in ("Relu", "Sigmoid", "Tanh")),
    ("FusedGemm", ((4, 3), (4, 5), None), {"activation": "Relu", **GEMM}),
    *(("FusedConv", (*CONV, None), {"activation": name, **WINDOWS}) for name in ("Relu", "Sigmoid", "Tanh")),
    ("FusedConv", (*CONV, MAP), {"activation": "Relu", **WINDOWS}),
    ("SkipLayerNormalization", ((2, 3, 4), (2, 3, 4), (4,), (4,), (4,)), {"epsilon": 1e-3}),
    ("SkipLayerNormalization", ((3, 4), (3, 4), (4,), None, None), {"epsilon": 1e-5}),
    ("SkipLayerNormalization", ((2, 3, 4), (1, 3, 4), (4,), None, None), {"epsilon": 1e-5}),
    ("SkipLayerNormalization", ((2, 3, 4), (3, 4), (4,), None, None), {"epsilon": 1e-5}),
    ("SkipSimplifiedLayerNormalization", ((2, 3, 4), (2, 3, 4), (4,), (4,)), {"epsilon": 1e-3}),
    ("MultiHeadAttention", ((2, 3, 8), (2, 5, 8), (2, 5, 8), None, None, (1, 1, 3, 5)), {"num_heads": 2, "scale": 0.5}),
    ("MultiHeadAttention", ((2, 3, 8), (2, 5, 8), (2, 5, 8), None, None, None), {"num_heads": 2, "scale": 0.5}),
    ("MultiHeadAttention", ((2, 3, 8), (2, 5, 8), (2, 5, 4), None, None, (2, 4, 3, 5)), {"num_heads": 4, "scale": 1.0}),
]


@pytest.mark.parametrize(("head", "shapes", "attributes"), CALLS)
def test_a_row_computes_what_the_kernel_does(
    head: str, shapes: tuple[tuple[int, ...] | None, ...], attributes: dict[str, Value]
) -> None:
    generator = np.random.default_rng(0)
    operands = [None if shape is None else generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    given, literals = iter(operands), iter(attributes.values())
    arguments = [next(given) if isinstance(a, Operand) else next(literals) for a in OPERATORS[head].arguments]
    values = evaluate(head, arguments)
    computed = values if isinstance(values, tuple) else (values,)
    used = (0, 3) if len(computed) == 4 else (0,)
    for number, answer in zip(used, answers(head, operands, attributes, used), strict=True):
        np.testing.assert_allclose(computed[number], answer, rtol=1e-4, atol=1e-5)


def answers(head: str, operands: list[Array | None], attributes: dict[str, Value], used: tuple[int, ...]) -> list[Any]:
    """The outputs of one node in ONNX Runtime."""
    row = OPERATORS[head]
    feeds = {f"x{i}": array for i, array in enumerate(operands) if array is not None}
    outputs = [f"y{i}" if i in used else "" for i in range(max(used) + 1)]
    names = ["" if array is None else f"x{i}" for i, array in enumerate(operands)]
    node = helper.make_node(row.op_type, names, outputs, domain=row.domain, **attributes)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name]
    graph = helper.make_graph([node], "one", inputs, results)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(row.domain, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return outputs_of(model, feeds)


def test_every_contributed_operator_is_called_above() -> None:
    assert OPERATORS.keys() - STANDARD.keys() == {head for head, *_ in CALLS}
