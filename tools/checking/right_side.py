"""The right side of a rule on one of its samples, where the e-graph does not show it: it refuses what it is to make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...ir.operators import Unsupported
from ...ir.operators.numbers import element_type
from ...rules import sexpr
from ...rules.records import Rule
from ...rules.sexpr import Atom, Form, Node
from .drawing.conditions import Failed, Type, Unbound, Unknown, evaluate
from .drawing.evaluation import Evaluation
from .drawing.left_side import TENSOR_SORTS, sorts_of
from .drawing.samples import Sample
from .drawing.scratch import Fired
from .drawing.terms import Argument, Leaf, Term


class _Unmade(Exception):
    """A part of the right side is known only to the e-graph."""


def right_sides(rule: Rule, sample: Sample) -> list[Term | Leaf]:
    """What the rule makes of the roots of a sample, as far as the sample says it."""
    form = sexpr.read(rule.text).forms[0]
    if form.head == "rule":
        actions = form.items[2].items if isinstance(form.items[2], Form) else ()
        sides = [side for a in actions if isinstance(a, Form) and a.head == "union" for side in a.items[1:]]
    else:
        sides = [form.items[2], form.items[1]] if form.head == "birewrite" else [form.items[2]]
    return [term for side in sides if (term := _make(side, sample)) is not None and term not in sample.roots]


def _make(side: Node, sample: Sample) -> Term | Leaf | None:
    try:
        term = _instantiate(side, sample)
    except (_Unmade, Unbound, Unknown, Failed, KeyError):
        return None
    return term if isinstance(term, (Term, Leaf)) else None


def _instantiate(node: Node, sample: Sample) -> Argument:
    if isinstance(node, Atom):
        return sample.terms[node.text] if node.text in sample.terms else evaluate(node, sample.environment)
    sorts = sorts_of(node.head)
    if sorts is None:
        return evaluate(node, sample.environment)
    if len(sorts) != len(node.items) - 1 or node.head in ("Var", "Weight"):
        raise _Unmade
    arguments = tuple(_instantiate(item, sample) for item in node.items[1:])
    if any((sort in TENSOR_SORTS) != isinstance(a, (Term, Leaf)) for sort, a in zip(sorts, arguments, strict=True)):
        raise _Unmade
    if node.head == "Full":
        shape, number, dtype = arguments
        return Leaf("Full", "", Type(shape, str(dtype), float(number)))  # type: ignore[arg-type]
    return Leaf("Absent") if node.head == "Absent" else Term(node.head, arguments)


def describe_types(sample: Sample, right: Term | Leaf) -> str:
    """The types of both sides: ``float32[4,6] and float32[4,8]``."""
    return " and ".join(next(_types_of_roots(side), "") for side in (sample, replace(sample, roots=(right,))))


def _types_of_roots(sample: Sample) -> Iterator[str]:
    elements = {leaf.name: np.zeros(leaf.type.shape, element_type(leaf.type.dtype)) for leaf in sample.named_leaves}
    evaluation = Evaluation(sample, Fired((), {}), elements, {})
    for root in sample.roots:
        try:
            value = evaluation.value(root)
        except Unsupported as error:
            yield f"what cannot be computed ({error})"
            continue
        for array in value if isinstance(value, tuple) else (value,):
            yield f"{array.dtype.name}[{','.join(map(str, array.shape))}]" if array is not None else "nothing"
