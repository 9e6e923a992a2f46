"""Mirrored variants of a rewrite."""

from __future__ import annotations

import pytest

from eqfuse.rules.commute import mirror
from eqfuse.rules.sexpr import read


def variants(rewrite: str, *names: str) -> list[str]:
    return [str(form.items[1]) for form in mirror(read(rewrite).forms[0], frozenset(names))]


@pytest.mark.parametrize(
    ("rewrite", "names", "expected"),
    [
        ("(rewrite (Add (Relu a) b) (Max a b))", ("Add",), ["(Add b (Relu a))"]),
        ("(rewrite (Add a b) (Mul a b))", ("Mul",), []),  # only what the left side has
        ("(rewrite (Add a b) (Mul a b))", ("Add", "Mul"), []),  # a renaming makes it the same
        ("(rewrite (Add a b) (Sub a b))", ("Add",), ["(Add b a)"]),  # another right side
        ("(rewrite (Add a a) (Relu a))", ("Add",), []),
        ("(rewrite (Add a (Full s v t)) (Relu a))", ("Add",), ["(Add (Full s v t) a)"]),
        (
            "(rewrite (Add (Mul a b) (Mul a c)) (Mul a (Add b c)))",
            ("Add", "Mul"),
            ["(Add (Mul a b) (Mul c a))", "(Add (Mul b a) (Mul a c))", "(Add (Mul b a) (Mul c a))"],
        ),
        ("(rewrite (Add (Relu a) (Relu b)) c :when ((nonneg a)))", ("Add",), ["(Add (Relu b) (Relu a))"]),
        ("(rewrite (Add (Relu a) (Relu b)) c :when ((nonneg a) (nonneg b)))", ("Add",), []),
    ],
)
def test_variants(rewrite: str, names: tuple[str, ...], expected: list[str]) -> None:
    assert sorted(variants(rewrite, *names)) == sorted(expected)


def test_everything_else_stays() -> None:
    (variant,) = mirror(read('(rewrite (Add (Neg a) b) (Sub b a) :ruleset r :name "n")').forms[0], frozenset({"Add"}))
    assert str(variant) == '(rewrite (Add b (Neg a)) (Sub b a) :ruleset r :name "n")'
