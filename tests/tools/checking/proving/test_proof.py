"""Proofs over symbolic arrays: what must be proved, refuted, or asks for an assumption."""

from __future__ import annotations

import numpy as np
import pytest

from eqfuse.ir.operators import Array, Attribute, evaluate
from eqfuse.tools.checking.proving.arithmetics import Reals
from eqfuse.tools.checking.proving.equality import Assumption, Proof, leaf_array, prove_equal

REALS = Reals()
A, B, C, X = (leaf_array(name, (), "float32", REALS) for name in "abcx")
M = leaf_array("m", (2, 3), "float32", REALS)
TRUTH = leaf_array("t", (), "bool", REALS)


def op(head: str, *arguments: Array | Attribute | None) -> Array:
    """An operator of the rule language over the reals."""
    result = evaluate(head, arguments, REALS)
    assert isinstance(result, np.ndarray)
    return result


def number(value: float) -> Array:
    return REALS.constant(value, A)


def prove(left: Array, right: Array, *assumptions: Assumption) -> Proof:
    return prove_equal(left, right, assumptions, REALS)


def positive(name: str) -> tuple[Assumption, Assumption]:
    return Assumption("nonneg", name), Assumption("nonzero", name)


def mean(x: Array) -> Array:
    return op("ReduceMean", x, (1,), 1)


def variance(x: Array) -> Array:
    centred = op("Sub", x, mean(x))
    return mean(op("Mul", centred, centred))


def moments(x: Array) -> Array:
    return op("Sub", mean(op("Mul", x, x)), op("Mul", mean(x), mean(x)))


def standardized(x: Array, spread: Array) -> Array:
    return op("Div", op("Sub", x, mean(x)), op("Sqrt", op("Add", spread, number(1e-5))))


def maximum_of_window(x: Array) -> Array:
    return op("ReduceMax", x, (1,), 0)


RECIPROCAL = op("Reciprocal", A)
SUM = op("Add", A, B)
CLIPPED = op("Clip", op("Clip", X, A, B), number(-1.0), C)

PROVED = {
    "reciprocal of product": (
        op("Mul", RECIPROCAL, op("Reciprocal", op("Mul", A, B))),
        op("Mul", op("Mul", RECIPROCAL, RECIPROCAL), op("Reciprocal", B)),
    ),
    "absolute values": (
        op("Mul", op("Mul", op("Abs", A), B), op("Abs", C)),
        op("Mul", op("Abs", op("Mul", A, C)), B),
    ),
    "product of exponentials": (op("Mul", op("Exp", A), op("Exp", B)), op("Exp", SUM)),
    "product of many exponentials": (op("ReduceProd", op("Exp", M), (1,), 1), op("Exp", op("ReduceSum", M, (1,), 1))),
    "softmax of shifted": (op("Softmax", op("Add", M, A), 1), op("Softmax", M, 1)),
    "sigmoid": (op("Sigmoid", X), op("Reciprocal", op("Add", op("Exp", op("Neg", X)), number(1.0)))),
    "swish": (op("Mul", X, op("Sigmoid", X)), op("Swish", X, 1.0)),
    "one minus sigmoid": (op("Sub", number(1.0), op("Sigmoid", X)), op("Sigmoid", op("Neg", X))),
    "tanh of sigmoid": (
        op("Tanh", X),
        op("Sub", op("Mul", number(2.0), op("Sigmoid", op("Mul", number(2.0), X))), number(1.0)),
    ),
    "square minus product": (
        op("Sub", op("Mul", SUM, SUM), op("Mul", SUM, C)),
        op("Mul", SUM, op("Sub", SUM, C)),
    ),
    "maximum of shifted": (op("Add", op("Max", A, B), C), op("Max", op("Add", A, C), op("Add", B, C))),
    "relu as a choice": (op("Where", op("Less", X, number(0.0)), number(0.0), X), op("Relu", X)),
    "parts of a number": (op("Sub", op("Relu", X), op("Relu", op("Neg", X))), X),
    "clips in a row": (
        CLIPPED,
        op("Clip", X, op("Clip", A, number(-1.0), C), op("Clip", B, number(-1.0), C)),
    ),
    "elu by minima": (
        op("Where", op("Greater", X, number(0.0)), X, op("Sub", op("Exp", X), number(1.0))),
        op("Add", op("Relu", X), op("Min", op("Sub", op("Exp", X), number(1.0)), number(0.0))),
    ),
    "bounds of sigmoid": (op("Clip", op("Sigmoid", X), number(0.0), number(1.0)), op("Sigmoid", X)),
    "maximum of an increasing function": (maximum_of_window(op("Tanh", M)), op("Tanh", maximum_of_window(M))),
    "square root of square": (op("Sqrt", op("Mul", X, X)), op("Abs", X)),
    "power as root": (op("Pow", X, number(-0.5)), op("Reciprocal", op("Sqrt", X))),
    "sine over cosine": (op("Div", op("Sin", X), op("Cos", X)), op("Tan", X)),
    "variance": (variance(M), moments(M)),
    "layer normalization": (standardized(M, variance(M)), standardized(M, moments(M))),
    "choice of the defined": (
        op("Where", op("Equal", X, number(0.0)), A, op("Reciprocal", X)),
        op("Where", op("Equal", X, number(0.0)), A, op("Div", number(1.0), X)),
    ),
    "truth values": (op("And", TRUTH, op("Not", TRUTH)), op("Xor", TRUTH, TRUTH)),
    "matrix product": (
        op("MatMul", op("MatMul", M, leaf_array("n", (3, 2), "float32", REALS)), M),
        op("MatMul", M, op("MatMul", leaf_array("n", (3, 2), "float32", REALS), M)),
    ),
}


