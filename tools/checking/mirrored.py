"""Mirrored variants of rules that need a check of their own: where an operator does not commute, they say more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ...ir import operators as semantics
from ...ir.operators import Unsupported
from ...ir.operators.numbers import element_type
from ...rules import sexpr
from ...rules.records import Rule, own_example, variants
from .drawing.types import TYPES


def unlike_variants(rule: Rule) -> Iterator[Rule]:
    """The variants of a rule whose left sides do not compute what its own does, each with itself as its example.

    A variant by operators that commute is true where the rule is.
    """
    if all(map(commutes, rule.commutes)):
        return
    for variant in variants(rule, sexpr.read(rule.text).forms[0])[1:]:
        example = own_example(sexpr.read(variant.text).forms[0])
        yield replace(variant, commutes=(), example=example)


@cache
def commutes(head: str) -> bool:
    """Whether an operator of two operands makes the same of matrices in either order, in every type that it takes."""
    random = np.random.default_rng(0)
    for dtype in TYPES:
        a, b = (random.integers(1, 4, (2, 2)).astype(element_type(dtype)) for _ in range(2))
        if dtype != "bool" and not np.array_equal(_apply(head, a, b), _apply(head, b, a)):
            return False
        truths = (np.array([[False, False], [True, True]]), np.array([[False, True], [False, True]]))
        if dtype == "bool" and not np.array_equal(_apply(head, *truths), _apply(head, *truths[::-1])):
            return False
    return True


def _apply(head: str, *operands: Any) -> Any:
    try:
        return semantics.evaluate(head, list(operands))
    except Unsupported:
        return ()
