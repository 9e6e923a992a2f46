"""The rows of recurrent networks compute what ONNX Runtime's kernels compute."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from eqfuse.ir.operators import OPERATORS, Unsupported, evaluate

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
CASES = [
    *((head, direction, "{}") for head in GATES for direction in ("forward", "reverse", "bidirectional")),
    ("GRU", "bidirectional", '{"linear_before_reset": 1}'),
]


def drawn_operands(head: str, direction: str) -> list[Any]:
    """X, W, R, B, the lengths of the sequences (absent), initial states and peepholes."""
    random = np.random.default_rng(0)
    directions, rows = 2 if direction == "bidirectional" else 1, GATES[head] * HIDDEN
    state = (directions, BATCH, HIDDEN)
    shapes: list[tuple[int, ...] | None] = [
        (STEPS, BATCH, INPUTS), (directions, rows, INPUTS), (directions, rows, HIDDEN), (directions, 2 * rows), None,
        state,
    ]  # fmt: skip
    shapes += [state, (directions, 3 * HIDDEN)] if head == "LSTM" else []
    return [None if shape is None else random.standard_normal(shape).astype(np.float32) for shape in shapes]


def run_onnx_runtime(head: str, operands: list[Any], **attributes: Any) -> list[Any]:
    """All outputs of one node."""
    feeds = {f"x{i}": operand for i, operand in enumerate(operands) if operand is not None}
    names = [f"x{i}" if operand is not None else "" for i, operand in enumerate(operands)]
    outputs = [f"y{i}" for i in range(OPERATORS[head].outputs)]
    graph = helper.make_graph(
        [helper.make_node(head, names, outputs, **attributes)], "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.mark.parametrize("states", [True, False], ids=["with states", "from zeros"])
@pytest.mark.parametrize(("head", "direction", "config"), CASES)
def test_a_row_computes_what_the_kernel_does(head: str, direction: str, config: str, states: bool) -> None:
    operands = drawn_operands(head, direction)
    operands = operands if states else [*operands[:4], *[None] * (len(operands) - 4)]
    values = evaluate(head, [*operands, HIDDEN, direction, config])
    answers = run_onnx_runtime(head, operands, hidden_size=HIDDEN, direction=direction, **json.loads(config))
    for value, answer in zip(values, answers, strict=True):
        np.testing.assert_allclose(value, answer, rtol=1e-4, atol=1e-5)


def test_sequences_of_several_lengths_are_not_looked_into() -> None:
    operands = drawn_operands("GRU", "forward")
    operands[4] = np.array([4, 2], np.int32)
    with pytest.raises(Unsupported, match="several lengths"):
        evaluate("GRU", [*operands, HIDDEN, "forward", "{}"])
