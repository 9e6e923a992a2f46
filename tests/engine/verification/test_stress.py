"""Inputs beside those that operators are meant for: what they catch, what they let pass, what they do not reach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from eqfuse.engine.verification import Verification, baseline, verify
from eqfuse.engine.verification.baseline import Request, run_original
from eqfuse.engine.verification.inputs.draws import generate
from eqfuse.engine.verification.inputs.plans import Plan, Temper, input_specs
from eqfuse.engine.verification.judges.rounding import Extent
from eqfuse.engine.verification.judges.sensitivity import Sensitivity
from eqfuse.engine.verification.outputs import Truths, judge_stress
from eqfuse.engine.verification.runs.compare import Tolerance
from eqfuse.engine.verification.runs.source import read_source
from eqfuse.engine.verification.runs.structure import Structure
from eqfuse.engine.verification.runs.values import RunError, Value
from eqfuse.rules.vocabulary import Precision

from ..models import Weights, model, normal, value

Node = onnx.NodeProto
make = helper.make_node
EVERY_TEMPER = [temper for temper in Temper if temper is not Temper.ORDINARY]


def verify_nodes(
    before: Sequence[Node],
    after: Sequence[Node],
    weights: Weights | None = None,
    *,
    shape: Sequence[int] = (4, 6),
    precision: Precision | None = None,
) -> Verification:
    """The verdict on two ways from `x` to `y`."""
    inputs = [value("x", shape)]
    return verify(model(before, inputs, ["y"], weights), model(after, inputs, ["y"], weights), precision=precision)


GUARD = [make("Sqrt", ["x"], ["s"]), make("Greater", ["s", "w"], ["g"]), make("Where", ["g", "s", "w"], ["y"])]
UNGUARDED = [make("Sqrt", ["x"], ["s"]), make("Max", ["s", "w"], ["y"])]
LIMIT = {"w": np.full(6, 0.5, np.float32)}


def test_a_guard_against_nan_is_not_a_maximum() -> None:
    verdict = verify_nodes(GUARD, UNGUARDED, LIMIT)
    assert (verdict.status, verdict.first_divergent) == ("failed", "y")
    assert "NaN or infinity on one side only, on zeros" in verdict.reason


def test_it_is_one_where_nan_may_change() -> None:
    assert verify_nodes(GUARD, UNGUARDED, LIMIT, precision="fast").status == "passed"


def test_the_other_way_round_nothing_is_promised() -> None:
    """Where the original gives NaN, its square root has no value over the real numbers."""
    assert verify_nodes(UNGUARDED, GUARD, LIMIT).status == "passed"


SMALL = {"k": np.float32(3e19), "l": np.float32(3e19)}


def test_another_overflow_of_an_intermediate_passes() -> None:
    """(x / k) / l and x / (k * l), which overflows: the candidate in float64 gives what the original gives."""
    before = [make("Div", ["x", "k"], ["a"]), make("Mul", ["a", "l"], ["y"])]
    after = [make("Mul", ["x", "l"], ["a"]), make("Div", ["a", "k"], ["y"])]
    assert verify_nodes(before, after, SMALL).status == "passed"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([make("Relu", ["x"], ["y"])], [make("Clip", ["x", "zero", "seven"], ["y"])]),
        ([make("Abs", ["x"], ["a"]), make("Sqrt", ["a"], ["y"])], [make("Sqrt", ["x"], ["y"])]),
        ([make("Round", ["x"], ["y"])], [make("Add", ["x", "half"], ["a"]), make("Floor", ["a"], ["y"])]),
    ],
    ids=["beyond a limit", "below zero", "ties"],
)
def test_what_only_some_values_show_is_caught(before: Sequence[Node], after: Sequence[Node]) -> None:
    weights = {"zero": np.float32(0), "seven": np.float32(7), "half": np.float32(0.5)}
    assert verify_nodes(before, after, weights).status == "failed"


SUM = {"a": np.array([1])}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([make("Ceil", ["x"], ["c"]), make("Relu", ["c"], ["y"])],
         [make("Relu", ["x"], ["c"]), make("Ceil", ["c"], ["y"])]),
        ([make("Clip", ["x"], ["y"])], [make("Identity", ["x"], ["y"])]),
        ([make("Add", ["x", "zero"], ["y"])], [make("Identity", ["x"], ["y"])]),
        ([make("Neg", ["x"], ["c"]), make("ReduceSum", ["c", "a"], ["y"])],
         [make("ReduceSum", ["x", "a"], ["c"]), make("Neg", ["c"], ["y"])]),
        ([make("Sub", ["x", "x"], ["y"])], [make("Mul", ["x", "zero"], ["y"])]),
    ],
    ids=["ceil of relu", "no limits", "plus zero", "sum of opposites", "zero"],
)  # fmt: skip
def test_what_is_not_exact_is_caught(before: Sequence[Node], after: Sequence[Node]) -> None:
    """Signs of zero, NaN and infinities decide: equal over the real numbers, the bits are others."""
    weights = SUM | {"zero": np.float32(0)}
    shape = (2, 2)
    assert verify_nodes(before, after, weights, shape=shape, precision="exact").status == "failed"
    assert verify_nodes(before, after, weights, shape=shape, precision="real").status != "failed"


def branches(other: str) -> onnx.ModelProto:
    """Exp where the flag is set, else the other operator."""

    def body(operator: str) -> onnx.GraphProto:
        return helper.make_graph([make(operator, ["x"], [operator])], operator, [], [value(operator, None)])

    node = make("If", ["flag"], ["y"], then_branch=body("Exp"), else_branch=body(other))
    return model([node], [value("x", [3]), value("flag", [], TensorProto.BOOL)], ["y"])


@pytest.mark.parametrize("seed", range(2))
def test_both_branches_of_an_if_are_taken(seed: int) -> None:
    assert verify(branches("Relu"), branches("Abs"), seed=seed).status == "failed"
    verdict = verify(branches("Relu"), branches("Relu"), seed=seed)
    assert (verdict.status, verdict.one_sided) == ("passed", ())


def test_constants_that_an_input_is_compared_with_are_drawn() -> None:
    """The rate chooses the result, and only 16000 gives the other one."""
    weights = {"rate": np.int64(16000), "p": normal(3), "q": normal(3, seed=1)}
    chosen = [make("Equal", ["r", "rate"], ["e"]), make("Where", ["e", "p", "q"], ["y"])]
    inputs = [value("r", [], TensorProto.INT64)]
    original = model(chosen, inputs, ["y"], weights)
    assert verify(original, model(chosen, inputs, ["y"], weights | {"p": normal(3, seed=2)})).status == "failed"
    assert verify(original, original).one_sided == ()


@pytest.mark.parametrize(
    ("nodes", "remark"),
    [
        ([make("Exp", ["x"], ["e"]), make("Greater", ["e", "w"], ["g"]), make("Where", ["g", "x", "w"], ["y"])],
         "Where 'y': its condition always held"),
        ([make("Clip", ["x", "w", "u"], ["y"])], "Clip 'y': nothing below its minimum, nothing above its maximum"),
        ([make("Sigmoid", ["x"], ["s"]), make("Relu", ["s"], ["y"])], "Relu 'y': nothing below zero"),
        ([make("Max", ["x", "w"], ["y"])], "Max 'y': its first operand was never the smaller"),
    ],
    ids=["Where", "Clip", "Relu", "Max"],
)  # fmt: skip
def test_operators_that_saw_one_side_are_named(nodes: Sequence[Node], remark: str) -> None:
    inputs = [value("x", [4, 6])]
    original = model(nodes, inputs, ["y"], {"w": np.float32(-1e6), "u": np.float32(1e6)})
    verdict = verify(original, original)
    assert (verdict.status, verdict.one_sided, verdict.coverage) == ("passed", (remark,), remark)


def test_operators_that_saw_both_sides_are_not_named() -> None:
    nodes = [make("Clip", ["x", "w", "u"], ["c"]), make("Relu", ["c"], ["y"])]
    original = model(nodes, [value("x", [4, 6])], ["y"], {"w": np.float32(-2), "u": np.float32(2)})
    assert verify(original, original).one_sided == ()


def draw(nodes: Sequence[Node], fed: onnx.ValueInfoProto, temper: Temper, weights: Weights | None = None) -> Any:
    specs = input_specs(Structure(model(nodes, [fed], ["y"], weights)))
    return generate(specs, Plan(shapes={fed.name: (50, 20)}, temper=temper), 0)[fed.name]


def test_edges_have_what_models_meet() -> None:
    array: NDArray[Any] = draw([make("Sqrt", ["x"], ["y"])], value("x", [50, 20]), Temper.EDGES)
    zeros = array[array == 0]
    assert np.signbit(zeros).any()
    assert not np.signbit(zeros).all()
    assert (array < 0).any()
    assert (array[:, 1:] == array[:, :-1]).any()
    assert np.isin([0.5, -1.5, 2.0], array).all()


def test_large_numbers_are_of_both_signs() -> None:
    array = draw([make("Exp", ["x"], ["y"])], value("x", [50, 20]), Temper.LARGE)
    assert array.min() < -500
    assert array.max() > 500


def test_special_values_are_drawn() -> None:
    array = draw([make("Exp", ["x"], ["y"])], value("x", [50, 20]), Temper.SPECIAL)
    assert np.isnan(array).any()
    assert np.isinf(array).any()


INTEGERS = value("x", [50, 20], TensorProto.INT64)


@pytest.mark.parametrize("temper", EVERY_TEMPER)
@pytest.mark.parametrize(
    "nodes",
    [
        [make("Abs", ["x"], ["a"]), make("Div", ["w", "a"], ["y"])],
        [make("Cast", ["x"], ["c"], to=TensorProto.INT32), make("Mod", ["v", "c"], ["y"])],
        [make("Add", ["x", "w"], ["n"]), make("ConstantOfShape", ["n"], ["y"])],
    ],
    ids=["divisor", "modulus", "shape"],
)
def test_what_steers_is_drawn_as_ever(nodes: Sequence[Node], temper: Temper) -> None:
    """A zero would kill the process, and a large number take all memory."""
    weights = {"w": np.array([5]), "v": np.array([5], np.int32)}
    array = draw(nodes, INTEGERS, temper, weights)
    assert array.min() >= 1
    assert array.max() < 10


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers_that_wrap_around_are_caught(dtype: str) -> None:
    """4 x / 4 is x, until the product wraps around."""
    x, y = (value(name, (64,), int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))) for name in "xy")
    nodes = [make("Mul", ["x", "w"], ["a"]), make("Div", ["a", "w"], ["y"])]
    before = model(nodes, [x], [y], {"w": np.array(4, dtype)})
    assert verify(before, model([make("Identity", ["x"], ["y"])], [x], [y])).status == "failed"


WRAPPING = {
    "more": (1, "a = Add(x, c) y = Greater(a, x)", "bool", 1),
    "less": (1, "a = Sub(x, c) y = Less(a, x)", "bool", 1),
    "carry": (None, "a = Add(x, c) y = Less(a, x)", "bool", 0),
    "quotient": (4, "a = Mul(x, c) q = Div(a, c) y = Equal(q, x)", "bool", 1),
    "least": (1, "a = Add(x, c) m = Min(x, a) y = Sub(m, x)", "", 0),
    "sign": (1, "a = Add(x, c) m = Max(x, a) d = Sub(m, x) y = Sign(d)", "", 1),
    "number": (1, "a = Add(x, c) g = Greater(a, x) y = Cast<to = 1>(g)", "float", 1),
}
"""The constant c (None: most of the range of its type), what is computed, the type of y ("": that of x), and the number
that all of y would be if integers did not wrap around."""


@pytest.mark.representatives(7)
@pytest.mark.parametrize("form", WRAPPING)
@pytest.mark.parametrize("dtype", [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")])
def test_what_changes_where_integers_wrap_around_is_judged(dtype: str, form: str) -> None:
    """Right results pass, and those of integers that do not wrap around are refused, from one element on."""
    constant, body, made, expected = WRAPPING[form]
    if dtype.endswith("16") and form in ("least", "sign"):
        pytest.skip("ONNX Runtime's Min and Max take no integers of 16 bits")
    limits, made = np.iinfo(dtype), made or dtype
    constant = limits.max - limits.max // 8 if constant is None else constant
    for shape in ("", "[2]", "[8]"):
        head = f'<ir_version: 8, opset_import: ["": 17]> g ({dtype}{shape} x) => ({made}{shape} y)'
        right = onnx.parser.parse_model(f"{head} <{dtype} c = {{{constant}}}> {{ {body} }}")
        steady = f"s = Shape(x) y = ConstantOfShape<value = {made}[1] {{{expected}}}>(s)"
        assert verify(right, right).status == "passed"
        assert verify(right, onnx.parser.parse_model(f"{head} {{ {steady} }}")).status == "failed"


@pytest.mark.parametrize(
    "node",
    [
        make("Gather", ["w", "i"], ["y"]),
        make("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
        make("Reshape", ["w", "i"], ["y"]),
        make("Div", ["i", "negative"], ["y"]),
        make("BitShift", ["w", "i"], ["y"], direction="LEFT"),
    ],
)
def test_integers_that_are_more_than_numbers_stay_small(node: Node) -> None:
    nodes = [make("Add", ["x", "one"], ["i"]), node]
    weights = {"w": np.arange(6), "one": np.array(1), "negative": np.array(-1)}
    spec = input_specs(Structure(model(nodes, [value("x", (1,), TensorProto.INT64)], ["y"], weights)))[0]
    assert not spec.purpose.wraps


def test_indices_stay_in_range() -> None:
    array = draw([make("Gather", ["w", "x"], ["y"])], INTEGERS, Temper.EDGES, {"w": normal(37, 2)})
    assert (array.min(), array.max()) == (-37, 36)


def is_judged_wrong(expected: Value, found: Value, exact: Value, own: Value) -> bool:
    """Whether a candidate is taken for wrong, by float64 runs that gave these."""

    def give(truth: Value) -> Value:
        if truth is None:
            raise RunError("none")
        return np.array(truth)

    values = np.array(expected, np.float32), np.array(found, np.float32)
    steady = {"y": np.array(exact)}
    moves = Sensitivity(steady, lambda _: steady, Extent.CONSTANTS)
    truths = Truths((lambda: give(exact)), (lambda: give(own)), lambda: moves, "y")
    return judge_stress(*values, Tolerance(), truths, may_overflow=False) is not None


@pytest.mark.parametrize(
    ("expected", "found", "exact", "own", "is_wrong"),
    [
        ([1.0], [2.0], [1.0], [2.0], True),
        ([1.0], [np.nan], [1.0], [np.nan], True),
        ([1.0], [np.inf], [1.0], [1.0], False),
        ([1.0], [2.0], [1.0], [1.0], False),
        ([1.0], [2.0], [7.0], [2.0], False),
        ([np.nan], [2.0], [np.nan], [2.0], False),
        ([np.inf], [-np.inf], [np.inf], [3.0], False),
        ([1.0], [2.0], None, None, False),
        ([1.0], [np.nan], None, None, True),
        ([1.0], [2.0], [1.0], None, True),
    ],
)
def test_a_number_that_float64_confirms_decides(
    expected: Value, found: Value, exact: Value, own: Value, is_wrong: bool
) -> None:
    assert is_judged_wrong(expected, found, exact, own) == is_wrong


def test_zeros_do_not_judge_what_is_nearly_zero() -> None:
    """log(1 + exp(x)) is 0 or infinite on large numbers, and its digits are lost before it is 0."""
    by_hand = [make("Exp", ["x"], ["e"]), make("Add", ["e", "w"], ["a"]), make("Log", ["a"], ["y"])]
    verdict = verify_nodes(by_hand, [make("Softplus", ["x"], ["y"])], {"w": np.ones((), np.float32)}, shape=(4,))
    assert verdict.status == "passed", verdict.reason


def test_what_differs_is_named_alone() -> None:
    """An infinity that both sides have, or that only the original has, is not why a number is wrong."""
    reciprocal = [make("Reciprocal", ["x"], ["r"]), make("Floor", ["x"], ["f"]), make("Add", ["r", "f"], ["y"])]
    wrong = [make("Reciprocal", ["x"], ["r"]), make("Ceil", ["x"], ["f"]), make("Add", ["r", "f"], ["y"])]
    verdict = verify_nodes(reciprocal, wrong)
    assert verdict.status == "failed"
    assert "infinity" not in verdict.reason


def test_a_loop_that_some_inputs_never_end_runs_on_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one sign on `while s < 100: s = 2 s` goes on for ever, whichever is drawn first."""
    monkeypatch.setattr(baseline, "_LONGEST_RUN", 0.3)
    for sign, name in ((1.0, "Less"), (-1.0, "Greater")):
        body = helper.make_graph(
            [make("Mul", ["s", "two"], ["t"]), make(name, ["t", "limit"], ["goes_on"])],
            "body", [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("s", [])],
            [value("goes_on", [], TensorProto.BOOL), value("t", [])],
        )  # fmt: skip
        weights = {"two": np.float32(2.0), "limit": np.float32(sign * 100), "go": np.array(True)}
        proto = model([make("Loop", ["", "go", "x"], ["y"], body=body)], [value("x", [])], ["y"], weights)
        path = tmp_path / f"{name}.onnx"
        onnx.save(proto, path)
        source = read_source(path, "original")
        structure = Structure(source.structure)
        runs = run_original(source, structure, input_specs(structure), Request()).runs
        assert len(runs) > 1
        assert all(sign * float(run.feeds["x"]) > 0 and sign * float(run.outputs["y"]) >= 100 for run in runs)
