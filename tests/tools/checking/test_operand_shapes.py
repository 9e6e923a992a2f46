"""Samples have every kind of shape that ONNX Runtime takes for each operand beside another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from random import Random

import numpy as np
import pytest

from eqfuse.ir.operators import OPERATORS, Attribute, Unsupported, evaluate
from eqfuse.ir.operators.numbers import element_type
from eqfuse.tools.checking.oracles.onnx_oracle import KernelMissing, Refused, infer_types, run_model, term_model
from eqfuse.tools.checking.sampling.conditions import Type
from eqfuse.tools.checking.sampling.terms import Argument, Leaf, Term

from .test_attribute_domains import drawn_terms

Shape = tuple[int, ...]
TERMS = 40
"""Terms of each operator in which shapes are exchanged."""
MOST_ELEMENTS = 500
UNLIKE = {("ConvTranspose", "X"), ("FusedConv", "X"), ("ConvInteger", "x"), ("ConvInteger", "w")}
"""Images and filters of one element alone tell nothing that one of a row does not."""


def kinds_of(shape: Shape, other: Shape) -> set[str]:
    """How the rank and the sizes of an operand relate to those of another one."""
    if set(shape) <= {1}:
        return {"one element in axes" if shape else "no axis"}
    ranks = "fewer" if len(shape) < len(other) else "more" if len(shape) > len(other) else "as many"
    pairs = list(zip(reversed(shape), reversed(other), strict=False))
    repeats, widens = any(own == 1 < size for own, size in pairs), any(own > 1 == size for own, size in pairs)
    return {f"{ranks} axes", f"{'repeats' * repeats}{' and ' * (repeats and widens)}{'widens' * widens}" or "fits"}


def operands_of(term: Term) -> Iterator[tuple[str, int, Shape, Shape]]:
    """The name, the place and the shape of each operand that is given, and the shape of the first other one."""
    arguments = OPERATORS[term.head].arguments
    given = [p for p, a in enumerate(arguments) if not isinstance(a, Attribute) and term.arguments[p] != Leaf("Absent")]
    for place in given:
        own, others = term.arguments[place], [term.arguments[p] for p in given if p != place]
        if others and isinstance(own, Leaf) and isinstance(others[0], Leaf):
            yield arguments[place].name, place, own.type.shape, others[0].type.shape


def shapes_beside(shapes: Sequence[Shape]) -> set[Shape]:
    """Shapes made from those of a term's operands: with an axis less or more, with one axis kept, cut or widened."""
    made: set[Shape] = {(), (1,)}
    for shape in shapes:
        made |= {shape, (1, *shape), (2, *shape), (1,) * len(shape)}
        for axis, size in enumerate(shape):
            ones = (1,) * (len(shape) - 1 - axis)
            made |= {(size,), shape[axis:], shape[axis + 1 :], (size, *ones), ((1,) * axis) + (size, *ones)}
            made |= {(*shape[:axis], other, *shape[axis + 1 :]) for other in (1, 2)}
    return {shape for shape in made if prod(shape) <= MOST_ELEMENTS and len(shape) < 6}


def runs(term: Term) -> bool:
    """Whether the operator's meaning, ONNX's type inference and ONNX Runtime take the operands."""
    leaves = [argument for argument in term.arguments if isinstance(argument, Leaf) and argument.name]
    elements = {leaf.name: np.ones(leaf.type.shape, element_type(leaf.type.dtype)) for leaf in leaves}

    def value(argument: Argument) -> object:
        if not isinstance(argument, Leaf):
            return argument
        return None if argument == Leaf("Absent") else elements[argument.name]

    try:
        evaluate(term.head, list(map(value, term.arguments)))
        model = term_model([Term("Out", (term, 0)) if OPERATORS[term.head].sort == "N" else term], {})
        if not OPERATORS[term.head].domain:
            infer_types(model)
        run_model(model, elements, reference=False)
    except (Unsupported, ValueError, IndexError, TypeError, Refused, KernelMissing):
        return False
    return True


@pytest.mark.representatives(5)
@pytest.mark.parametrize("head", [name for name, operator in OPERATORS.items() if len(operator.operands) > 1])
def test_every_operand_takes_every_kind_of_shape(head: str) -> None:
    drawn = defaultdict[str, set[str]](set)
    terms = [term for term in drawn_terms(head) if not any(isinstance(each, Term) for each in term.arguments)]
    for name, _, shape, other in chain.from_iterable(map(operands_of, terms)):
        drawn[name] |= kinds_of(shape, other)
    missing = dict[str, Term]()
    for term in Random(0).sample(terms, min(TERMS, len(terms))):
        given = list(operands_of(term))
        for name, place, _, other in given:
            leaf = term.arguments[place]
            assert isinstance(leaf, Leaf)
            for shape in sorted(shapes_beside([own for _, _, own, _ in given])):
                new = kinds_of(shape, other) - drawn[name]
                if not new or (head, name) in UNLIKE:
                    continue
                other_leaf = replace(leaf, type=Type(shape, leaf.type.dtype, leaf.type.value))
                changed = Term(head, (*term.arguments[:place], other_leaf, *term.arguments[place + 1 :]))
                if runs(changed):
                    drawn[name] |= new
                    missing |= {f"{name}: {kind}": changed for kind in new}
    assert missing == {}


def test_zero_points_of_rows_and_columns() -> None:
    """ONNX's products of integers take them, although ONNX Runtime has none for rows."""
    rows, columns = set[int](), set[int]()
    for term in drawn_terms("MatMulInteger"):
        for name, _, shape, _ in operands_of(term):
            {"a_zero_point": rows, "b_zero_point": columns}.get(name, set[int]()).update(shape)
    assert max(rows) > 1
    assert max(columns) > 1
