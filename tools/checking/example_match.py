"""Whether a rule makes of the left side of its example what stands on the right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isclose

from ...rules.commute import is_variable
from ...rules.records import Rule, parse_example
from ...rules.sexpr import Atom, Form, Node
from .drawing.conditions import Environment, Failed, Unbound, Unknown, evaluate
from .drawing.hits import Hit
from .drawing.left_side import LEAVES, Value, sorts_of
from .drawing.placement import Placement
from .drawing.samples import Sample
from .drawing.scratch import Class, Fired
from .drawing.terms import Argument, Leaf, Term

_PRECISION = 1e-5
"""Relative: an example may round a number that the rule computes."""

Bound = dict[str, Argument | Class]
"""What the variables of an example stand for."""


def makes_example(rule: Rule, hits: Iterable[Hit]) -> bool:
    """Whether on one of the samples of its example the rule made the right side equal to the (first) left side.

    Variables of the left side stand for the same on the right; any others there stand for anything, each for one thing.
    """
    example = parse_example(rule.example)
    for hit in hits:
        if isinstance(hit.outcome, Fired):
            matching = _Matching(Placement(hit.sample, hit.outcome))
            for term in _subterms(hit.sample):
                bound: Bound = {}
                number = matching.placement.class_of(term) if _matches(example.lefts[0], term, bound) else None
                if number is not None and any(True for _ in matching.found(example.right, number, bound)):
                    return True
    return False


def _subterms(sample: Sample) -> Iterator[Term | Leaf]:
    pending: list[Argument] = list(sample.roots)
    while pending:
        term = pending.pop(0)
        if isinstance(term, (Term, Leaf)):
            yield term
            pending += term.arguments if isinstance(term, Term) else ()


def _matches(pattern: Node, term: Argument, bound: Bound) -> bool:
    """Whether a term is what the pattern says; adds what its variables stand for."""
    if isinstance(pattern, Atom) and is_variable(pattern):
        return bound.setdefault(pattern.text, term) == term
    if isinstance(pattern, Form) and sorts_of(pattern.head) is not None:
        arguments = _arguments(pattern.head, term)
        return arguments is not None and all(
            _matches(item, argument, bound) for item, argument in zip(pattern.items[1:], arguments, strict=True)
        )
    return not isinstance(term, (Term, Leaf)) and any(True for _ in _literals(pattern, term, bound))


def _arguments(head: str, term: Argument) -> tuple[Argument, ...] | None:
    """The arguments of a term that the constructor made; None where another one made it."""
    if isinstance(term, Term):
        return term.arguments if term.head == head else None
    if not isinstance(term, Leaf) or term.kind != head:
        return None
    full = (term.type.shape, term.type.value or 0.0, term.type.dtype)
    return {"Full": full, "Absent": ()}.get(head, (term.name,))


def _literals(pattern: Node, value: Value, bound: Bound) -> Iterator[Bound]:
    """The bindings under which an expression of literals has a value."""
    if isinstance(pattern, Atom) and is_variable(pattern) and pattern.text not in bound:
        yield {**bound, pattern.text: value}
        return
    known = {name: v for name, v in bound.items() if not isinstance(v, (Term, Leaf, Class))}
    try:
        if _equal(evaluate(pattern, Environment(known)), value):
            yield bound
    except Unbound:
        if isinstance(pattern, Form) and pattern.head == "vec-of" and isinstance(value, tuple):
            yield from _each(pattern.items[1:], value, bound)
        elif isinstance(pattern, Form):
            yield bound  # computed from a variable that stands for anything
    except (Unknown, Failed):
        return


def _each(patterns: tuple[Node, ...], values: tuple[int, ...], bound: Bound) -> Iterator[Bound]:
    if not patterns or len(patterns) != len(values):
        yield from [bound] if len(patterns) == len(values) else []
        return
    for further in _literals(patterns[0], values[0], bound):
        yield from _each(patterns[1:], values[1:], further)


def _equal(one: Value, other: Value) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return (
            isinstance(one, (int, float))
            and isinstance(other, (int, float))
            and isclose(one, other, rel_tol=_PRECISION)
        )
    return one == other


@dataclass(frozen=True)
class _Matching:
    """Patterns looked for in the e-graph of one sample."""

    placement: Placement

    def found(self, pattern: Node, value: Class | Value, bound: Bound) -> Iterator[Bound]:
        """The bindings under which a class holds a term of the pattern, or a literal is what the pattern says."""
        if not isinstance(value, Class):
            yield from _literals(pattern, value, bound)
        elif isinstance(pattern, Atom):
            if pattern.text not in bound:
                yield {**bound, pattern.text: value}
            elif self._class(bound[pattern.text]) == value:
                yield bound
        else:
            for node in self.placement.fired.classes[value]:
                if node.head == pattern.head:
                    arguments = (str(node.arguments[0]).partition(".")[2],) if node.head in _NAMED else node.arguments
                    yield from self._all(pattern.items[1:], arguments, bound)

    def _all(self, patterns: tuple[Node, ...], values: tuple[Class | Value, ...], bound: Bound) -> Iterator[Bound]:
        if not patterns:
            yield bound
            return
        for further in self.found(patterns[0], values[0], bound):
            yield from self._all(patterns[1:], values[1:], further)

    def _class(self, stands: Argument | Class) -> Class | None:
        if isinstance(stands, (Term, Leaf)):
            return self.placement.class_of(stands)
        return stands if isinstance(stands, Class) else None


_NAMED = frozenset(head for head, sorts in LEAVES.items() if sorts == ("String",))
"""Leaves whose names begin with the number of their sample."""
