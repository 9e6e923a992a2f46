"""Verdicts of the whole verification on small models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.backend.test import __file__ as backend_tests
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from eqfuse.engine.onnx.runtime_values import session_options
from eqfuse.engine.verification import verify
from eqfuse.engine.verification.inputs.given import Sample
from eqfuse.support.errors import UsageError

from ..models import Weights, convnet, convnet_weights, folded_convnet, model, normal, value

LIGHT_MODELS = Path(backend_tests).parent / "data" / "light"


def unary(operator: str, element_type: int = TensorProto.FLOAT, **attributes: object) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    return model([node], [value("x", [4, 6], element_type)], ["y"])


def test_a_model_equals_itself() -> None:
    verdict = verify(convnet(), convnet())
    assert (verdict.status, verdict.reason, verdict.outputs[0].max_abs) == ("passed", "", 0.0)


def test_folded_batch_normalization_passes() -> None:
    verdict = verify(convnet(), folded_convnet())
    assert verdict.status == "passed"
    assert verdict.outputs[0].max_abs > 0


def test_reordered_sum_passes() -> None:
    inputs = [value(name, [64, 64]) for name in "abc"]
    left = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Add", ["s", "c"], ["y"])]
    right = [helper.make_node("Add", ["b", "c"], ["s2"]), helper.make_node("Add", ["a", "s2"], ["y"])]
    verdict = verify(model(left, inputs, ["y"]), model(right, inputs, ["y"]))
    assert verdict.status == "passed"


@pytest.mark.parametrize("name", ["cw", "mw"])
def test_one_weight_off_by_one_percent_fails(name: str) -> None:
    weight = convnet_weights()[name].copy()
    weight.reshape(-1)[0] *= np.float32(1.01)
    assert verify(convnet(), convnet({name: weight})).first_divergent == {"cw": "c", "mw": "y"}[name]


@pytest.mark.parametrize(
    ("candidate", "divergent"),
    [
        (convnet({"mw": convnet_weights()["mw"] * np.float32(1.01)}), "y"),
        (convnet(epsilon=1e-4), "b"),
        (convnet(perm=(0, 3, 2, 1)), "t"),
    ],
    ids=["weights off by one percent", "epsilon ten times too large", "other permutation"],
)
def test_what_is_wrong_fails_and_is_named(candidate: onnx.ModelProto, divergent: str) -> None:
    verdict = verify(convnet(), candidate)
    assert (verdict.status, verdict.first_divergent) == ("failed", divergent)


def test_given_tolerance_is_final() -> None:
    assert verify(convnet(), convnet(epsilon=1e-4), rtol=1e-2, atol=1e-2).status == "passed"
    assert verify(convnet(), folded_convnet(), rtol=0, atol=0).status == "failed"


def test_without_the_oracle_the_tolerance_decides() -> None:
    assert verify(convnet(), convnet(epsilon=1.1e-5), precise=False).status == "passed"


def test_cancellation_is_acquitted_by_the_oracle() -> None:
    """(30000 x + y) - 30000 x keeps few digits of y in single, and others when 30000 x is 3 x times 10000."""
    inputs = [value("x", [32, 32]), value("y", [32, 32])]
    weights = {"k": np.float32(3e4), "a": np.float32(3), "b": np.float32(1e4)}
    product = helper.make_node("Mul", ["x", "k"], ["m"])
    split = [helper.make_node("Mul", ["x", "a"], ["n"]), helper.make_node("Mul", ["n", "b"], ["p"])]
    added = helper.make_node("Add", ["m", "y"], ["s"])
    original = model([product, added, helper.make_node("Sub", ["s", "m"], ["z"])], inputs, ["z"], weights)
    candidate = model([product, *split, added, helper.make_node("Sub", ["s", "p"], ["z"])], inputs, ["z"], weights)
    assert verify(original, candidate, precise=False).status == "failed"
    verdict = verify(original, candidate)
    assert verdict.status == "passed"
    assert "against float64" in verdict.outputs[0].note


def large_activations(last: Sequence[str], weights: Weights) -> onnx.ModelProto:
    """Six layers, then products of large numbers that nearly cancel: the last nodes say how they are computed."""
    nodes, hidden, layers = [], "x", {f"w{index}": normal(64, 64, seed=index + 10) / 8 for index in range(6)}
    for index in range(6):
        nodes += [helper.make_node("MatMul", [hidden, f"w{index}"], [f"m{index}"])]
        nodes += [helper.make_node("Relu", [f"m{index}"], [f"h{index}"])]
        hidden = f"h{index}"
    nodes += [helper.make_node("MatMul", [hidden, name], [f"p{name}"]) for name in last]
    nodes += [helper.make_node("Sum", [f"p{name}" for name in last], ["y"])]
    return model(nodes, [value("x", [4, 64])], ["y"], layers | dict(weights))


LARGE, USEFUL = np.float32(1e6) * normal(64, 16, seed=1), normal(64, 16, seed=2)
CANCELLING = {"a": LARGE + USEFUL / 2, "b": USEFUL / 2 - LARGE}
FOLDED = (CANCELLING["a"].astype(np.float64) + CANCELLING["b"]).astype(np.float32)


def test_what_is_nearer_to_float64_than_the_original_is_not_wrong() -> None:
    """The original errs by a part of its spread; folding both weights to one mends that."""
    verdict = verify(large_activations("ab", CANCELLING), large_activations("c", {"c": FOLDED}))
    assert verdict.status == "passed"
    assert verdict.outputs[0].max_abs > 1
    assert "against float64 the original errs by 0.2" in verdict.reason
    assert " against a float64 run " in verdict.accuracy


@pytest.mark.parametrize("factor", [1.5, -1])
def test_another_function_is_wrong_however_far_the_original_is_off(factor: float) -> None:
    candidate = large_activations("c", {"c": FOLDED * np.float32(factor)})
    assert verify(large_activations("ab", CANCELLING), candidate).status == "failed"


def test_what_is_farther_from_float64_is_wrong() -> None:
    verdict = verify(large_activations("c", {"c": FOLDED}), large_activations("ab", CANCELLING))
    assert verdict.status == "failed"
    assert "against float64 the original errs by" in verdict.reason


@pytest.mark.parametrize("shape", [[2, 0, 3], ["n", 0]])
def test_a_size_of_zero_is_a_size(shape: list[int | str]) -> None:
    """Beside an output that has elements, and from which the other input must not get its shape."""
    inputs, weights = [value("e", shape), value("x", [1, 2, 6])], {"k": np.float32(2)}
    nodes = [helper.make_node("GlobalMaxPool", ["x"], ["y"]), helper.make_node("Neg", ["e"], ["z"])]
    other = [nodes[0], helper.make_node("Mul", ["e", "k"], ["z"])]
    verdict = verify(model(nodes, inputs, ["y", "z"]), model(other, inputs, ["y", "z"], weights))
    assert (verdict.status, verdict.reason) == ("passed", "")
    assert verdict.outputs[1].effect.elements == 0


@pytest.mark.parametrize("name", ["light_squeezenet", "light_shufflenet"])
def test_outputs_that_ignore_the_inputs_prove_nothing(name: str) -> None:
    path = LIGHT_MODELS / f"{name}.onnx"
    verdict = verify(path, path)
    assert verdict.status == "not verifiable"
    assert not verdict.outputs[0].depends_on_inputs


def softmax(factor: float, width: int = 6) -> onnx.ModelProto:
    """Softmax of x times a factor."""
    nodes = [helper.make_node("Mul", ["x", "k"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    return model(nodes, [value("x", [4, width])], ["y"], {"k": np.asarray(factor, np.float32)})


def test_saturated_output_proves_nothing() -> None:
    verdict = verify(softmax(1e8), softmax(1e8))
    assert verdict.status == "not verifiable"
    assert "saturated" in verdict.reason


def test_the_end_of_a_sigmoid_may_differ_by_the_rounding_of_numbers_near_one() -> None:
    """The original gives 0 or 1e-7 there, in any order of operations that lead to it."""

    def pushed(*amounts: float) -> onnx.ModelProto:
        names = ["bounded", *(f"h{n}" for n in range(len(amounts)))]
        nodes = [helper.make_node("Tanh", ["x"], ["bounded"])]
        nodes += [helper.make_node("Sub", [names[n], f"c{n}"], [names[n + 1]]) for n in range(len(amounts))]
        weights = {f"c{n}": np.full(1, amount, np.float32) for n, amount in enumerate(amounts)}
        return model([*nodes, helper.make_node("Sigmoid", [names[-1]], ["y"])], [value("x", [4, 64])], ["y"], weights)

    assert verify(pushed(16.4), pushed(8.1, 8.3)).status in ("passed", "not verifiable")
    assert verify(pushed(16.4), pushed(6.4)).status == "failed"


def test_saturation_that_smaller_inputs_avoid_is_avoided() -> None:
    assert verify(softmax(1e3), softmax(1e3)).status == "passed"
    assert verify(softmax(1e3), softmax(1.01e3)).status == "failed"


def test_nearly_uniform_softmax_is_compared_on_what_varies() -> None:
    assert verify(softmax(1e-3, 500), softmax(1.05e-3, 500), precise=False).status == "failed"


def test_what_rounding_hides_refutes_nothing() -> None:
    """Inputs move the output by 1e-9, and the original is off by 4e-7."""

    def sum_of(*numbers: float) -> onnx.ModelProto:
        names = ["small", *(f"s{n}" for n in range(len(numbers) - 1)), "y"]
        nodes = [helper.make_node("Mul", ["x", "k"], ["small"])]
        nodes += [helper.make_node("Add", [names[n], f"c{n}"], [names[n + 1]]) for n in range(len(numbers))]
        weights = {"k": np.full(1, 1e-9, np.float32)} | {
            f"c{n}": np.full(1, number, np.float32) for n, number in enumerate(numbers)
        }
        return model(nodes, [value("x", [4, 64])], ["y"], weights)

    assert verify(sum_of(8.1, -8.0), sum_of(0.1)).status == "not verifiable"
    assert verify(sum_of(8.1, -8.0), sum_of(0.101)).status == "failed"


def test_model_without_inputs_is_compared() -> None:
    nodes = [helper.make_node("Exp", ["w"], ["y"])]
    one, other = ({"w": np.full(3, number, np.float32)} for number in (1.0, 2.0))
    assert verify(model(nodes, [], ["y"], one), model(nodes, [], ["y"], one)).status == "passed"
    assert verify(model(nodes, [], ["y"], one), model(nodes, [], ["y"], other)).status == "failed"


def test_shape_output_may_stay_the_same() -> None:
    verdict = verify(unary("Shape"), unary("Shape"))
    assert (verdict.status, verdict.outputs[0].depends_on_inputs) == ("passed", False)
    assert "does not depend on input values" in verdict.reason


def test_integer_output_is_exact() -> None:
    cast = [helper.make_node("Mul", ["x", "k"], ["m"]), helper.make_node("Cast", ["m"], ["y"], to=TensorProto.INT64)]
    original = model(cast, [value("x", [64])], ["y"], {"k": np.float32(1e4)})
    candidate = model(cast, [value("x", [64])], ["y"], {"k": np.float32(1.0001e4)})
    assert verify(original, candidate).status == "failed"


@pytest.mark.parametrize("operator", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_random_output_is_not_compared(operator: str) -> None:
    nodes = [helper.make_node(operator, ["x"], ["r"]), helper.make_node("Add", ["r", "x"], ["y"])]
    original = model(nodes, [value("x", [4, 6])], ["y"])
    verdict = verify(original, original)
    assert verdict.status == "not verifiable"
    assert "random" in verdict.outputs[0].note


def test_random_output_does_not_spoil_the_others() -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Relu", ["x"], ["y"])]
    original = model(nodes, [value("x", [4, 6])], ["r", "y"])
    assert verify(original, original).status == "passed"


@pytest.mark.parametrize(("training", "status"), [(True, "not verifiable"), (False, "passed")])
def test_dropout_is_random_only_in_training(training: bool, status: str) -> None:
    node = helper.make_node("Dropout", ["x", "ratio", "mode"], ["y"])
    original = model([node], [value("x", [8, 8])], ["y"], {"ratio": np.float32(0.5), "mode": np.asarray(training)})
    assert verify(original, original).status == status


def test_a_model_of_an_unknown_operator_is_unverified() -> None:
    original = model([helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere")], [value("x", [2])], ["y"])
    original.opset_import.append(helper.make_opsetid("nowhere", 1))
    verdict = verify(original, original)
    assert verdict.status == "unverified"
    assert "nothing was verified" in verdict.reason


@pytest.mark.parametrize(
    ("operator", "element_type"),
    [
        *[("Identity", getattr(TensorProto, name)) for name in ("BFLOAT16", "FLOAT16", "DOUBLE", "STRING")],
        ("Sin", TensorProto.BFLOAT16),  # only the reference evaluator runs it
    ],
)
def test_element_types(operator: str, element_type: int) -> None:
    original = unary(operator, element_type)
    assert verify(original, original).status == "passed"


def test_a_model_that_onnx_runtime_refuses_is_compared_in_the_evaluator_which_is_said() -> None:
    original = model([helper.make_node("Transpose", ["x"], ["y"], perm=[-1, 0])], [value("x", [3, 4])], ["y"])
    verdict = verify(original, original)
    assert verdict.status == "passed"
    assert "ONNX Runtime does not run the original" in verdict.reason
    assert "Invalid attribute perm" in verdict.reason


def test_sequences_are_compared_item_by_item() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2, 3])
    output = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    original = model([helper.make_node("SequenceInsert", ["s", "x"], ["y"])], [sequence, value("x", [2, 3])], [output])
    nodes = [helper.make_node("SequenceInsert", ["s", "x", "at"], ["y"])]
    candidate = model(nodes, [sequence, value("x", [2, 3])], [output], {"at": np.int64(0)})
    assert verify(original, original).status == "passed"
    assert verify(original, candidate).status == "failed"


def test_candidate_that_does_not_run_fails() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    inputs = [value("x", ["n", 4])]
    verdict = verify(model(nodes, inputs, ["y"], {"w": normal(4, 3)}), model(nodes, inputs, ["y"], {"w": normal(5, 3)}))
    assert verdict.status == "failed"
    assert "does not run" in verdict.reason


def test_frozen_dimension_is_found() -> None:
    inputs = [value("x", ["n", 4])]
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    original = model(nodes, inputs, ["y"], {"shape": np.array([-1, 2])})
    candidate = model(nodes, inputs, ["y"], {"shape": np.array([4, 2])})
    verdict = verify(original, candidate)
    assert verdict.status == "failed"
    assert "n=3" in verdict.reason


def halved(dilation: int) -> onnx.ModelProto:
    """Four halvings of maps of free size, and a window of five behind them."""
    nodes = [
        helper.make_node("AveragePool", [f"h{i}"], [f"h{i + 1}"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
        for i in range(4)
    ]
    pads = [2 * dilation] * 4
    nodes.append(helper.make_node("Conv", ["h4", "w"], ["y"], group=3, pads=pads, dilations=[dilation, dilation]))
    return model(nodes, [value("h0", ["b", 3, "h", "w"])], ["y"], {"w": normal(3, 1, 5, 5)})


def test_windows_behind_halvings_read_more_than_their_middle() -> None:
    assert verify(halved(1), halved(1)).status == "passed"
    assert verify(halved(1), halved(2)).status == "failed"


def test_missing_output_fails() -> None:
    verdict = verify(unary("Relu"), model([helper.make_node("Relu", ["x"], ["z"])], [value("x", [4, 6])], ["z"]))
    assert verdict.status == "failed"
    assert "outputs" in verdict.reason


def test_initializers_listed_as_inputs_are_not_fed() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    inputs = [value("x", [3, 4]), value("w", [4, 2])]
    old = model(nodes, inputs, ["y"], {"w": normal(4, 2)}, opset=9, ir_version=3)
    new = model(nodes, inputs[:1], ["y"], {"w": normal(4, 2)}, opset=9)
    assert verify(old, new).status == "passed"


def test_given_inputs_are_used_and_still_varied() -> None:
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"])]
    original = model(nodes, [value("ids", ["n"], TensorProto.INT64)], ["y"], {"table": normal(100, 4)})
    changed = normal(100, 4)
    changed[42] += 1
    candidate = model(nodes, [value("ids", ["n"], TensorProto.INT64)], ["y"], {"table": changed})
    without, with_it = (Sample("here", {"ids": np.array(ids)}) for ids in ([1, 2, 3], [1, 42, 3]))
    assert verify(original, candidate, samples=[without]).status == "passed"
    assert verify(original, candidate, samples=[with_it]).status == "failed"


def test_given_shape_is_used() -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0), helper.make_node("Shape", ["x"], ["z"])]
    original = model(nodes, [value("x", ["n", "m"])], ["y", "z"], {"axes": np.array([1])})
    assert verify(original, original, shapes={"x": (3, 17)}).status == "passed"


@pytest.mark.parametrize(("name", "message"), [("q", "no input 'q'"), ("x", "2 dims")], ids=["name", "rank"])
def test_a_shape_that_does_not_fit_is_a_usage_error(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        verify(unary("Relu"), unary("Relu"), shapes={name: (1,)})


@pytest.mark.parametrize("content", [None, b"", b"not a model", b"\x3a\xff\xff\xff\x0f"])
def test_file_that_is_no_model_is_a_usage_error(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"broken\.onnx"):
        verify(path, unary("Relu"))


def test_external_data_is_read_from_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(convnet(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert verify(path, folded_convnet()).status == "passed"
    assert verify(path, convnet(epsilon=1e-3)).first_divergent == "b"


def test_ir_model_is_accepted() -> None:
    candidate = onnx_ir.from_proto(convnet())
    assert verify(convnet(), candidate).status == "passed"


def test_verdict_is_json() -> None:
    verdict = verify(unary("Relu"), unary("Abs"))
    loaded = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
    assert loaded["status"] == "failed"
    assert loaded["summary"] == verdict.summary


def test_same_seed_gives_the_same_figures() -> None:
    runs = [verify(convnet(), folded_convnet(), seed=5).outputs for _ in range(2)]
    assert runs[0] == runs[1]


def test_the_runtime_writes_nothing_of_its_own_where_it_fails(capfd: pytest.CaptureFixture[str]) -> None:
    gather = model([helper.make_node("Gather", ["x", "i"], ["y"])], [value("x", [3])], ["y"], {"i": np.array([7])})
    session = onnxruntime.InferenceSession(gather.SerializeToString(), session_options())
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": np.zeros(3, np.float32)})
    assert capfd.readouterr().err == ""
