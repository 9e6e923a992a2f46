"""RNN, GRU and LSTM compute what ONNX Runtime's kernels compute, whatever their attributes."""

from __future__ import annotations

from hypothesis import given

from ...ir.recurrent_calls import RecurrentCall, assert_close, recurrent_calls
from ...properties import examples
from ..in_tvm import Call, in_tvm


@examples(3)
@given(call=recurrent_calls())
def test_without_a_schedule(call: RecurrentCall) -> None:
    (results,) = in_tvm([Call(call.model, call.feeds)])
    assert_close(list(results.values()), call.in_onnx_runtime())
