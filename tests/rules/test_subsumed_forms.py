"""A form that overflows, beside the one that a rule makes of it: neither a result nor a bundle may exchange them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import eqfuse

FORMS = {
    "softmax": "e = Exp(x) s = ReduceSum<keepdims=1>(e, axes) y = Div(e, s) z = Softmax<axis=1>(x)",
    "logarithm of a sum": "e = Exp(x) s = ReduceSum<keepdims=1>(e, axes) y = Log(s) z = ReduceLogSumExp<axes=[1]>(x)",
    "log-softmax": "s = Softmax<axis=1>(x) t = Log(s) y = Add(s, t) z = LogSoftmax<axis=1>(x)",
    "softplus": "e = Exp(x) b = Add(e, one) l = Log(b) y = Add(l, e) z = Softplus(x)",
    "sigmoid": "e = Exp(x) b = Add(e, one) y = Div(e, b) z = Sigmoid(x)",
    "quotient": "e = Exp(x) f = Exp(w) y = Div(e, f) d = Sub(x, w) z = Exp(d)",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_that_overflows_stands_for_no_other(form: str, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        main (float[4, 64] x, float[4, 64] w) => (float[] y, float[] z)
        <int64[1] axes = {{1}}, float one = {{1.0}}> {{ {FORMS[form]} }}""")
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    result = eqfuse.optimize_with_result(proto)
    assert result.verification is not None
    assert result.verification.status == "passed"
    eqfuse.compile(proto, tmp_path / "model.bundle", threads=1, measure=False)