@pytest.mark.parametrize("name", PROVED)
def test_identity_is_proved(name: str) -> None:
    assert prove(*PROVED[name]) == Proof("proved")


def test_convolution_is_linear_in_its_weights() -> None:
    x = leaf_array("x", (1, 2, 3, 3), "float32", REALS)
    v, w = (leaf_array(name, (2, 2, 2, 2), "float32", REALS) for name in "vw")
    rest = (None, (2, 2), (0, 0, 0, 0), (1, 1), (1, 1), 1)
    left = op("Add", op("Conv", x, v, *rest), op("Conv", x, w, *rest))
    assert prove(left, op("Conv", x, op("Add", v, w), *rest)).outcome == "proved"


NEEDING = {
    "square of root": (op("Mul", op("Sqrt", B), op("Sqrt", B)), B, (Assumption("nonneg", "b"),), "left-undefined"),
    "number over itself": (op("Div", A, A), number(1.0), (Assumption("nonzero", "a"),), "left-undefined"),
    "logarithm of product": (
        op("Log", op("Mul", A, B)),
        op("Add", op("Log", A), op("Log", B)),
        (*positive("a"), *positive("b")),
        "right-undefined",
    ),
    "logarithm of power": (
        op("Log", op("Pow", A, B)),
        op("Mul", B, op("Log", A)),
        positive("a"),
        "right-undefined",
    ),
    "maximum of multiples": (
        op("Max", op("Mul", A, C), op("Mul", B, C)),
        op("Mul", C, op("Max", A, B)),
        (Assumption("nonneg", "c"),),
        "value",
    ),
    "product by a number": (op("Mul", A, C), op("Add", A, A), (Assumption("value", "c", 2.0),), "value"),
    "root of products": (
        op("ReduceProd", op("Sqrt", M), (1,), 0),
        op("Sqrt", op("ReduceProd", M, (1,), 0)),
        (Assumption("nonneg", "m"),),
        "left-undefined",
    ),
}


@pytest.mark.parametrize("name", NEEDING)
def test_identity_is_proved_under_its_assumptions(name: str) -> None:
    left, right, assumptions, _ = NEEDING[name]
    assert prove(left, right, *assumptions) == Proof("proved", needs=True)


@pytest.mark.parametrize("name", NEEDING)
def test_identity_without_its_assumptions_is_refuted(name: str) -> None:
    left, right, _, failure = NEEDING[name]
    proof = prove(left, right)
    assert (proof.outcome, proof.failure) == ("refuted", failure)


def test_needless_assumptions_are_not_needed() -> None:
    assert not prove(SUM, op("Add", B, A), *positive("a")).needs


REFUTED = {
    "sum and product": (op("Add", A, B), op("Mul", A, B)),
    "order of clips": (op("Clip", X, A, B), op("Max", op("Min", X, B), A)),
    "open and closed bound": (
        op("Where", op("Greater", X, number(7.3)), A, B),
        op("Where", op("GreaterOrEqual", X, number(7.3)), A, B),
    ),
    "mean of unequal parts": (
        op("ReduceMean", M, (0, 1), 0),
        op("Mul", number(0.5), op("Add", op("ReduceMean", M[:, :1], (0, 1), 0), op("ReduceMean", M[:, 1:], (0, 1), 0))),
    ),
    "exponential and line": (op("Exp", X), op("Add", X, number(1.0))),
    "root of square": (op("Sqrt", op("Mul", X, X)), X),
}


@pytest.mark.parametrize("name", REFUTED)
def test_wrong_identity_is_refuted(name: str) -> None:
    proof = prove(*REFUTED[name])
    assert (proof.outcome, proof.failure) == ("refuted", "value")


def test_counterexample_names_leaf_elements() -> None:
    proof = prove(M, op("Neg", M))
    assert proof.counterexample.keys() == {"m[0,0]"}


def test_reason_shows_both_sides() -> None:
    proof = prove(op("Add", A, A), A)
    assert proof.reason == "differ: left 2, right 1"


def test_reason_says_where_a_side_is_undefined() -> None:
    proof = prove(A, op("Reciprocal", op("Reciprocal", A)))
    assert proof.reason == "right side undefined where the left is defined: a = 0"


def test_an_equation_of_functions_beyond_the_axioms_stays_open() -> None:
    proof = prove(op("Sin", op("Add", A, A)), op("Mul", number(2.0), op("Mul", op("Sin", A), op("Cos", A))))
    assert proof.outcome == "unknown"


def test_shapes_differ() -> None:
    assert prove(A, M).reason == "shapes [] and [2, 3]"
