"""The facts of a rule, read for tensors of unknown rank as the values of its variables and the facts about these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from ....ir.operators import OPERATORS, Operand
from ....rules import sexpr
from ....rules.commute import is_variable
from ....rules.sexpr import Atom, Form, Node
from ..sampling.left_side import LEAVES, TENSOR_SORTS, sorts_of
from . import layout, reductions, vectors
from .relations import LOOKUPS, PRIMITIVES, RELATIONS
from .tensors import Count, Element, Expression, NoMeaning, Parameter, Side, Tensor, leaf
from .types import ElementType, class_of, constrain
from .vectors import Vector
from .world import World

MEANINGS: dict[str, Callable[..., Any]] = {**layout.MEANINGS, **reductions.MEANINGS}
"""What operators compute, besides element-wise ones."""


class UnknownVariable(Exception):
    """No equation gives a value to a variable."""


@dataclass
class Reading:
    """The values of the variables of one rule.

    `flags` are the attributes that are 0 or 1, with their values in this case of the proof. `numbers` and `signs` are
    those of unknown scalars by name. `ignored` has the facts without a meaning here, each with the reason.
    """

    world: World
    facts: Sequence[Node]
    flags: dict[str, int]
    values: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    signs: dict[str, set[str]] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    _assumed: set[Node] = field(default_factory=set)
    _terms: dict[str, Any] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _sorts: dict[str, str] = field(default_factory=dict)
    _equal: dict[str, list[Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.side = Side(self.world)
        for node in (node for fact in self.facts for node in sexpr.walk(fact) if isinstance(node, Form)):
            for sort, item in zip(sorts_of(node.head) or (), node.items[1:], strict=False):
                if isinstance(item, Atom) and is_variable(item):
                    self._sorts.setdefault(item.text, sort)
        for fact in self.facts:
            for item in fact.items[1:] if isinstance(fact, Form) and fact.head in ("=", "value-eq") else ():
                if isinstance(item, Atom) and is_variable(item):
                    others = (other for other in fact.items[1:] if other is not item)  # type: ignore[union-attr]
                    self._equal.setdefault(item.text, []).extend(others)

    def assume(self) -> None:
        """Assume all facts. Facts without a meaning here are ignored, which can only make a proof harder."""
        terms = [f for f in self.facts if isinstance(f, Form) and sorts_of(f.head) is not None]
        others = sorted((f for f in self.facts if f not in terms), key=_has_terms)
        for fact in others:
            if not _has_terms(fact):
                self._try_to_assume(fact)
        for fact in terms:
            self.value(fact)
        for fact in others:
            self._try_to_assume(fact)

    def _try_to_assume(self, fact: Node) -> None:
        if fact in self._assumed:
            return
        try:
            self._assume(fact)
            self._assumed.add(fact)
        except (NoMeaning, UnknownVariable) as error:
            self.ignored[str(fact)] = str(error)

    def fix_types(self) -> None:
        """Let the right side use the types that the left side gives, but not restrict them."""
        for value in (*self.values.values(), *self._terms.values()):
            if isinstance(value, Tensor):
                value.type.root().fixed = True

    # --- values

    def value(self, node: Node, sort: str = "") -> Any:
        """The value of an expression. Raises NoMeaning or UnknownVariable."""
        if isinstance(node, Atom):
            return self._variable(node.text, sort) if is_variable(node) else _literal(node.text)
        text = str(node)
        if text not in self._terms:
            self._terms[text] = self._compute(node)
        return self._terms[text]

    def _variable(self, name: str, sort: str) -> Any:
        if name in self.values:
            return self.values[name]
        if name in self._busy:
            raise UnknownVariable(name)
        self._busy.add(name)
        try:
            self.values[name] = self._first_value(name, sort or self._sorts.get(name, ""))
        finally:
            self._busy.discard(name)
        return self.values[name]

    def _first_value(self, name: str, sort: str) -> Any:
        """The value of a variable: by a flag, by an equation, or a new unknown of its sort."""
        if name in self.flags:
            return z3.IntVal(self.flags[name])
        for node in sorted(self._equal.get(name, ()), key=lambda n: isinstance(n, Atom)):
            try:
                return self.value(node, sort)
            except UnknownVariable:
                continue
        if sort in TENSOR_SORTS:
            return leaf(name, self.world)
        if sort == "Ints":
            return vectors.unknown(name, self._length(name), self.world)
        if sort == "i64":
            return self.world.integer(name)
        if sort == "f64":
            return Parameter(name)
        if sort == "String":
            return f"?{name}"
        raise UnknownVariable(name)

    def _length(self, name: str) -> int | None:
        """The length of a vector, if the rule gives it as a number."""
        for fact in self.facts:
            if isinstance(fact, Form) and fact.head == "=" and f"(vec-length {name})" in map(str, fact.items):
                for item in fact.items[1:]:
                    if isinstance(item, Atom) and item.text.isdigit():
                        return int(item.text)
        return None

    def _compute(self, node: Form) -> Any:
        if node.head in LEAVES or node.head in OPERATORS:
            return self._term(node)
        if node.head in LOOKUPS:
            return LOOKUPS[node.head](self, self.value(node.items[1], "T"))
        if node.head not in PRIMITIVES:
            raise NoMeaning(f"{node.head} has no meaning for unknown ranks")
        arguments = [self.value(item) for item in node.items[1:]]
        result = PRIMITIVES[node.head](self, *arguments)
        if result is NotImplemented:
            raise NoMeaning(f"{node.head} has no meaning for these arguments")
        holds, value = result
        self.side.require(holds)
        return value

    def _term(self, node: Form) -> Any:
        sorts = sorts_of(node.head) or ()
        arguments = [self.value(item, sort) for sort, item in zip(sorts, node.items[1:], strict=True)]
        if node.head == "Absent":
            return None
        if node.head == "Full":
            return layout.full(self.side, *arguments)
        if node.head == "Out":
            return arguments[0](arguments[1])
        if node.head in LEAVES:
            return leaf(str(node), self.world)
        operator = OPERATORS[node.head]
        operands = [a for a, o in zip(arguments, operator.arguments, strict=True) if isinstance(o, Operand)]
        if node.head == "Cast" and _is_type(arguments[1], arguments[0].type):
            return arguments[0]
        if operator.category.startswith("elementwise"):
            result = layout.elementwise(self.side, node.head, operands, tuple(arguments[len(operands) :]))
        elif node.head in MEANINGS:
            result = MEANINGS[node.head](self.side, *arguments)
        else:
            raise NoMeaning(f"{node.head} has no meaning for unknown ranks")
        if isinstance(result, Tensor) and node.head == "Cast":
            _unite_types(result.type, arguments[1])
        elif isinstance(result, Tensor):
            constrain(node.head, [x.type if x is not None else None for x in operands], result.type)
        return result

    # --- facts

    def _assume(self, fact: Node) -> None:
        if not isinstance(fact, Form):
            return
        if fact.head in ("=", "value-eq"):
            first, *others = sorted(fact.items[1:], key=lambda item: isinstance(item, Atom))
            value = self.value(first)
            for other in others:
                self.bind(other, value)
        elif fact.head in RELATIONS:
            RELATIONS[fact.head](self, *fact.items[1:])
        elif sorts_of(fact.head) is None:
            raise NoMeaning(f"{fact.head} has no meaning for unknown ranks")

    def bind(self, node: Node, value: Any) -> None:
        """Bind a variable to a value, or assume that its value is equal to it."""
        if isinstance(node, Atom) and is_variable(node) and node.text not in self.values:
            try:
                self._variable(node.text, "")
            except UnknownVariable:
                self.values[node.text] = value
                return
        self._assume_equal(self.value(node), value)

    def _assume_equal(self, one: Any, other: Any) -> None:
        if one is other:
            return
        if isinstance(one, Vector) and isinstance(other, Vector):
            vectors.assume_equal(one, other, self.world)
        elif isinstance(one, (ElementType, str)) and isinstance(other, (ElementType, str)):
            _unite_types(one, other)
        elif isinstance(one, Parameter) and isinstance(other, Parameter):
            named, literal = (other, one) if isinstance(one.value, float) else (one, other)
            if isinstance(named.value, str) and isinstance(literal.value, float):
                self.numbers.setdefault(named.value, literal.value)
            elif one != other:
                raise NoMeaning("two numbers are equal")
        elif z3.is_expr(one) and z3.is_expr(other):
            self.world.assume(one == other)
        else:
            raise NoMeaning("two terms are equal")

    # --- scalars

    def number(self, x: Parameter) -> float | str:
        """The value of a parameter, if the rule says it, or its name."""
        return self.numbers.get(x.value, x.value) if isinstance(x.value, str) else x.value

    def signs_of(self, x: Expression) -> list[str]:
        """The signs that the rule says an expression has: ``nonneg``, ``nonzero``."""
        if isinstance(x, Element):
            return sorted(x.leaf.signs)
        if isinstance(x, Parameter) and isinstance(x.value, str):
            return sorted(self.signs.get(x.value, ()))
        return ["nonneg", "nonzero"] if isinstance(x, Count) else []

    def is_nonzero(self, x: Expression) -> bool:
        """Whether the rule says that an expression is never zero."""
        if isinstance(x, Parameter) and isinstance(number := self.number(x), float):
            return number != 0
        return "nonzero" in self.signs_of(x)


def _has_terms(fact: Node) -> bool:
    return any(isinstance(n, Form) and n.head in OPERATORS for n in sexpr.walk(fact))


def _is_type(target: ElementType | str, type_: ElementType) -> bool:
    if isinstance(target, ElementType):
        return target.root() is type_.root()
    return bool(target) and target == type_.exact


def _unite_types(one: ElementType | str, other: ElementType | str) -> None:
    if isinstance(one, str):
        one, other = other, one
    if isinstance(one, ElementType) and isinstance(other, ElementType):
        one.unite(other)
    elif isinstance(one, ElementType) and isinstance(other, str) and (class_ := class_of(other)):
        one.restrict({class_}, other)


def _literal(text: str) -> Any:
    if text.startswith('"'):
        return text[1:-1]
    try:
        return z3.IntVal(int(text))
    except ValueError:
        return Parameter(float(text))
