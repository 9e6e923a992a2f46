"""What samples are drawn from, which are kept, and the second oracle that judges them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.ir.operators import OPERATORS, RECURRENT
from eqfuse.ir.operators.numbers import FIRST_ZERO, NUMBERS
from eqfuse.rules.sexpr import read
from eqfuse.tools.checking.oracles.numeric import beside_flips
from eqfuse.tools.checking.oracles.onnx_oracle import (
    KernelMissing,
    Oracle,
    Refused,
    infer_types,
    judge_together,
    run_model,
    term_model,
)
from eqfuse.tools.checking.sampling.conditions import Environment, Type
from eqfuse.tools.checking.sampling.coverage import choose_various, settings
from eqfuse.tools.checking.sampling.elements import draw, index_bounds
from eqfuse.tools.checking.sampling.evaluation import Evaluation
from eqfuse.tools.checking.sampling.samples import Sample, draw_sample, left_sides
from eqfuse.tools.checking.sampling.scratch import EClass, Fired, Scratch, ScratchNode
from eqfuse.tools.checking.sampling.symbolic_sizes import instances, with_symbols
from eqfuse.tools.checking.sampling.terms import Leaf, Term, leaves
from eqfuse.tools.checking.sampling.types import admits


def _leaf(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Leaf:
    return Leaf("Var", name, Type(shape, dtype))


def _sample(*roots: Term) -> Sample:
    return Sample(roots, {}, Environment())


def _draw_samples(text: str, count: int = 300) -> list[Sample]:
    """Samples of a left side, as rule files write it."""
    random = Random(0)
    ways = left_sides(read(text).forms, random)
    samples = (draw_sample(random.choice(ways), random, "float32" if i % 2 == 0 else "") for i in range(count))
    return [sample for sample in samples if sample is not None]


def test_limits_hold_every_special_number() -> None:
    """Both zeros, NaN, both infinities, subnormals, the largest numbers and odd halves."""
    leaf = _leaf("x", (400,))
    random = np.random.default_rng(0)
    drawn = np.concatenate([draw(_sample(Term("Abs", (leaf,))), "limits", {}, random)["x"] for _ in range(12)])
    ends = np.finfo(np.float32)
    for number in (np.inf, -np.inf, ends.max, ends.min, ends.smallest_subnormal, 0.5, 1.5, 2.5, -0.5, -1.5):
        assert np.float32(number) in drawn
    assert np.isnan(drawn).any()
    assert {False, True} == set(np.signbit(drawn[drawn == 0]).tolist())


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16"])
def test_large_integers_are_the_ends_of_their_range(dtype: str) -> None:
    """Where sums wrap and opposites do not exist."""
    leaf = _leaf("x", (200,), dtype)
    drawn = draw(_sample(Term("Abs", (leaf,))), "large", {}, np.random.default_rng(0))["x"]
    assert {np.iinfo(dtype).min, np.iinfo(dtype).max} <= set(drawn.tolist())


def test_indices_count_from_both_ends() -> None:
    """Of the axis that they are taken from."""
    term = Term("Gather", (_leaf("x", (3, 5)), _leaf("i", (100,), "int64"), 1))
    assert index_bounds(_sample(term)) == {"i": (-5, 5)}
    drawn = draw(_sample(term), "special", {}, np.random.default_rng(0))["i"]
    assert set(drawn.tolist()) == set(range(-5, 5))


def test_numbers_from_which_places_are_computed_may_lie_beside_the_axis() -> None:
    """As in x[i - n]; what is a place itself never does."""
    data, index = _leaf("x", (5,)), _leaf("i", (50,), "int64")
    size = Leaf("Full", "n", Type((), "int64", 5.0))
    random = np.random.default_rng(0)
    computed = _sample(Term("Gather", (data, Term("Sub", (index, size)), 0)))
    drawn = {bool(np.all(draw(computed, "special", {}, random)["i"] >= 5)) for _ in range(40)}
    assert drawn == {False, True}
    plain = _sample(Term("Gather", (data, index, 0)))
    assert all(np.all(np.abs(draw(plain, "special", {}, random)["i"]) <= 5) for _ in range(40))


def test_either_batch_of_a_product_may_repeat_or_be_longer() -> None:
    """Leading axes broadcast, on the left and on the right."""
    shapes = [[leaf.type.shape[:-2] for leaf in sample.leaves] for sample in _draw_samples("(MatMul a b)", 900)]
    assert any(len(a) < len(b) for a, b in shapes)
    assert any(len(a) > len(b) > 0 for a, b in shapes)
    assert any(len(a) == len(b) and any(m < n for m, n in zip(a, b, strict=True)) for a, b in shapes)
    assert any(len(a) == len(b) and any(m > n for m, n in zip(a, b, strict=True)) for a, b in shapes)


def test_branches_may_have_two_shapes() -> None:
    """ONNX asks for one element type only."""
    shapes = [[leaf.type.shape for leaf in sample.leaves[1:]] for sample in _draw_samples("(If c x y)")]
    assert {x == y for x, y in shapes} == {False, True}


def test_samples_reach_every_type_and_rank() -> None:
    """Of those that the schemas of the operators allow."""
    met = frozenset[str]().union(*map(settings, _draw_samples("(Add x y)")))
    assert {f"rank {r}" for r in range(6)} <= met
    assert {"element type float64", "element type float16", "element type int8", "element type uint32"} <= met
    assert {"size 0", "size 1", "size 2"} <= met


@pytest.mark.parametrize(
    ("term", "wanted"),
    [
        ("(LeakyRelu x a)", {"LeakyRelu.alpha below -1", "LeakyRelu.alpha 0", "LeakyRelu.alpha above 1"}),
        ('(Pad x p (Absent) "constant")', {"Pad.pads -1", "Pad.pads 1", "Pad.pads unequal"}),
        ("(Resize x m c)", {"Resize.mode cubic", "Resize.mode nearest", "Resize.mode linear"}),
        ("(Gemm a b c d e f g)", {"Gemm.alpha -1", "Gemm.beta 0", "Gemm.transA 1", "Gemm.transB 0"}),
    ],
)
def test_attributes_take_their_whole_range(term: str, wanted: set[str]) -> None:
    """Negative, zero, and each mode."""
    assert wanted <= frozenset[str]().union(*map(settings, _draw_samples(term)))


@given(st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=12))
def test_kept_samples_meet_every_pair_of_settings(of: list[frozenset[str]]) -> None:
    """With as many as there are nothing is lost, and each one kept early adds something."""
    kept = choose_various(list(range(len(of))), of, len(of))
    assert sorted(kept) == list(range(len(of)))
    pairs = [{(a, b) for a in s for b in s} for s in of]
    seen: set[tuple[str, str]] = set()
    news = []
    for index in kept:
        news.append(len(pairs[index] - seen) > 0)
        seen |= pairs[index]
    assert news == sorted(news, reverse=True)


def test_symbolic_sizes_become_others() -> None:
    """Those that inputs share stay shared, in shapes of a Reshape, too; stored constants keep their sizes."""
    x = _leaf("x", (5, 4))
    reshaped = Term("Reshape", (Term("Abs", (x,)), (5, 1, 4)))
    symbolic = with_symbols(Sample((reshaped,), {}, Environment(), {reshaped.arguments[0]: x.type}), Random(1))
    assert symbolic is not None
    (leaf,) = set(leaves(symbolic.roots[0]))
    assert min(leaf.type.shape) < -1
    shapes = {next(leaves(one.roots[0])).type.shape for one, _ in instances(symbolic, Fired((), {}))}
    assert (5, 4) in shapes
    assert len(shapes) > 1


def test_slice_of_a_symbolic_dimension_is_no_sample() -> None:
    """The encoder takes none."""
    term = Term("Slice", (_leaf("x", (5,)), (0,), (2,), (0,), (1,)))
    assert with_symbols(_sample(term), Random(0)) is None


def test_terms_run_as_onnx() -> None:
    """With their literals as inputs or attributes, as ONNX has them."""
    x = _leaf("x", (2, 3))
    term = Term("ReduceSum", (Term("LeakyRelu", (x, -0.5)), (1,), 0))
    elements = {"x": np.float32([[1, -2, 3], [-4, 5, -6]])}
    model = infer_types(term_model([term], {}))
    np.testing.assert_array_equal(run_model(model, elements)[0], [5, 10])


def test_model_that_onnx_forbids_is_refused() -> None:
    """By its shape inference, before anything runs."""
    term = Term("Concat", (_leaf("x", (2, 3)), _leaf("y", (2, 4)), 0))
    with pytest.raises(Refused):
        infer_types(term_model([term], {}))


def test_a_run_does_not_depend_on_runs_of_the_same_rule_before() -> None:
    """The rule is applied to the samples of the first run once more, and they share a constant with the second."""
    two = Leaf("Full", "", Type((2,), "float32", 2.0))
    samples = [_sample(Term("Mul", (_leaf("x", (2,)), two))), _sample(Term("Relu", (_leaf("x", (2,)),)))]
    rule = '(rewrite (Mul a b) (Neg (Mul (Neg a) b)) :ruleset explore :name "rule")'
    scratch = Scratch()
    first, second = (scratch.run(rule, "explore", samples) for _ in range(2))
    for outcomes in (first, second):
        assert isinstance(outcomes[0], Fired)
        assert sum(map(len, outcomes[0].classes.values())) == 6
        assert outcomes[1] is None


def test_samples_are_judged_together_as_alone() -> None:
    """Those that ONNX Runtime has a kernel for; each with the elements that it was given."""
    random = np.random.default_rng(0)
    oracles = []
    for dtype, shape in (("float32", (2,)), ("float32", (3, 1)), ("int8", (2,)), ("int8", (3,))):
        sample = _sample(Term("Cosh", (_leaf("x", shape, dtype),)))
        fired = Fired(
            (EClass(0),), {EClass(0): (ScratchNode("Cosh", (EClass(1),)),), EClass(1): (ScratchNode("Var", ("0.x",)),)}
        )
        oracles.append(Oracle(sample, fired, elements=draw(sample, "ordinary", {}, random)))
    judge_together(oracles)
    assert [oracle.computed is not None for oracle in oracles] == [True, True, False, False]
    for oracle in oracles[:2]:
        assert oracle.computed is not None
        (left,), (right,) = oracle.computed
        assert np.allclose(left, np.cosh(oracle.elements["x"]))
        assert np.array_equal(left, right)


def test_schemas_say_which_types_an_operator_takes() -> None:
    """Each operand by itself, and those that share a type together."""
    floats, integers = Type((2,), "float32"), Type((2,), "int64")
    assert admits("Gather", {"data": floats, "indices": integers})
    assert not admits("Gather", {"data": floats, "indices": floats})
    assert not admits("Add", {"A": floats, "B": integers})
    assert admits("Pow", {"X": floats, "Y": integers})


def test_either_zero_may_be_the_larger() -> None:
    """Numbers are compared as usual in both arithmetics."""
    zeros, numbers = np.float32([0.0, -0.0, 2.0]), np.float32([-0.0, 0.0, 3.0])
    result = FIRST_ZERO.apply("maximum", zeros, numbers)
    np.testing.assert_array_equal(np.signbit(result), [False, True, False])
    assert result[2] == 3
    rows = np.float32([[-0.0, 0.0, -1.0], [-0.0, 1.0, 0.0]])
    reduced = FIRST_ZERO.reduce("maximum", rows, (1,), False)
    np.testing.assert_array_equal(reduced, NUMBERS.reduce("maximum", rows, (1,), False))
    assert np.signbit(reduced[0])
    assert FIRST_ZERO.reduce("minimum", np.empty((0, 3), np.float32), (1,), True).shape == (0, 1)


@pytest.mark.parametrize("steps", [0, 2])
def test_empty_recurrent_networks_stay_out_of_onnx_runtime(steps: int) -> None:
    """It would end the process, with no error to catch."""
    operands = (_leaf("x", (steps, 1, 2)), _leaf("w", (1, 6, 2)), _leaf("r", (1, 6, 2)), *(Leaf("Absent"),) * 3)
    term = Term("Out", (Term("GRU", (*operands, 2, "forward", 0, "{}")), 0))
    elements = {leaf.name: np.zeros(leaf.type.shape, np.float32) for leaf in operands if leaf.kind == "Var"}
    model = term_model([term], {})
    if steps:
        assert run_model(model, elements, reference=False)[0].shape == (steps, 1, 1, 2)
    else:
        with pytest.raises(KernelMissing):
            run_model(model, elements, reference=False)


def test_the_least_integer_divided_by_its_opposite_sign_stays_out_of_onnx_runtime() -> None:
    """Its kernel ends the process, where an integer wraps around by ONNX."""
    leaf = _leaf("x", (2,), "int64")
    model = term_model([Term("Div", (leaf, leaf))], {})
    with pytest.raises(KernelMissing, match="least integer"):
        run_model(model, {"x": np.array([-(2**63), -1])}, reference=False)
    assert run_model(model, {"x": np.array([-7, 3])}, reference=False)[0].tolist() == [1, 1]


def test_branches_take_numbers_of_any_type() -> None:
    """Although the schema of If has one operand, the condition."""
    types = {sample.leaves[1].type.dtype for sample in _draw_samples("(If c x y)")}
    assert {"float32", "int64", "bool"} <= types


def test_concats_have_the_wished_shape_too() -> None:
    """So that a Concat may lie in a cube, whose axes a permutation exchanges unnoticed."""
    samples = _draw_samples("(Transpose (Concat x y a) p) (= (shape (Concat x y a)) s) (= (vec-length s) 3)")
    shapes = {sample.types[root.arguments[0]].shape for sample in samples for root in sample.roots}  # type: ignore
    assert shapes & {(2, 2, 2), (3, 3, 3)}


@pytest.mark.representatives(1)
@pytest.mark.parametrize("head", sorted(RECURRENT))
def test_settings_of_recurrent_networks_are_told_apart(head: str) -> None:
    """Names of activations, numbers and flags, which stand in one string."""
    variables = " ".join(f"v{i}" for i, _ in enumerate(OPERATORS[head].arguments))
    met = frozenset[str]().union(*map(settings, _draw_samples(f"(Out ({head} {variables}) i)")))
    assert any("activations Relu" in each for each in met)
    assert any("clip between 0 and 1" in each for each in met)


# --- elements beside decisions


def _nothing_fired() -> Fired:
    """What a rule that makes nothing makes of a sample with one root."""
    return Fired((EClass(0),), {EClass(0): ()})


def test_a_flip_lies_between_neighbouring_numbers() -> None:
    """Of the elements that are drawn, two that lie next to each other are decided about otherwise."""
    bound = Leaf("Full", "c", Type((), "float32", 0.7))
    sample = _sample(Term("Less", (_leaf("x", (8,)), bound)))
    draws = beside_flips(sample, _nothing_fired(), {}, np.random.default_rng(0))
    drawn = {number for each in draws for number in each["x"].tolist()}
    last, first = np.nextafter(np.float32(0.7), np.float32(0)), np.float32(0.7)
    assert {float(last), float(first)} <= drawn


@pytest.mark.parametrize("number", range(8))
def test_the_middle_of_two_draws_may_have_no_meaning(number: int) -> None:
    """Halfway between -1.5 and 1.5 the quotient of these integers is one by zero."""
    divisor = Term("Cast", (Term("Floor", (_leaf("y", (1,)),)), "int32"))
    sample = _sample(Term("Div", (_leaf("x", (1,), "int32"), divisor)))
    random = np.random.default_rng(number)
    assert all(set(each) == {"x", "y"} for each in beside_flips(sample, _nothing_fired(), {}, random))


def test_constants_take_all_digits() -> None:
    """Few of them are written with few digits in the binary system, as 0.5 and 2.5 are."""
    random = Random(0)
    (way, *_) = left_sides(read("(Less (Mul x c) d) (= (value c) v) (= (value d) u)").forms, random)
    drawn = (draw_sample(way, random, "float32", has_digits=True) for _ in range(60))
    numbers = [number for sample in drawn if sample is not None for number in sample.numbers]
    assert len(numbers) > 20
    assert sum(float(np.float32(number) * 2**10).is_integer() for number in numbers) < len(numbers) / 2


@pytest.mark.parametrize(("kind", "is_lost"), [("Weight", True), ("Var", False)])
def test_a_constant_that_its_type_cannot_hold_is_told_from_a_result(kind: str, is_lost: bool) -> None:
    """`x * (a * b)` beside `(x * a) * b`, 300 times 300 in float16: no graph is chosen with that constant."""
    x = _leaf("x", (1,), "float16")
    a, b = (Leaf(kind, name, Type((1,), "float16")) for name in "ab")
    sample = _sample(Term("Mul", (Term("Mul", (x, a)), b)))
    root, product, *leaf_classes = map(EClass, range(5))
    x_class, a_class, b_class = leaf_classes
    classes = {
        root: [ScratchNode("Mul", (x_class, product))],
        product: [ScratchNode("Mul", (a_class, b_class))],
        x_class: [ScratchNode("Var", ("n.x",))],
        a_class: [ScratchNode(kind, ("n.a",))],
        b_class: [ScratchNode(kind, ("n.b",))],
    }
    elements = {"x": np.float16([1e-3]), "a": np.float16([300]), "b": np.float16([300])}
    evaluation = Evaluation(sample, Fired((root,), classes), elements, {})
    assert [bool(np.isfinite(pair.right).all()) for pair in evaluation.comparisons() if not pair.is_of_one] == [False]
    assert evaluation.has_lost_constant == is_lost

@pytest.mark.parametrize(
    "text",
    [
        "(Add x (Mul y z))",
        "(Where c (Mul x (Mul y z)) w)",
        "(Max (Max x y) z)",
        "(Add (Relu x) (Neg y))",
        "(MatMul x (Add y z))",
        "(Add (Transpose x p) y)",
        "(Sub (Unsqueeze x axes) y)",
        "(Add (ReduceSum x axes 1) y)",
        "(Where c x (Full (vec-empty) 1.0 t)) (= t (dtype x))",
        "(Mul x z) (scalar-value z 0.0)",
        "(PRelu (Add x y) s)",
        "(Softmax (Add x y) k)",
    ],
)
def test_each_leaf_alone_widens_a_result_in_some_sample(text: str) -> None:
    """But for those whose shape a condition or the operator itself gives."""
    given = {"z"} if "scalar-value" in text else {"s"} if "PRelu" in text else set()
    for way in left_sides(read(text).forms, Random(0)):
        for variable in way.widening_leaves:
            drawn = (draw_sample(way, Random(i), "float32", widest=variable) for i in range(12))
            assert variable in given or any(s is not None and s.widens_alone(variable) for s in drawn), variable


def test_samples_of_no_element_reach_the_axis_of_a_softmax() -> None:
    (way, *_) = left_sides(read("(ReduceSum (Softmax x k) axes 1) (single axes k)").forms, Random(0))
    drawn = (draw_sample(way, Random(i), "float32", empty=True) for i in range(12))
    assert any(sample is not None and sample.fills for sample in drawn)
