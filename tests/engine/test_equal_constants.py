"""The rule `equal-constants` unites constants that are equal, and no others."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.engine.egraph.facts import tokens, vector
from eqfuse.engine.egraph.saturate import ITERATION
from eqfuse.rules.egglog_bindings import execute, load
from eqfuse.rules.loader import load_rules, prelude

SIZE = 3
SHAPES = {"a": (SIZE,), "b": (SIZE,), "c": (SIZE, 1), "d": (1, SIZE), "m": (SIZE, SIZE), "n": (SIZE, SIZE), "s": ()}
Array = np.ndarray[Any, Any]


def values() -> dict[str, Array]:
    """One positive number for every element of every stored constant."""
    generator = np.random.default_rng(0)
    return {name: generator.uniform(0.5, 2.0, shape) for name, shape in SHAPES.items()}


def leaves() -> st.SearchStrategy[str]:
    return st.sampled_from([f'(Weight "{name}")' for name in SHAPES])


def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.builds("({} {} {})".format, st.sampled_from(["Add", "Sub", "Mul", "Div", "MatMul"]), inner, inner)
    unary = st.builds("({} {})".format, st.sampled_from(["Neg", "Reciprocal", "Sqrt"]), inner)
    shapes = st.sampled_from([(SIZE,), (SIZE, 1), (1, SIZE), (1, SIZE, 1)])
    reshaped = st.builds(lambda t, s: f"(Reshape {t} {vector(s)})", inner, shapes)
    turned = st.builds("(Transpose {} (vec-of 1 0))".format, inner)
    return st.one_of(binary, unary, reshaped, turned)


terms = st.recursive(leaves(), extend, max_leaves=5)


def parse(text: str) -> Any:
    words = text.replace("(", " ( ").replace(")", " ) ").split()

    def read() -> Any:
        word = words.pop(0)
        if word != "(":
            return word
        items = []
        while words[0] != ")":
            items.append(read())
        words.pop(0)
        return items

    return read()


def evaluate(term: Any, weights: dict[str, Array]) -> Array:
    """The value of a term; ValueError where its shapes do not fit."""
    op, *rest = term
    if op == "Weight":
        return weights[rest[0].strip('"')]
    first = evaluate(rest[0], weights)
    if op == "Reshape":
        return first.reshape([int(d) for d in rest[1][1:]])
    if op == "Transpose":
        return first.transpose(1, 0)
    unary = {"Neg": np.negative, "Reciprocal": np.reciprocal, "Sqrt": np.sqrt}
    if op in unary:
        return np.asarray(unary[op](first))
    binary = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "MatMul": np.matmul}
    return np.asarray(binary[op](first, evaluate(rest[1], weights)))


def value_of(text: str) -> Array | None:
    try:
        with np.errstate(all="ignore"):
            value = evaluate(parse(text), values())
    except (ValueError, np.exceptions.AxisError):
        return None
    return value if bool(np.all(np.isfinite(value))) else None


@cache
def constants() -> Any:
    """An e-graph of the rule and the stored constants."""
    egraph = load().EGraph()
    execute(egraph, prelude())
    execute(egraph, load_rules(only=("equal-constants",)).program)
    for name, shape in SHAPES.items():
        one, two = tokens(f"weight {name}")
        execute(egraph, f'(let $w{name} (Weight "{name}")) (set (shape $w{name}) {vector(shape)})')
        execute(egraph, f'(set (dtype $w{name}) "float64") (set (token $w{name}) (vec-of {one} {two}))')
    return egraph


def are_united(first: str, second: str) -> bool:
    """Whether the two constants end up in one class."""
    execute(constants(), f"(push) (let $first {first}) (let $second {second})")
    try:
        for _ in range(4):
            execute(constants(), ITERATION)
        execute(constants(), "(check (= $first $second))")
    except load().EggSmolError:
        return False
    finally:
        execute(constants(), "(pop)")
    return True


@given(terms, terms)
def test_only_equal_constants_are_united(first: str, second: str) -> None:
    left, right = value_of(first), value_of(second)
    if left is None or right is None or left.shape != right.shape:
        return
    if are_united(first, second):
        np.testing.assert_allclose(left, right, rtol=1e-9)


A, B, C, D, M, N = (f'(Weight "{name}")' for name in "abcdmn")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"(Mul (Mul {A} {B}) {A})", f"(Mul {A} (Mul {A} {B}))"),
        (f"(Add (Mul {A} {B}) (Mul {A} {A}))", f"(Mul {A} (Add {A} {B}))"),
        (f"(Sub {A} (Neg {B}))", f"(Add {B} {A})"),
        (f"(Div {A} {B})", f"(Mul {A} (Reciprocal {B}))"),
        (f"(Mul {M} (Mul {N} {M}))", f"(Mul {N} (Mul {M} {M}))"),
        (f"(Reshape (Add {A} {B}) (vec-of 3 1))", f"(Add (Reshape {A} (vec-of 3 1)) (Reshape {B} (vec-of 3 1)))"),
    ],
)
def test_equal_constants_are_united(first: str, second: str) -> None:
    assert are_united(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"(MatMul {M} {N})", f"(MatMul {N} {M})"),
        (f"(Mul {C} {D})", f"(Mul (Transpose {C} (vec-of 1 0)) (Transpose {D} (vec-of 1 0)))"),
        (f"(Mul {M} {D})", f"(Mul {M} (Transpose {D} (vec-of 1 0)))"),
        (f"(Transpose {M} (vec-of 1 0))", M),
        (f"(Div {A} {B})", f"(Div {B} {A})"),
    ],
)
def test_different_constants_stay_apart(first: str, second: str) -> None:
    assert not are_united(first, second)
