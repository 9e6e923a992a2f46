"""The facts of a rule, read for tensors of unknown rank: what its variables stand for, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from ....ir.operators import OPERATORS, Operand
from ....rules import sexpr
from ....rules.commute import is_variable
from ....rules.sexpr import Atom, Form, Node
from ..drawing.pattern import LEAVES, sorts_of
from . import layout, linear, reductions, vectors
from .relations import LOOKUPS, PRIMITIVES, RELATIONS
from .tensors import NoMeaning, Parameter, Site, Tensor, leaf
from .types import Type, class_of, constrain
from .vectors import Vector
from .world import World

MEANINGS: dict[str, Callable[..., Any]] = {**layout.MEANINGS, **reductions.MEANINGS, **linear.MEANINGS}
_TENSORS = ("T", "N")


class Unbound(Exception):
    """A variable has no value that its equations give."""


@dataclass
class Reading:
    """Values of the variables of one rule. `sorts` are those of its attributes, `flags` are 0 or 1."""

    world: World
    facts: Sequence[Node]
    flags: dict[str, int]
    values: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    signs: dict[str, set[str]] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    _taken: set[Node] = field(default_factory=set)
    _terms: dict[str, Any] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _sorts: dict[str, str] = field(default_factory=dict)
    _equal: dict[str, list[Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.site = Site(self.world)
        for fact in self.facts:
            self._note(fact)

    def _note(self, fact: Node) -> None:
        for node in sexpr.walk(fact):
            if isinstance(node, Form):
                for sort, item in zip(sorts_of(node.head) or (), node.items[1:], strict=False):
                    if isinstance(item, Atom) and is_variable(item):
                        self._sorts.setdefault(item.text, sort)
        if isinstance(fact, Form) and fact.head in ("=", "value-eq"):
            for item in fact.items[1:]:
                if isinstance(item, Atom) and is_variable(item):
                    self._equal.setdefault(item.text, []).extend(other for other in fact.items[1:] if other is not item)

    def assume(self) -> None:
        """Take all facts for granted. What has no meaning here is left out, which only makes a proof harder."""
        terms = [f for f in self.facts if isinstance(f, Form) and sorts_of(f.head) is not None]
        others = sorted((f for f in self.facts if f not in terms), key=_has_terms)
        for fact in others:
            if not _has_terms(fact):
                self._try(fact)
        for fact in terms:
            self.value(fact)
        for fact in others:
            self._try(fact)

    def _try(self, fact: Node) -> None:
        if fact in self._taken:
            return
        try:
            self._assume(fact)
            self._taken.add(fact)
        except (NoMeaning, Unbound) as error:
            self.ignored[str(fact)] = str(error)

    def fix_types(self) -> None:
        """What follows may use the types that are known by now, and not restrict them."""
        for value in (*self.values.values(), *self._terms.values()):
            if isinstance(value, Tensor):
                value.type.root().fixed = True

    # --- values

    def value(self, node: Node, sort: str = "") -> Any:
        """What an expression stands for. Raises NoMeaning or Unbound."""
        if isinstance(node, Atom):
            return self._variable(node.text, sort) if is_variable(node) else _literal(node.text)
        text = str(node)
        if text not in self._terms:
            self._terms[text] = self._computed(node)
        return self._terms[text]

    def _variable(self, name: str, sort: str) -> Any:
        if name in self.values:
            return self.values[name]
        if name in self._busy:
            raise Unbound(name)
        self._busy.add(name)
        try:
            self.values[name] = self._given(name, sort or self._sorts.get(name, ""))
        finally:
            self._busy.discard(name)
        return self.values[name]

    def _given(self, name: str, sort: str) -> Any:
        if name in self.flags:
            return z3.IntVal(self.flags[name])
        for node in sorted(self._equal.get(name, ()), key=lambda n: isinstance(n, Atom)):
            try:
                return self.value(node, sort)
            except Unbound:
                continue
        if sort in _TENSORS:
            return leaf(name, self.world)
        if sort == "Ints":
            return vectors.unknown(name, self._length(name), self.world)
        if sort == "i64":
            return self.world.integer(name)
        if sort == "f64":
            return Parameter(name)
        if sort == "String":
            return f"?{name}"
        raise Unbound(name)

    def _length(self, name: str) -> int | None:
        """The length of a vector, where the rule says it as a number."""
        for fact in self.facts:
            if isinstance(fact, Form) and fact.head == "=" and f"(vec-length {name})" in map(str, fact.items):
                for item in fact.items[1:]:
                    if isinstance(item, Atom) and item.text.isdigit():
                        return int(item.text)
        return None

    def _computed(self, node: Form) -> Any:
        if node.head in LEAVES or node.head in OPERATORS:
            return self._term(node)
        if node.head in LOOKUPS:
            return LOOKUPS[node.head](self, self.value(node.items[1], "T"))
        if node.head not in PRIMITIVES:
            raise NoMeaning(f"{node.head} has no meaning for unknown ranks")
        arguments = [self.value(item) for item in node.items[1:]]
        known = PRIMITIVES[node.head](self, *arguments)
        if known is NotImplemented:
            raise NoMeaning(f"{node.head} has no meaning for these arguments")
        holds, value = known
        self.site.require(holds)
        return value

    def _term(self, node: Form) -> Any:
        sorts = sorts_of(node.head) or ()
        arguments = [self.value(item, sort) for sort, item in zip(sorts, node.items[1:], strict=True)]
        if node.head == "Absent":
            return None
        if node.head == "Full":
            return layout.full(self.site, *arguments)
        if node.head == "Out":
            return arguments[0](arguments[1])
        if node.head in LEAVES:
            return leaf(str(node), self.world)
        operator = OPERATORS[node.head]
        operands = [a for a, o in zip(arguments, operator.arguments, strict=True) if isinstance(o, Operand)]
        if node.head == "Cast" and _is_type(arguments[1], arguments[0].type):
            return arguments[0]
        if operator.category.startswith("elementwise"):
            result = layout.elementwise(self.site, node.head, operands, tuple(arguments[len(operands) :]))
        elif node.head in MEANINGS:
            result = MEANINGS[node.head](self.site, *arguments)
        else:
            raise NoMeaning(f"{node.head} has no meaning for unknown ranks")
        if isinstance(result, Tensor):
            self._typed(node.head, operands, arguments, result)
        return result

    def _typed(self, head: str, operands: list[Tensor | None], arguments: list[Any], result: Tensor) -> None:
        if head == "Cast":
            _same_type(result.type, arguments[1])
        else:
            constrain(head, [x.type if x is not None else None for x in operands], result.type)

    # --- facts

    def _assume(self, fact: Node) -> None:
        if not isinstance(fact, Form):
            return
        if fact.head in ("=", "value-eq"):
            self._assume_equal(fact.items[1:])
        elif fact.head in RELATIONS:
            RELATIONS[fact.head](self, *fact.items[1:])
        elif sorts_of(fact.head) is None:
            raise NoMeaning(f"{fact.head} has no meaning for unknown ranks")

    def bind(self, node: Node, value: Any) -> None:
        """A variable stands for a value, or is equal to it."""
        if isinstance(node, Atom) and is_variable(node) and node.text not in self.values:
            try:
                self._variable(node.text, "")
            except Unbound:
                self.values[node.text] = value
                return
        self.assume_same(self.value(node), value)

    def _assume_equal(self, items: Iterable[Node]) -> None:
        items = sorted(items, key=lambda n: isinstance(n, Atom))
        first = self.value(items[0])
        for other in items[1:]:
            self.bind(other, first)

    def assume_same(self, one: Any, other: Any) -> None:
        """Two values are equal. Raises NoMeaning for what cannot be compared."""
        if one is other:
            return
        if isinstance(one, Vector) and isinstance(other, Vector):
            vectors.assume_equal(one, other, self.world)
        elif isinstance(one, (Type, str)) and isinstance(other, (Type, str)):
            _same_type(one, other)
        elif isinstance(one, Parameter) and isinstance(other, Parameter):
            self._same_number(one, other)
        elif z3.is_expr(one) and z3.is_expr(other):
            self.world.assume(one == other)
        else:
            raise NoMeaning("two terms are equal")

    def _same_number(self, one: Parameter, other: Parameter) -> None:
        if isinstance(one.value, float):
            one, other = other, one
        if isinstance(one.value, str) and isinstance(other.value, float):
            self.numbers.setdefault(one.value, other.value)
        elif one != other:
            raise NoMeaning("two numbers are equal")

    def number(self, x: Parameter) -> float | str:
        """The value of a parameter, if the rule says it, or its name."""
        return self.numbers.get(x.value, x.value) if isinstance(x.value, str) else x.value


def _has_terms(fact: Node) -> bool:
    return any(isinstance(n, Form) and n.head in OPERATORS for n in sexpr.walk(fact))


def _is_type(written: Type | str, type_: Type) -> bool:
    """Whether a type is the one that is written."""
    if isinstance(written, Type):
        return written.root() is type_.root()
    return bool(written) and written == type_.exact


def _same_type(one: Type | str, other: Type | str) -> None:
    if isinstance(one, str):
        one, other = other, one
    if isinstance(one, Type) and isinstance(other, Type):
        one.unite(other)
    elif isinstance(one, Type) and isinstance(other, str) and (known := class_of(other)):
        one.restrict({known}, other)


def _literal(text: str) -> Any:
    if text.startswith('"'):
        return text[1:-1]
    try:
        return z3.IntVal(int(text))
    except ValueError:
        return Parameter(float(text))
