"""Rules as a hurried engineer writes them, each wrong for one reason that small, friendly samples do not show, and
right ones that look alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eqfuse.tools.checking.verdict import Verdict

Check = Callable[..., Verdict]

_SAME = "(= (shape ({0} x c)) (shape x))"

CARELESS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    # signs of zero, NaN, infinities
    "nothing added": ("exact", "(Add x c)", "x", ("(= (value c) 0.0)", _SAME.format("Add"))),
    "nothing left of a product": (
        "exact",
        "(Mul x c)",
        "(Full s 0.0 t)",
        ("(= (value c) 0.0)", "(= s (shape (Mul x c)))", "(= t (dtype x))"),
    ),
    "a difference of equals": ("exact", "(Sub x x)", "(Full s 0.0 t)", ("(= s (shape x))", "(= t (dtype x))")),
    "not less": ("exact", "(Not (Less a b))", "(GreaterOrEqual a b)", ()),
    "not less over the reals": ("real", "(Not (Less a b))", "(GreaterOrEqual a b)", ("(floating a)",)),
    "equal to itself": ("exact", "(Equal x x)", '(Full s 1.0 "bool")', ("(= s (shape x))", "(floating x)")),
    "a guard against NaN": ("real", "(Where (Less x y) x y)", "(Min x y)", ()),
    "a mask as a factor": (
        "real",
        "(Where c x z)",
        "(Mul x (Cast c t))",
        ("(= (value z) 0.0)", "(= t (dtype x))", "(floating x)", "(= (shape (Where c x z)) (shape x))"),
    ),
    "the largest after rounding up": ("exact", "(ReduceMax (Ceil x) axes k)", "(Ceil (ReduceMax x axes k))", ()),
    "a negated sum": ("exact", "(ReduceSum (Neg x) axes k)", "(Neg (ReduceSum x axes k))", ()),
    "half rounded up": ("exact", "(Round x)", "(Floor (Add x (Full (vec-empty) 0.5 t)))", ("(= t (dtype x))",)),
    # negative, zero and large attributes
    "slopes multiplied": ("real", "(LeakyRelu (LeakyRelu x a) b)", "(LeakyRelu x c)", ("(= c (* a b))",)),
    "a slope as a maximum": (
        "real",
        "(LeakyRelu x a)",
        "(Max x (Mul x (Full (vec-empty) a t)))",
        ("(= t (dtype x))",),
    ),
    "the largest under a bend": ("real", "(ReduceMax (Elu x a) axes k)", "(Elu (ReduceMax x axes k) a)", ()),
    "a sigmoid mirrored": (
        "real",
        "(ReduceMax (HardSigmoid x a b) axes k)",
        "(HardSigmoid (ReduceMax x axes k) a b)",
        (),
    ),
    "a threshold below zero": ("real", "(Relu (ThresholdedRelu x a))", "(ThresholdedRelu x a)", ()),
    "pads that cut": (
        "exact",
        '(Pad (Pad x p (Absent) "constant") q (Absent) "constant")',
        '(Pad x (vec-of a b) (Absent) "constant")',
        (
            "(= 2 (vec-length p))",
            "(= 2 (vec-length q))",
            "(= a (+ (vec-get p 0) (vec-get q 0)))",
            "(= b (+ (vec-get p 1) (vec-get q 1)))",
        ),
    ),
    "pads that add nothing to a sum": (
        "real",
        '(ReduceSum (Pad x p (Absent) "constant") axes k)',
        "(ReduceSum x axes k)",
        (),
    ),
    "indices from the end": ("exact", "(Gather x i ax)", "(Gather x (Abs i) ax)", ()),
    "indices into the first part": ("exact", "(Gather (Concat x y ax) i ax)", "(Gather x i ax)", ()),
    "a factor of a bias": ("real", "(Gemm a b c 1.0 be ta tb)", "(Gemm a b c 1.0 1.0 ta tb)", ()),
    # element types
    "a division undone": ("real", "(Div (Mul a c) c)", "a", ("(nonzero c)", "(= (shape (Mul a c)) (shape a))")),
    "a mean of a sum": (
        "real",
        "(ReduceMean (Add x y) axes k)",
        "(Add (ReduceMean x axes k) (ReduceMean y axes k))",
        ("(= (shape x) (shape y))",),
    ),
    "a remainder of a negative number": ("exact", "(Mod (Neg x) y 0)", "(Neg (Mod x y 0))", ("(nonzero y)",)),
    "a remainder as in C": ("exact", "(Mod x y 0)", "(Mod x y 1)", ("(nonzero y)",)),
    "casts through a narrow type": (
        "exact",
        '(Cast (Cast x "float16") "float32")',
        "x",
        ('(= (dtype x) "float32")',),
    ),
    "casts that skip a type": ("exact", "(Cast (Cast x a) b)", "(Cast x b)", ()),
    "a constant of one type": ("real", "(Add x x)", '(Mul x (Full (vec-empty) 2.0 "float32"))', ()),
    "shifts that lose bits": (
        "exact",
        '(BitShift (BitShift x c "LEFT") c "RIGHT")',
        "x",
        ('(= (shape (BitShift x c "LEFT")) (shape x))',),
    ),
    "a power of integers": (
        "real",
        "(Pow x c)",
        "(Reciprocal x)",
        ("(= (value c) -1.0)", "(= (shape c) (vec-empty))"),
    ),
    # ranks, sizes, modes
    "products of vectors": ("real", "(MatMul (MatMul a b) c)", "(MatMul a (MatMul b c))", ()),
    "bounds in the other order": ("exact", "(Clip x l h)", "(Max (Min x h) l)", ()),
    "a broadcast that widens": ("real", "(Mul x (Full s 1.0 t))", "x", ()),
    "equal branches of a wide condition": ("exact", "(Where c x x)", "x", ()),
    "any interpolation": ("real", "(Relu (Resize x m c))", "(Resize (Relu x) m c)", ()),
    "a permutation taken for its inverse": ("exact", "(Transpose (Transpose x p) p)", "x", ()),
    "an axis from before": ("real", "(Softmax (Transpose x p) ax)", "(Transpose (Softmax x ax) p)", ()),
    "axes counted after the first reduction": (
        "exact",
        "(ReduceMax (ReduceMax x a 0) b 0)",
        "(ReduceMax x c 0)",
        ("(= c (vec-append a b))",),
    ),
    "the last axis of any tensor": (
        "exact",
        "(Relu (Concat x y 0))",
        "(Concat (Relu x) (Relu y) ax)",
        ("(= ax (- (vec-length (shape x)) 1))",),
    ),
    "steps multiplied": (
        "exact",
        "(Slice (Slice x (vec-of 0) e (vec-of 0) (vec-of 2)) (vec-of 0) f (vec-of 0) (vec-of 2))",
        "(Slice x (vec-of 0) e (vec-of 0) (vec-of 4))",
        (),
    ),
    "exclusive running sums": ("real", "(CumSum x a e r)", "(CumSum x a 0 r)", ()),
    "positions rounded up": ("real", "(AveragePool x k p s d c i)", "(AveragePool x k p s d 0 i)", ()),
    "pads that count": ("real", "(AveragePool x k p s d c i)", "(AveragePool x k p s d c 0)", ()),
    "one group": ("real", "(Conv x w b k p s d g)", "(Conv x w b k p s d 1)", ()),
    "another epsilon": ("real", "(BatchNormalization x s b m v e)", "(BatchNormalization x s b m v 1e-05)", ()),
    "a batch of unequal images": (
        "real",
        "(Concat (Conv x w b k p s d g) (Conv y w b k p s d g) 0)",
        "(Conv (Concat x y 0) w b k p s d g)",
        (),
    ),
    "a size taken for a number": (
        "real",
        "(ReduceMean x (vec-of 0) 1)",
        "(Mul (ReduceSum x (vec-of 0) 1) (Full (vec-empty) f t))",
        ("(= d (vec-get (shape x) 0))", "(!= d 0)", "(= f (/ 1.0 (to-f64 d)))", "(= t (dtype x))", "(floating x)"),
    ),
    "sizes multiplied": (
        "exact",
        "(Flatten x 1)",
        "(Reshape x (vec-of a b))",
        ("(= s (shape x))", "(= 3 (vec-length s))", "(= a (vec-get s 0))", "(= b (* (vec-get s 1) (vec-get s 2)))"),
    ),
    "a small size": (
        "exact",
        "(ReduceMax x (vec-of 0) 1)",
        "x",
        ("(= d (vec-get (shape x) 0))", "(< d 2)", "(!= d 0)"),
    ),
}

RIGHT: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "one multiplied": ("exact", "(Mul x c)", "x", ("(= (value c) 1.0)", _SAME.format("Mul"))),
    "less the other way round": ("exact", "(Less a b)", "(Greater b a)", ()),
    "the largest after a step": ("real", "(ReduceMax (Ceil x) axes k)", "(Ceil (ReduceMax x axes k))", ()),
    "a rounded opposite": ("exact", "(Round (Neg x))", "(Neg (Round x))", ()),
    "a bend of positive slope": (
        "real",
        "(ReduceMax (LeakyRelu x a) axes k)",
        "(LeakyRelu (ReduceMax x axes k) a)",
        ("(> a 0.0)",),
    ),
    "the larger threshold": (
        "real",
        "(ThresholdedRelu (ThresholdedRelu x a) b)",
        "(ThresholdedRelu x c)",
        ("(= c (max a b))",),
    ),
    "a mean of a sum": (
        "real",
        "(ReduceMean (Add x y) axes k)",
        "(Add (ReduceMean x axes k) (ReduceMean y axes k))",
        ("(= (shape x) (shape y))", "(floating x)"),
    ),
    "a half of a byte": (
        "exact",
        "(Div x c)",
        '(BitShift x (Full (vec-empty) 1.0 "uint8") "RIGHT")',
        ("(= (value c) 2.0)", '(= (dtype x) "uint8")', _SAME.format("Div")),
    ),
    "a size that is known": (
        "real",
        "(ReduceMean x (vec-of 0) 1)",
        "(Mul (ReduceSum x (vec-of 0) 1) (Full (vec-empty) f t))",
        ("(= d (vec-get (shape x) 0))", "(> d 0)", "(= f (/ 1.0 (to-f64 d)))", "(= t (dtype x))", "(floating x)"),
    ),
    "a kept axis dropped": ("exact", "(Squeeze (ReduceMax x axes 1) axes)", "(ReduceMax x axes 0)", ()),
}


@pytest.mark.representatives(3)
@pytest.mark.parametrize("name", CARELESS)
def test_careless_rule_is_refuted(name: str, verdict: Check) -> None:
    """With a sample that shows it."""
    sound, left, right, conditions = CARELESS[name]
    found = verdict(left, right, *conditions, sound=sound)
    assert found.kind == "refuted", found
    assert found.counterexample is not None
    assert found.counterexample.sample


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", RIGHT)
def test_right_rule_is_accepted(name: str, verdict: Check) -> None:
    """What differs by rounding only, or is guarded, is no reason to refuse a rule."""
    sound, left, right, conditions = RIGHT[name]
    found = verdict(left, right, *conditions, sound=sound)
    assert found.kind in ("proved", "proved-if", "tested"), found


def test_right_side_that_no_sample_can_compute_is_the_reason(verdict: Check) -> None:
    """It is not passed over: the left side has a meaning there."""
    found = verdict("(Concat (Relu x) (Relu y) 0)", "(Concat x (Relu y) 5)")
    assert found.kind == "refuted"
    assert "the right side has no meaning where the left has" in found.reason


def test_what_no_sample_reached_is_listed(verdict: Check) -> None:
    """A rule for matrices of one type says that it knows nothing of others."""
    found = verdict("(Relu (Relu x))", "(Relu x)", "(= 2 (vec-length (shape x)))", '(= (dtype x) "float32")')
    assert found.accepted
    assert any("rank 0, 1, 3, 4, 5" in line for line in found.uncovered)
    assert any(line.startswith("never element type float64") for line in found.uncovered)
