"""The right side of a rule on a sample: the result that the e-graph refuses, and whether the rule makes what its
example shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isclose
from typing import Any

import numpy as np
from onnx import helper, printer

from ...engine.egraph.emit import Emission, emit_node
from ...engine.egraph.graph import ENode
from ...ir.operators import Array, Unsupported
from ...ir.operators.numbers import element_type
from ...ir.types import TensorType
from ...rules import sexpr
from ...rules.commute import is_variable
from ...rules.records import Rule, parse_example
from ...rules.sexpr import Atom, Form, Node
from .sampling.conditions import Environment, Failed, Type, Unbound, Unknown, Value, evaluate
from .sampling.elements import draw
from .sampling.evaluation import Evaluation
from .sampling.hits import Hit
from .sampling.left_side import LEAVES, TENSOR_SORTS, sorts_of
from .sampling.placement import Placement
from .sampling.samples import Sample
from .sampling.scratch import EClass, Fired
from .sampling.terms import Argument, Leaf, Term

_PRECISION = 1e-5
"""Relative error up to which numbers agree: an example may round a number that the rule computes."""
_NAMED = frozenset(head for head, sorts in LEAVES.items() if sorts == ("String",))
"""Leaves whose names begin with the number of their sample."""

Bindings = dict[str, Argument | EClass]
"""The values of an example's variables."""


# --- what a rule makes of a sample


class _Unmade(Exception):
    """A part of the right side is known only to the e-graph."""


def right_sides(rule: Rule, sample: Sample) -> list[Term | Leaf]:
    """The terms that the rule makes of the roots of a sample, as far as the sample determines them."""
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


# --- whether it makes what its example shows


def makes_example(rule: Rule, hits: Iterable[Hit]) -> bool:
    """Whether on one of the samples of its example the rule made the right side equal to the (first) left side.

    Variables of the left side have the same values on the right. Any other variable there may have any value, but only
    one.
    """
    example = parse_example(rule.example)
    for hit in hits:
        if isinstance(hit.outcome, Fired):
            search = _ClassSearch(Placement(hit.sample, hit.outcome))
            for term in hit.sample.subterms:
                bound: Bindings = {}
                number = search.placement.class_of(term) if _matches(example.lefts[0], term, bound) else None
                if number is not None and any(True for _ in search.matches(example.right, number, bound)):
                    return True
    return False


def _matches(pattern: Node, term: Argument, bound: Bindings) -> bool:
    """Whether a term matches a pattern; binds the pattern's variables. A number is a constant of it."""
    if isinstance(pattern, Atom) and is_variable(pattern):
        return bound.setdefault(pattern.text, term) == term
    if isinstance(pattern, Form) and sorts_of(pattern.head) is not None:
        arguments = _arguments(pattern.head, term)
        return arguments is not None and all(
            _matches(item, argument, bound) for item, argument in zip(pattern.items[1:], arguments, strict=True)
        )
    number = (term.type.value or 0.0) if isinstance(term, Leaf) and term.kind == "Full" else term
    return not isinstance(number, (Term, Leaf)) and any(True for _ in _match_literal(pattern, number, bound))


def _arguments(head: str, term: Argument) -> tuple[Argument, ...] | None:
    """The arguments of a term that the constructor made; None if another one made it."""
    if isinstance(term, Term):
        return term.arguments if term.head == head else None
    if not isinstance(term, Leaf) or term.kind != head:
        return None
    full = (term.type.shape, term.type.value or 0.0, term.type.dtype)
    return {"Full": full, "Absent": ()}.get(head, (term.name,))


def _match_literal(pattern: Node, value: Value, bound: Bindings) -> Iterator[Bindings]:
    """The bindings under which an expression of literals has a value."""
    if isinstance(pattern, Atom) and is_variable(pattern) and pattern.text not in bound:
        yield {**bound, pattern.text: value}
        return
    literals = {name: v for name, v in bound.items() if not isinstance(v, (Term, Leaf, EClass))}
    try:
        if _is_close(evaluate(pattern, Environment(literals)), value):
            yield bound
    except Unbound:
        if isinstance(pattern, Form) and pattern.head == "vec-of" and isinstance(value, tuple):
            if len(pattern.items) == len(value) + 1:
                yield from _match_all(_match_literal, pattern.items[1:], value, bound)
        elif isinstance(pattern, Form):
            yield bound  # computed from a variable that may have any value
    except (Unknown, Failed):
        return


def _match_all(
    match: Callable[[Node, Any, Bindings], Iterator[Bindings]],
    patterns: Sequence[Node],
    values: Sequence[EClass | Value],
    bound: Bindings,
) -> Iterator[Bindings]:
    """The bindings under which each value matches its pattern."""
    if not patterns:
        yield bound
        return
    for more in match(patterns[0], values[0], bound):
        yield from _match_all(match, patterns[1:], values[1:], more)


def _is_close(one: Value, other: Value) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return (
            isinstance(one, (int, float))
            and isinstance(other, (int, float))
            and isclose(one, other, rel_tol=_PRECISION)
        )
    return one == other


