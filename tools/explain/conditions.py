"""A rule's left side as a list of single conditions, outermost first; each can be checked once those before it hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...ir.operators import OPERATORS
from ...rules.commute import is_variable
from ...rules.sexpr import Atom, Form, Node
from .patterns import Pattern, constructs, equated_variables, free_variables, variable_sorts
from .signatures import Signatures

Kind = Literal["operator", "argument", "lookup", "fact"]

_RESULTS = {
    "Ints": "vec-of vec-empty vec-append vec-pop vec-push vec-set vec-remove vec-range",
    "i64": "vec-length vec-get count-matches to-i64 & | << >> not-i64 log2",
    "f64": "to-f64",
    "String": "to-string replace",
}
_SORTS = {name: sort for sort, names in _RESULTS.items() for name in names.split()}
_ARITHMETIC = frozenset(["+", "-", "*", "/", "%", "^", "min", "max", "abs", "neg", "ordering-min", "ordering-max"])


@dataclass(frozen=True)
class Condition:
    """One condition: egglog checks `fact`, and the rule shows it as `shown`.

    There are four kinds. An operator: the class of `variable`, at `place` in the rule, has a node of the constructor
    `wanted`. An argument: `variable`, at `place`, is equal to `wanted`. A lookup: a function has a value. Any other
    fact.
    """

    kind: Kind
    fact: Form
    shown: str
    variable: str = ""
    place: str = ""
    wanted: str = ""

    @property
    def variables(self) -> set[str]:
        """The variables it mentions."""
        return free_variables(self.fact)


@dataclass(frozen=True)
class Anchored:
    """A pattern whose variable `root` has to be a given term; `sorts` are those of its variables, as far as known."""

    pattern: Pattern
    root: str
    conditions: tuple[Condition, ...]
    sorts: Mapping[str, str]

    def bound(self, count: int) -> dict[str, str]:
        """The variables of known sort that the first conditions bind."""
        names = dict.fromkeys([self.root])
        for condition in self.conditions[:count]:
            names.update(dict.fromkeys(sorted(condition.variables)))
        return {name: self.sorts[name] for name in names if name in self.sorts}


def anchor(pattern: Pattern, tables: Signatures) -> list[Anchored]:
    """The pattern, once for each of the terms that a match rewrites."""
    anchors = []
    sides = (next((side.text for side in union if isinstance(side, Atom)), "") for union in pattern.unions)
    for root in dict.fromkeys(filter(None, sides)):
        taker = _Taker(tables, {root})
        taker.take(pattern.facts, root)
        conditions = _order(taker.conditions, root)
        anchors.append(Anchored(pattern, root, conditions, _sorts([c.fact for c in conditions], tables)))
    return anchors


def _sorts(facts: list[Form], tables: Signatures) -> dict[str, str]:
    sorts = variable_sorts(facts, tables)
    for name, other in equated_variables(facts):
        if sort := _sort(other, sorts):
            sorts.setdefault(name, sort)
    return sorts


def _sort(node: Node, sorts: Mapping[str, str]) -> str:
    """The sort of a variable or of a primitive's result; "" if it is unknown."""
    if isinstance(node, Atom):
        return sorts.get(node.text, "")
    if node.head in _ARITHMETIC:
        return next((s for s in (_sort(item, sorts) for item in node.items[1:]) if s), "")
    return _SORTS.get(node.head, "")


