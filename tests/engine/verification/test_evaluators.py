"""The evaluator of float64 runs beside ONNX Runtime: on ONNX's node tests, on other axes and sizes, and where that of
onnx is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from eqfuse.engine.verification.judges.float64_kernels import ORACLE_OPERATORS
from eqfuse.engine.verification.judges.oracle import Oracle
from eqfuse.engine.verification.judges.widening import widen, widen_value
from eqfuse.engine.verification.runs.run import OnnxRuntime
from eqfuse.engine.verification.runs.source import open_source
from eqfuse.engine.verification.runs.values import RunError, Value, leaves
from eqfuse.lowering.base.errors import CrashError
from eqfuse.lowering.bundle.isolation import call_isolated

from ..models import normal
from .node_variants import Call, node_calls, variants

LIMIT = 300.0
"""Seconds for all calls of an operator, which take a few."""


def differences(expected: Mapping[str, Value], found: Mapping[str, Value]) -> list[str]:
    """The outputs that differ from ONNX Runtime's by more than its rounding, or in their shapes."""
    return [name for name, value in expected.items() if not is_near(value, found[name])]


def is_near(expected: Value, found: Value) -> bool:
    ones, others = leaves(expected), leaves(found)
    return [one.shape for one in ones] == [other.shape for other in others] and all(map(is_array_near, ones, others))