@dataclass(frozen=True)
class _ClassSearch:
    """Looks for patterns in the e-graph of one sample."""

    placement: Placement

    def matches(self, pattern: Node, value: EClass | Value, bound: Bindings) -> Iterator[Bindings]:
        """The bindings under which a class holds a term of the pattern, or a literal matches the pattern; a number is
        a constant of it."""
        if not isinstance(value, EClass):
            yield from _match_literal(pattern, value, bound)
        elif isinstance(pattern, Atom) and not is_variable(pattern):
            for node in self.placement.fired.classes[value]:
                if node.head == "Full":
                    yield from self.matches(pattern, node.arguments[1], bound)
        elif isinstance(pattern, Atom):
            if pattern.text not in bound:
                yield {**bound, pattern.text: value}
            elif self._class(bound[pattern.text]) == value:
                yield bound
        else:
            for node in self.placement.fired.classes[value]:
                if node.head == pattern.head:
                    arguments = (str(node.arguments[0]).partition(".")[2],) if node.head in _NAMED else node.arguments
                    yield from _match_all(self.matches, pattern.items[1:], arguments, bound)

    def _class(self, value: Argument | EClass) -> EClass | None:
        if isinstance(value, (Term, Leaf)):
            return self.placement.class_of(value)
        return value if isinstance(value, EClass) else None


_OPSET = 23
"""The version of ONNX's operators in which examples are written."""


def before_and_after(hit: Hit) -> tuple[str, str] | None:
    """The two sides of a rule on one of its samples, a line for each node; None if ONNX cannot express one."""
    if not isinstance(hit.outcome, Fired):
        return None
    elements = draw(hit.sample, "ordinary", {}, np.random.default_rng(0))
    sides = (hit.sample.roots, Placement(hit.sample, hit.outcome).after())
    try:
        with np.errstate(all="ignore"):
            before, after = (_Writer(Evaluation(hit.sample, hit.outcome, elements, {})).write(roots) for roots in sides)
    except (_Inexpressible, Unsupported):
        return None
    return before, after


class _Inexpressible(Exception):
    pass


@dataclass
class _Writer:
    """Writes terms, each once. `names` has the names of their outputs."""

    evaluation: Evaluation
    names: dict[Term, list[str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def write(self, roots: Sequence[Term | Leaf]) -> str:
        """The nodes and the values that they return. Raises _Inexpressible and Unsupported."""
        outputs = [self._name(root) for root in dict.fromkeys(roots)]
        return "\n".join([*self.lines, f"return {', '.join(outputs)}"])

    def _type(self, term: Term | Leaf) -> TensorType | None:
        value = self.evaluation.value(term)
        array = value[0] if isinstance(value, tuple) else value
        return None if array is None else TensorType(array.dtype.name, array.shape)

    def _name(self, term: Term | Leaf) -> str:
        """The name of a term; writes the nodes that make it first."""
        if isinstance(term, Leaf):
            return _leaf_text(term)
        if term.head == "Out":
            node, index = term.arguments
            self._name(node)  # type: ignore[arg-type]
            return self.names[node][index]  # type: ignore[index]
        if term not in self.names:
            self._write_node(term)
        return self.names[term][0]

    def _write_node(self, term: Term) -> None:
        operands = [a for a in term.arguments if isinstance(a, (Term, Leaf))]
        literals = tuple(a for a in term.arguments if not isinstance(a, (Term, Leaf)))
        children = tuple(-1 if a == Leaf("Absent") else i for i, a in enumerate(operands))
        types = [self._type(a) for a in operands]
        emission = emit_node(ENode(term.head, literals, children), types, self._type(term), _OPSET, {}, -1)
        if emission is None:
            raise _Inexpressible
        inputs = ", ".join(self._input(i, operands) for i in emission.inputs)
        number = len(self.names)
        names = [f"t{number}" + (f"_{i}" if emission.outputs > 1 else "") for i in range(emission.outputs)]
        self.names[term] = names
        self.lines.append(f"{_head(emission, names)}({inputs})")

    def _input(self, source: int | Array | None, operands: Sequence[Term | Leaf]) -> str:
        if isinstance(source, int):
            return self._name(operands[source])
        return '""' if source is None else f"{{{', '.join(map(str, source.reshape(-1).tolist()))}}}"


def _head(emission: Emission, outputs: Sequence[str]) -> str:
    """The node as ONNX prints it, up to its inputs."""
    values = {name: value for name, value in emission.attributes.items() if value is not None}
    attributes: dict[str, Any] = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
    node = helper.make_node(emission.op_type, [], outputs, domain=emission.domain, **attributes)
    graph = printer.to_text(helper.make_graph([node], "example", [], []))  # not every onnx prints a node by itself
    return graph.partition("{")[2].rpartition("(")[0].strip()


def _leaf_text(leaf: Leaf) -> str:
    shape = f"[{','.join(map(str, leaf.type.shape))}]" if leaf.type.shape else ""
    if leaf.kind == "Full":
        return f"{leaf.type.value:g}{shape}"
    return '""' if leaf.kind == "Absent" else leaf.name.rstrip("'") + shape