@dataclass
class _Taker:
    """Takes facts apart. `seen` are the variables that a condition has introduced."""

    tables: Signatures
    seen: set[str]
    conditions: list[Condition] = field(default_factory=list)
    _count: int = 0

    def take(self, facts: Iterable[Node], root: str) -> None:
        """All facts, those about the root first."""
        forms = [fact for fact in facts if isinstance(fact, Form)]
        for fact in sorted(forms, key=lambda f: (self._definition(f) or ("",))[0] != root):
            self._fact(fact)

    def _definition(self, fact: Form) -> tuple[str, Form] | None:
        """The variable and the constructor that a fact sets equal; None for another fact."""
        return next(((v, node) for v, node in equated_variables([fact]) if constructs(node, self.tables)), None)

    def _fact(self, fact: Form) -> None:
        definition = self._definition(fact)
        if definition is not None:
            self._pattern(*definition, place="" if definition[0] in self.seen else definition[0])
            return
        flat = Form((fact.items[0], *(self._flat(item) for item in fact.items[1:])))
        self.conditions.append(Condition("fact", flat, str(fact)))
        self.seen |= free_variables(flat)

    def _fresh(self) -> str:
        self._count += 1
        return f"part.{self._count}"

    def _flat(self, node: Node) -> Node:
        """The expression with a variable in place of each function and constructor, which get conditions of their
        own."""
        if isinstance(node, Atom):
            return node
        if constructs(node, self.tables):
            name = self._fresh()
            self._pattern(name, node, place=str(node))
            return Atom(name)
        flat = Form((node.items[0], *(self._flat(item) for item in node.items[1:])))
        if node.head not in self.tables:
            return flat
        name = self._fresh()
        self.conditions.append(Condition("lookup", Form((Atom("="), Atom(name), flat)), str(node)))
        self.seen |= {name, *free_variables(flat)}
        return Atom(name)

    def _pattern(self, variable: str, form: Form, place: str) -> None:
        """An operator level by level: first the operator, then its literals, then the operators below it."""
        pending = [(variable, form, place)]
        while pending:
            variable, form, place = pending.pop(0)
            self.seen.add(variable)
            names, inner = [], []
            for argument, position in zip(form.items[1:], _positions(form), strict=True):
                name = self._argument(argument)
                names.append(Atom(name))
                if constructs(argument, self.tables):
                    pending.append((name, argument, position))
                elif str(argument) != name:
                    inner.append(self._literal(name, argument, position))
            fact = Form((Atom("="), Atom(variable), Form((form.items[0], *names))))
            self.conditions.append(Condition("operator", fact, str(form), variable, place, form.head))
            self.conditions += inner

    def _argument(self, argument: Node) -> str:
        """The variable of an argument: the argument itself if it is a variable that no condition has introduced."""
        if isinstance(argument, Atom) and is_variable(argument) and argument.text not in self.seen:
            self.seen.add(argument.text)
            return argument.text
        return self._fresh()

    def _literal(self, name: str, argument: Node, position: str) -> Condition:
        fact = Form((Atom("="), Atom(name), self._flat(argument)))
        return Condition("argument", fact, str(argument), name, position, str(argument))


def _positions(form: Form) -> list[str]:
    """The name of each argument of a constructor."""
    operator = OPERATORS.get(form.head)
    if operator is None:
        return [f"argument {i} of {form.head}" for i in range(1, len(form.items))]
    operands = {a.name: i for i, a in enumerate(operator.operands, 1)}
    names = [f"operand {operands[a.name]}" if a.name in operands else a.name for a in operator.arguments]
    return [f"{name} of {form.head}" for name in names]


# --- the order


def _order(conditions: list[Condition], root: str) -> tuple[Condition, ...]:
    """The conditions in the rule's order, but each as soon as the variables that it needs are bound."""
    bound, pending, ordered = {root}, list(conditions), []
    while pending:
        chosen = next((c for c in pending if _is_ready(c, bound)), pending[0])
        pending.remove(chosen)
        ordered.append(chosen)
        bound |= chosen.variables
    return tuple(ordered)


def _is_ready(condition: Condition, bound: set[str]) -> bool:
    """Whether enough variables are bound to check the condition, which then binds the rest of its variables."""
    if condition.kind == "operator" and condition.variable in bound:
        return True
    if condition.kind in ("operator", "lookup") or condition.fact.head not in COMPUTED:
        return bool(condition.variables & bound) or not condition.variables
    unbound = condition.variables - bound
    sides = (str(side) for side in condition.fact.items[1:])
    return not unbound or (condition.fact.head == "=" and any(unbound == {side} for side in sides))


COMPUTED = frozenset(["=", "!=", "<", ">", "<=", ">=", "bool-=", "bool-!=", "bool-<", "bool->", "bool-<=", "bool->="])
"""Facts that are computed; all others are looked up in a table."""
