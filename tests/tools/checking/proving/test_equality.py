"""Proofs over symbolic arrays: which equations are proved, refuted, or need an assumption."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqfuse.ir.operators import OPERATORS, Array, Operand, Unsupported, evaluate
from eqfuse.rules.sexpr import Atom, Node, read
from eqfuse.tools.checking.proving.arithmetics import Bits, Reals
from eqfuse.tools.checking.proving.equality import Assumption, EqualityProof, leaf_array, prove_equal

REALS, SIGNED, UNSIGNED = Reals(), Bits(8), Bits(8, signed=False)
SHAPES: dict[str, tuple[int, ...]] = {"m": (2, 3), "n": (3, 2), "i": (1, 2, 3, 3), "v": (2, 2, 2, 2), "w": (2, 2, 2, 2)}
"""Of leaves; all others are scalars. `t` is a truth value."""


def term(text: str, arithmetic: Reals | Bits = REALS) -> Array:
    """A term of the rule language; numbers in the place of operands are constants."""

    def value(node: Node) -> Any:
        if isinstance(node, Atom):
            if node.text[0].isalpha():
                dtype = "bool" if node.text == "t" else "int32"
                return leaf_array(node.text, SHAPES.get(node.text, ()), dtype, arithmetic)
            return float(node.text) if "." in node.text else int(node.text)
        if node.head == "Absent":
            return None
        arguments = [value(item) for item in node.items[1:]]
        if node.head == "vec-of":
            return tuple(arguments)
        for i, (argument, given) in enumerate(zip(OPERATORS[node.head].arguments, arguments, strict=True)):
            if isinstance(argument, Operand) and isinstance(given, (int, float)):
                arguments[i] = arithmetic.constant(given, np.zeros(()))
        return evaluate(node.head, arguments, arithmetic)

    result = value(read(text).forms[0] if text.startswith("(") else Atom(text))
    return result if isinstance(result, np.ndarray) else arithmetic.constant(result, np.zeros(()))


def prove(left: str, right: str, *assumptions: Assumption, arithmetic: Reals | Bits = REALS) -> EqualityProof:
    return prove_equal(term(left, arithmetic), term(right, arithmetic), assumptions, arithmetic)


def positive(name: str) -> tuple[Assumption, Assumption]:
    return Assumption("nonneg", name), Assumption("nonzero", name)


MEAN = "(ReduceMean m (vec-of 1) 1)"
CENTRED = f"(Sub m {MEAN})"
VARIANCE = f"(ReduceMean (Mul {CENTRED} {CENTRED}) (vec-of 1) 1)"
MOMENTS = f"(Sub (ReduceMean (Mul m m) (vec-of 1) 1) (Mul {MEAN} {MEAN}))"
CONV = "(vec-of 2 2) (vec-of 0 0 0 0) (vec-of 1 1) (vec-of 1 1) 1"

PROVED = {
    "reciprocal of product": (
        "(Mul (Reciprocal a) (Reciprocal (Mul a b)))",
        "(Mul (Mul (Reciprocal a) (Reciprocal a)) (Reciprocal b))",
    ),
    "absolute values": ("(Mul (Mul (Abs a) b) (Abs c))", "(Mul (Abs (Mul a c)) b)"),
    "product of exponentials": ("(Mul (Exp a) (Exp b))", "(Exp (Add a b))"),
    "product of many exponentials": ("(ReduceProd (Exp m) (vec-of 1) 1)", "(Exp (ReduceSum m (vec-of 1) 1))"),
    "softmax of shifted": ("(Softmax (Add m a) 1)", "(Softmax m 1)"),
    "sigmoid": ("(Sigmoid x)", "(Reciprocal (Add (Exp (Neg x)) 1.0))"),
    "swish": ("(Mul x (Sigmoid x))", "(Swish x 1.0)"),
    "one minus sigmoid": ("(Sub 1.0 (Sigmoid x))", "(Sigmoid (Neg x))"),
    "tanh of sigmoid": ("(Tanh x)", "(Sub (Mul 2.0 (Sigmoid (Mul 2.0 x))) 1.0)"),
    "square minus product": (
        "(Sub (Mul (Add a b) (Add a b)) (Mul (Add a b) c))",
        "(Mul (Add a b) (Sub (Add a b) c))",
    ),
    "maximum of shifted": ("(Add (Max a b) c)", "(Max (Add a c) (Add b c))"),
    "relu as a choice": ("(Where (Less x 0.0) 0.0 x)", "(Relu x)"),
    "parts of a number": ("(Sub (Relu x) (Relu (Neg x)))", "x"),
    "clips in a row": ("(Clip (Clip x a b) -1.0 c)", "(Clip x (Clip a -1.0 c) (Clip b -1.0 c))"),
    "elu by minima": (
        "(Where (Greater x 0.0) x (Sub (Exp x) 1.0))",
        "(Add (Relu x) (Min (Sub (Exp x) 1.0) 0.0))",
    ),
    "bounds of sigmoid": ("(Clip (Sigmoid x) 0.0 1.0)", "(Sigmoid x)"),
    "maximum of an increasing function": ("(ReduceMax (Tanh m) (vec-of 1) 0)", "(Tanh (ReduceMax m (vec-of 1) 0))"),
    "square root of square": ("(Sqrt (Mul x x))", "(Abs x)"),
    "power as root": ("(Pow x -0.5)", "(Reciprocal (Sqrt x))"),
    "sine over cosine": ("(Div (Sin x) (Cos x))", "(Tan x)"),
    "variance": (VARIANCE, MOMENTS),
    "layer normalization": (
        f"(Div {CENTRED} (Sqrt (Add {VARIANCE} 0.00001)))",
        f"(Div {CENTRED} (Sqrt (Add {MOMENTS} 0.00001)))",
    ),
    "choice of the defined": ("(Where (Equal x 0.0) a (Reciprocal x))", "(Where (Equal x 0.0) a (Div 1.0 x))"),
    "truth values": ("(And t (Not t))", "(Xor t t)"),
    "matrix product": ("(MatMul (MatMul m n) m)", "(MatMul m (MatMul n m))"),
    "convolution of a sum of weights": (
        f"(Add (Conv i v (Absent) {CONV}) (Conv i w (Absent) {CONV}))",
        f"(Conv i (Add v w) (Absent) {CONV})",
    ),
}


@pytest.mark.parametrize("name", PROVED)
def test_identity_is_proved(name: str) -> None:
    assert prove(*PROVED[name]) == EqualityProof("proved")


NEEDING = {
    "square of root": ("(Mul (Sqrt b) (Sqrt b))", "b", (Assumption("nonneg", "b"),), "left-undefined"),
    "number over itself": ("(Div a a)", "1.0", (Assumption("nonzero", "a"),), "left-undefined"),
    "logarithm of product": (
        "(Log (Mul a b))", "(Add (Log a) (Log b))", (*positive("a"), *positive("b")), "right-undefined",
    ),
    "logarithm of power": ("(Log (Pow a b))", "(Mul b (Log a))", positive("a"), "right-undefined"),
    "maximum of multiples": (
        "(Max (Mul a c) (Mul b c))", "(Mul c (Max a b))", (Assumption("nonneg", "c"),), "value",
    ),
    "product by a number": ("(Mul a c)", "(Add a a)", (Assumption("value", "c", 2.0),), "value"),
    "root of products": (
        "(ReduceProd (Sqrt m) (vec-of 1) 0)",
        "(Sqrt (ReduceProd m (vec-of 1) 0))",
        (Assumption("nonneg", "m"),),
        "left-undefined",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDING)
def test_identity_is_proved_under_its_assumptions_only(name: str) -> None:
    left, right, assumptions, failure = NEEDING[name]
    assert prove(left, right, *assumptions) == EqualityProof("proved", needs=True)
    proof = prove(left, right)
    assert (proof.outcome, proof.failure) == ("refuted", failure)


def test_needless_assumptions_are_not_needed() -> None:
    assert not prove("(Add a b)", "(Add b a)", *positive("a")).needs


REFUTED = {
    "sum and product": ("(Add a b)", "(Mul a b)"),
    "order of clips": ("(Clip x a b)", "(Max (Min x b) a)"),
    "open and closed bound": ("(Where (Greater x 7.3) a b)", "(Where (GreaterOrEqual x 7.3) a b)"),
    "mean of unequal parts": (
        "(ReduceMean m (vec-of 0 1) 0)",
        "(Mul 0.5 (Add (ReduceMean (Slice m (vec-of 0) (vec-of 1) (vec-of 1) (vec-of 1)) (vec-of 0 1) 0)"
        " (ReduceMean (Slice m (vec-of 1) (vec-of 3) (vec-of 1) (vec-of 1)) (vec-of 0 1) 0)))",
    ),
    "exponential and line": ("(Exp x)", "(Add x 1.0)"),
    "root of square": ("(Sqrt (Mul x x))", "x"),
}


@pytest.mark.parametrize("name", REFUTED)
def test_wrong_identity_is_refuted(name: str) -> None:
    proof = prove(*REFUTED[name])
    assert (proof.outcome, proof.failure) == ("refuted", "value")


def test_counterexample_names_leaf_elements() -> None:
    assert prove("m", "(Neg m)").counterexample.keys() == {"m[0,0]"}


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ("(Add a a)", "a", "differ: left 2, right 1"),
        ("a", "(Reciprocal (Reciprocal a))", "right side undefined where the left is defined: a = 0"),
        ("a", "m", "shapes [] and [2, 3]"),
    ],
)
def test_reason_of_a_refutation(left: str, right: str, reason: str) -> None:
    assert prove(left, right).reason == reason


def test_an_equation_of_functions_beyond_the_axioms_stays_open() -> None:
    assert prove("(Sin (Add a a))", "(Mul 2.0 (Mul (Sin a) (Cos a)))").outcome == "unknown"


# --- whole numbers of a few bits


@pytest.mark.parametrize(
    ("left", "right", "outcome", "failure"),
    [
        ("(Mul x (Add y z))", "(Add (Mul x y) (Mul x z))", "proved", ""),
        ("(Mul (Div x y) y)", "x", "refuted", "value"),
        ("(Div x x)", "1", "refuted", "left-undefined"),
    ],
)
def test_equation_of_words(left: str, right: str, outcome: str, failure: str) -> None:
    proof = prove(left, right, arithmetic=SIGNED)
    assert (proof.outcome, proof.failure) == (outcome, failure)


def test_sum_commutes_with_left_shift_only() -> None:
    x, s = leaf_array("x", (2,), "int32", SIGNED), leaf_array("s", (), "int32", SIGNED)

    def compare(direction: str) -> EqualityProof:
        shifted = SIGNED.reduce("add", SIGNED.apply(direction, x, s), (0,), True)
        return prove_equal(shifted, SIGNED.apply(direction, SIGNED.reduce("add", x, (0,), True), s), (), SIGNED)

    assert compare("shift_left") == EqualityProof("proved")
    proof = compare("shift_right")
    assert (proof.outcome, set(proof.counterexample)) == ("refuted", {"s", "x[0]", "x[1]"})


@pytest.mark.parametrize(("arithmetic", "needs"), [(SIGNED, True), (UNSIGNED, False)])
def test_absolute_value_of_words_that_are_not_negative(arithmetic: Bits, needs: bool) -> None:
    proof = prove("(Abs x)", "x", Assumption("nonneg", "x"), arithmetic=arithmetic)
    assert proof == EqualityProof("proved", needs=needs)


def test_value_of_a_leaf_is_assumed() -> None:
    proof = prove("(Add x x)", "6", Assumption("value", "x", 3.0), arithmetic=SIGNED)
    assert proof == EqualityProof("proved", needs=True)


def test_functions_of_fractions_are_unsupported() -> None:
    with pytest.raises(Unsupported):
        term("(Exp x)", SIGNED)


@pytest.mark.parametrize("value", [0.5, 128, -129])
def test_constants_outside_of_the_range_are_unsupported(value: float) -> None:
    with pytest.raises(Unsupported):
        SIGNED.constant(value, np.zeros(()))