def is_array_near(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.dtype.kind in "OUS" or one.dtype.kind in "biu":
        return bool(np.array_equal(one.astype(str) if one.dtype.kind in "OUS" else one, other.astype(one.dtype)))
    tolerance = {"float16": 5e-3, "bfloat16": 5e-2}.get(one.dtype.name, 2e-3 if one.dtype.itemsize > 1 else 1.01)
    if one.dtype.kind == "c":
        return bool(np.allclose(one, other, tolerance, tolerance))
    wide = one.astype(np.float64)
    finite = np.isfinite(wide)
    extent = float(np.max(np.abs(wide), initial=1.0, where=finite))
    # ONNX Runtime overflows where a float64 run does not.
    is_close = np.isclose(wide, other.astype(np.float64), tolerance, tolerance * max(1.0, extent / 100), equal_nan=True)
    return bool(np.all(is_close | ~finite))


def as_judged(model: onnx.ModelProto, feeds: Mapping[str, Value]) -> list[str] | None:
    """The outputs that a float64 run gets wrong; None if ONNX Runtime does not run the model."""
    with open_source(model, "original") as source:
        try:
            expected = OnnxRuntime(source).run(dict(feeds))
        except RunError:
            return None
        return differences(expected, Oracle(source).run(dict(feeds)))


def as_onnx_alone_says(model: onnx.ModelProto, feeds: Mapping[str, Value]) -> bool:
    """Whether onnx's evaluator, without ours, gives what ONNX Runtime gives in float64."""
    with open_source(model, "original") as source:
        expected = OnnxRuntime(source).run(dict(feeds))
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    widen(wide)
    try:
        evaluator = ReferenceEvaluator(wide)
        found = evaluator.run(None, {name: widen_value(value) for name, value in feeds.items()})
    except Exception:
        return False
    return not differences(expected, dict(zip(evaluator.output_names, found, strict=True)))


@dataclass(frozen=True)
class Example:
    """A model as ONNX's text, and its inputs."""

    text: str
    feeds: Mapping[str, Any]
    opset: int = 18

    @property
    def model(self) -> onnx.ModelProto:
        """The model."""
        return parser.parse_model(f'<ir_version: 9, opset_import: ["": {self.opset}]> graph {self.text}')


INDICES = np.random.default_rng(0).integers(0, 90, (3, 5))
WRONG = {
    "gather elements of a long axis": Example(
        "(float[3,90] x, int64[3,5] i) => (float[3,5] y) { y = GatherElements <axis = 1> (x, i) }",
        {"x": normal(3, 90), "i": INDICES},
    ),
    "gather elements of the last axis": Example(
        "(float[2,3,8] x, int64[2,3,4] i) => (float[2,3,4] y) { y = GatherElements <axis = -1> (x, i) }",
        {"x": normal(2, 3, 8), "i": np.arange(24).reshape(2, 3, 4) * 7 % 8},
    ),
    "rows of a loop": Example(
        """(int64 n, bool c, float[2,2] s) => (float[2,2] t, float[k,2,2] y) {
            t, y = Loop <body: graph = b (int64 i, bool d, float[2,2] a) => (bool e, float[2,2] o, float[2,2] r) {
                e = Identity (d) o = Add (a, a) r = Neg (a) }> (n, c, s) }""",
        {"n": np.array(3), "c": np.array(True), "s": normal(2, 2)},
    ),
    "a loop without a condition": Example(
        """(int64 n, float[2] s) => (float[2] t) {
            t = Loop <body: graph = b (int64 i, bool d, float[2] a) => (bool e, float[2] o) {
                e = Identity (d) o = Add (a, a) }> (n, , s) }""",
        {"n": np.array(3), "s": normal(2)},
    ),
    "a scan from the end along the second axis": Example(
        """(float[2] s, float[2,4] x) => (float[2] t, float[2,4] y) {
            t, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
                scan_input_directions = [1],
                body: graph = b (float[2] a, float[2] v) => (float[2] o, float[2] r) {
                    o = Add (a, v) r = Identity (o) }> (s, x) }""",
        {"s": normal(2), "x": normal(2, 4)},
    ),
    "rows of a loop that never runs": Example(
        """(int64 n, bool c, float[2,2] s) => (float[2,2] t, float[k,2,2] y) {
            t, y = Loop <body: graph = b (int64 i, bool d, float[2,2] a) => (bool e, float[2,2] o, float[2,2] r) {
                e = Identity (d) o = Add (a, a) r = Neg (a) }> (n, c, s) }""",
        {"n": np.array(0), "c": np.array(True), "s": normal(2, 2)},
    ),
    "the channels of one sample": Example(
        "(float[1,8,3,3] x) => (float[1,8,3,3] y) { y = LRN <size = 3, alpha = 0.5> (x) }", {"x": normal(1, 8, 3, 3)}
    ),
    "a mean of a row and a matrix": Example(
        "(float[4] x, float[3,4] y) => (float[3,4] z) { z = Mean (x, y) }", {"x": normal(4), "y": normal(3, 4)}
    ),
    "a function with constants": Example(
        "(float[2,3,4,4] x) => (float[2,3,4,4] y) { y = MeanVarianceNormalization (x) }", {"x": normal(2, 3, 4, 4)}
    ),
    "an operator that onnx does not run": Example(
        "(float[3] x, int64[2] i, float[2] u) => (float[3] y) { y = Scatter (x, i, u) }",
        {"x": normal(3), "i": np.array([2, 0]), "u": normal(2, seed=1)}, 10,
    ),
    "zeros of no type": Example(
        "(int64[1] s, float[4] x) => (float[4] y) { z = ConstantOfShape (s) y = Add (x, z) }",
        {"s": np.array([4]), "x": normal(4)},
    ),
    "indices of maxima": Example(
        """(float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i)
            { y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }""",
        {"x": normal(1, 1, 4, 4)},
    ),
    "a normalisation in training": Example(
        """(float[4,3] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[4,3] y, float[3] n, float[3] w)
            { y, n, w = BatchNormalization <training_mode = 1> (x, s, b, m, v) }""",
        {"x": normal(4, 3), **{name: np.abs(normal(3, seed=seed)) for seed, name in enumerate("sbmv")}},
    ),
    "a depth in a list": Example(
        "(int64[3] x, int64[1] d, float[2] v) => (float[3,5] y) { y = OneHot (x, d, v) }",
        {"x": np.array([0, -2, 4]), "d": np.array([5]), "v": normal(2)},
    ),
    "numbers in lists": Example(
        """(int64[1] n, int64[1] d, int64[1] r, float[1] l, float[1] u) => (float[a,b] y)
            { y = MelWeightMatrix (n, d, r, l, u) }""",
        {"n": np.array([4]), "d": np.array([16]), "r": np.array([800]),
         "l": np.array([10], np.float32), "u": np.array([300], np.float32)},
    ),
    "a norm of all pixels": Example(
        "(float[2,3,4,5] x) => (float[2,3,1,1] y) { y = GlobalLpPool <p = 3> (x) }", {"x": normal(2, 3, 4, 5)}
    ),
    "an interpolation of old": Example(
        "(float[1,2,3,4] x, float[4] s) => (float[1,2,6,8] y) { y = Upsample <mode = \"linear\"> (x, s) }",
        {"x": normal(1, 2, 3, 4), "s": np.array([1, 1, 2, 2], np.float32)}, 9,
    ),
    "a softmax of old": Example("(float[2,3,4] x) => (float[2,3,4] y) { y = Softmax (x) }", {"x": normal(2, 3, 4)}, 9),
}  # fmt: skip
"""What onnx's own evaluator does not run or gets wrong. Where a new onnx does, its kernel is to be used again."""

RIGHT = {
    "AveragePool": "it loops in Python",
    "BatchNormalization": "it takes old versions for the current one",
    "BitCast": "float64 has other bits",
    "Conv": "it needs much memory",
    "DeformConv": "it loops in Python",
    "Erf": "it computes in float32",
    "GatherND": "it loops in Python",
    "GridSample": "it loops in Python",
    "LpPool": "it loops in Python",
    "MaxPool": "it loops in Python",
    "Resize": "it loops in Python",
}
"""The kernels of ours that take the place of right ones, and why."""


@pytest.mark.parametrize("example", WRONG.values(), ids=list(WRONG))
def test_examples_that_onnx_gets_wrong(example: Example) -> None:
    assert as_judged(example.model, example.feeds) == []


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_are_read_between_their_pixels_as_the_runtime_does(mode: str, padding: str, aligned: int) -> None:
    example = Example(
        f"""(float[2,3,5,7] x, float[2,4,6,2] g) => (float[2,3,4,6] y)
            {{ y = GridSample <mode = "{mode}", padding_mode = "{padding}", align_corners = {aligned}> (x, g) }}""",
        {"x": normal(2, 3, 5, 7), "g": normal(2, 4, 6, 2, seed=1)}, 20,
    )  # fmt: skip
    assert as_judged(example.model, example.feeds) == []


@pytest.mark.parametrize("settings", ["pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]", "pads=[1, 1, 1, 1]"])
def test_a_deformed_convolution_is_that_of_onnx(settings: str) -> None:
    example = Example(
        f"""(float[2,8,6,9] x, float[4,4,3,3] w, float[2,36,h,v] o, float[4] b, float[2,18,h,v] m) => (float[a,c,d,e] y)
            {{ y = DeformConv <group = 2, offset_group = 2, {settings}> (x, w, o, b, m) }}""", {}, 19,
    )  # fmt: skip
    places = (2, 18, 4, 6) if "strides" in settings else (2, 18, 6, 9)
    given = {"x": normal(2, 8, 6, 9), "w": normal(4, 4, 3, 3), "b": normal(4), "m": normal(*places, seed=2)}
    feeds = given | {"o": normal(places[0], 36, *places[2:], seed=1)}
    (expected,) = ReferenceEvaluator(example.model).run(None, feeds)
    with open_source(example.model, "original") as source:
        found = Oracle(source).run(feeds)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


RUN_BY_ONNX = {"indices of maxima", "a normalisation in training", "zeros of no type"}
"""Examples that another kernel of ours, or the widening of the model, would get wrong."""


@pytest.mark.conformance
@pytest.mark.parametrize("name", sorted(WRONG.keys() - RUN_BY_ONNX))
def test_onnx_alone_gets_them_wrong(name: str) -> None:
    assert not as_onnx_alone_says(WRONG[name].model, WRONG[name].feeds)


def test_each_kernel_of_ours_has_its_reason() -> None:
    shown = {node.op_type for example in WRONG.values() for node in example.model.graph.node}
    assert {kernel.__name__ for kernel in ORACLE_OPERATORS} <= shown | set(RIGHT)


UNLIKE = {
    "Attention": "ONNX Runtime masks its third output otherwise",
    "ConvTranspose": "onnx's kernel takes no empty images, and no output_shape that cuts off",
    "Cast": "onnx's kernel takes no scalar of float8e8m0",
    "Col2Im": "onnx's kernel takes no empty batch",
    "Concat": "ONNX Runtime leaves out empty tensors of other shapes",
    "ConvInteger": "ONNX Runtime leaves what was in memory where there are no channels",
    "QLinearConv": "ONNX Runtime leaves what was in memory where there are no channels",
    "CausalConvWithState": "onnx's kernel takes no empty images",
    "Dropout": "it is random in training",
    "DynamicQuantizeLinear": "a tie in float32 is none in float64",
    "QuantizeLinear": "a tie in float32 is none in float64",
    "GatherND": "ONNX Runtime gives indices of no numbers another shape",
    "LSTM": "after no steps a state is what was in memory",
    "GRU": "after no steps a state is what was in memory",
    "RNN": "after no steps a state is what was in memory",
    "MaxUnpool": "ONNX Runtime places by the indices of a smaller image",
    "NegativeLogLikelihoodLoss": "ONNX Runtime takes targets of other sizes",
    "SoftmaxCrossEntropyLoss": "ONNX Runtime takes targets of other sizes",
    "NonMaxSuppression": "onnx's kernel takes no empty batch",
    "NonZero": "ONNX's scalar has one axis in ONNX Runtime",
    "Range": "ONNX Runtime adds an axis to bfloat16",
    "ReduceMean": "a mean of nothing",
    "Resize": "onnx's kernel takes no empty images",
    "Scan": "onnx 1.3's has another form",
    "Compress": "ONNX Runtime takes conditions that are longer than the tensor",
    "ArgMax": "ONNX Runtime takes any axis of a scalar",
    "ArgMin": "ONNX Runtime takes any axis of a scalar",
    "Div": "ONNX Runtime takes any axis of a scalar",
    "Sub": "ONNX Runtime takes any axis of a scalar",
    "TfIdfVectorizer": "onnx's kernel takes no scalar",
}
"""Operators of which some call differs from ONNX Runtime, and why that is so."""


def faults(calls: Sequence[Call]) -> list[str]:
    """The calls that ONNX Runtime runs and a float64 run gets wrong."""
    found = []
    for call in calls:
        try:
            wrong = as_judged(call.model, call.feeds)
        except RunError as error:
            wrong = [str(error)]
        if wrong:
            found.append(f"{call.name}, {call.label}: {wrong}")
    return found


def faults_in_isolation(calls: Sequence[Call]) -> list[str]:
    """The same where ONNX Runtime may crash: such a call says nothing."""
    try:
        return call_isolated(LIMIT, faults, calls)
    except CrashError:
        found = []
        for call in calls if len(calls) > 1 else []:
            found += faults_in_isolation([call])
        return found


def operators() -> list[str]:
    return sorted({call.operator for call in node_calls() if "_expanded" not in call.name})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "operator" in metafunc.fixturenames:
        metafunc.parametrize("operator", operators())


@pytest.mark.conformance
def test_node_tests_on_other_axes_and_sizes(operator: str) -> None:
    calls = [call for call in node_calls() if call.operator == operator and "_expanded" not in call.name]
    found = faults_in_isolation([variant for call in calls for variant in (call, *variants(call))])
    if operator in UNLIKE:
        pytest.skip(UNLIKE[operator])
    assert found == []
