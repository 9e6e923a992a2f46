"""The rows of recurrent networks compute what ONNX Runtime's kernels compute."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from eqfuse.ir.operators import Unsupported, evaluate
from eqfuse.ir.operators.recurrent import Activation, read_cell

from ..recurrent_calls import RecurrentCall, assert_close, recurrent_calls


@given(call=recurrent_calls())
def test_a_row_computes_what_the_kernel_does(call: RecurrentCall) -> None:
    operands = [None if array is None else call.swap(name, array) for name, array in call.operands.items()]
    values = evaluate(call.op, [*operands, call.hidden, call.direction, call.layout, json.dumps(call.config)])
    assert_close(values, call.in_onnx_runtime())


def test_activations_take_their_factors_in_order() -> None:
    names = ["HardSigmoid", "LeakyRelu", "Tanh"]
    config = {"activations": names, "activation_alpha": [0.3], "activation_beta": [0.4]}
    (functions,) = read_cell("LSTM", 4, "forward", json.dumps(config)).activations
    assert functions == (
        Activation("hardsigmoid", (0.3, 0.4)), Activation("leakyrelu", (0.01,)), Activation("tanh"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("direction", "config"),
    [
        ("sideways", "{}"),
        ("forward", '{"output_sequence": 1}'),
        ("forward", '{"activations": ["Tanh", "Tanh"]}'),
        ("forward", '{"activations": ["Gelu"]}'),
        ("forward", '{"activations": ["Affine"]}'),
    ],
)
def test_what_onnx_does_not_define_is_refused(direction: str, config: str) -> None:
    with pytest.raises(Unsupported):
        read_cell("RNN", 4, direction, config)
