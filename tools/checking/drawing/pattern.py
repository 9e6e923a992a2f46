"""The left side of a rule, taken apart: which operator each variable is made by, and what else has to hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from random import Random

from ....ir.operators import OPERATORS, Operand
from ....rules import sexpr
from ....rules.commute import is_variable, variables
from ....rules.places import analysis_files
from ....rules.records import Rule, conditions
from ....rules.sexpr import Atom, Form, Node

Value = int | float | str | tuple[int, ...]
"""A literal of the rule language: i64, f64, String, or Ints."""

LEAVES: dict[str, tuple[str, ...]] = {
    "Var": ("String",),
    "Weight": ("String",),
    "Full": ("Ints", "f64", "String"),
    "Absent": (),
    "Out": ("N", "i64"),
}
TENSOR_SORTS = ("T", "N")
ASSERTED = frozenset({"const", "nonneg", "nonzero", "finite", "floating", "scalar", "aged"})
"""Relations of tensors that a leaf can be given; the others are traced back to the rules that derive them."""


@cache
def sorts_of(head: str) -> tuple[str, ...] | None:
    """Sorts of a constructor's arguments; None for what is no constructor of tensors."""
    if head in LEAVES:
        return LEAVES[head]
    operator = OPERATORS.get(head)
    return tuple("T" if isinstance(a, Operand) else a.kind for a in operator.arguments) if operator else None


@dataclass(frozen=True)
class Application:
    """A constructor and what it is applied to: names of variables, or literals as `sexpr.Atom` or `sexpr.Form`."""

    head: str
    arguments: tuple[str | Node, ...]


class Contradiction(ValueError):
    """Two descriptions of one variable do not agree."""


@dataclass
class Pattern:
    """`applications` says what a tensor variable is made by; every other tensor variable is a leaf. In `conditions`
    terms stand as variables. `tensors` are the tensor variables in the order they were met, `root` the first."""

    applications: dict[str, Application] = field(default_factory=dict)
    conditions: list[Node] = field(default_factory=list)
    tensors: dict[str, None] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)
    _alias: dict[str, str] = field(default_factory=dict)
    _fresh: int = 0

    @property
    def root(self) -> str:
        """The variable of the first fact."""
        return next(iter(self.roots()))

    def roots(self) -> list[str]:
        """Variables made by an operator that are no operand of another."""
        used = {a for application in self.applications.values() for a in application.arguments if isinstance(a, str)}
        return [v for v in self.applications if v not in used]

    def name(self, variable: str) -> str:
        """The variable that stands for this one."""
        while variable in self._alias:
            variable = self._alias[variable]
        return variable

    def fresh(self) -> str:
        """A variable that no rule can write."""
        self._fresh += 1
        return f"?{self._fresh}"

    @cached_property
    def equations(self) -> list[tuple[tuple[str, ...], Form]]:
        """The conditions that are equations, each with the variables that it may bind."""
        return [
            (tuple(i.text for i in c.items[1:] if isinstance(i, Atom) and is_variable(i)), c)
            for c in self.conditions
            if isinstance(c, Form) and c.head == "="
        ]

    @cached_property
    def asked(self) -> dict[str, list[Node]]:
        """By lookup that a condition contains, as ``(shape x)``: what equations say that it is."""
        found: dict[str, list[Node]] = {}
        for condition in self.conditions:
            for node in sexpr.walk(condition):
                if isinstance(node, Form) and len(node.items) == 2 and isinstance(node.items[1], Atom):
                    found.setdefault(str(node), [])
        for _, equation in self.equations:
            for item in equation.items[1:]:
                if isinstance(item, Form) and str(item) in found:
                    found[str(item)] += [other for other in equation.items[1:] if other is not item]
        return found

    @cached_property
    def asserted(self) -> dict[str, set[str]]:
        """By variable: the relations that hold of it alone."""
        found: dict[str, set[str]] = {}
        for condition in self.conditions:
            if isinstance(condition, Form) and len(condition.items) == 2:
                found.setdefault(str(condition.items[1]), set()).add(condition.head)
        return found

    # --- building

    def add_facts(self, facts: Iterable[Node]) -> None:
        """Take in the facts of a rule. Raises Contradiction."""
        for fact in facts:
            self._fact(fact)
        self._settle()

    def _fact(self, fact: Node) -> None:
        if isinstance(fact, Form) and sorts_of(fact.head) is not None:
            self.term(fact)
        elif isinstance(fact, Form) and fact.head == "=" and self._defines(fact):
            first, *others = (self.term(item) for item in fact.items[1:])
            for other in others:
                self.unite(first, other)
        else:
            self.conditions.append(self._flattened(fact))

    def _defines(self, fact: Form) -> bool:
        return any(isinstance(item, Form) and sorts_of(item.head) is not None for item in fact.items[1:])

    def term(self, node: Node) -> str:
        """The variable of a term; equal terms have one."""
        if isinstance(node, Atom):
            self.tensors.setdefault(self.name(node.text))
            return self.name(node.text)
        text = str(node)
        if text not in self._known:
            sorts = sorts_of(node.head)
            if sorts is None or len(sorts) != len(node.items) - 1:
                raise Contradiction(f"{text} is no term")
            arguments = tuple(
                self.term(item) if sort in TENSOR_SORTS else self._literal(item)
                for sort, item in zip(sorts, node.items[1:], strict=True)
            )
            variable = self.fresh()
            self._known[text] = variable
            self.applications[variable] = Application(node.head, arguments)
            self.tensors.setdefault(variable)
        return self.name(self._known[text])

    def _literal(self, node: Node) -> str | Node:
        if isinstance(node, Form) and any(True for _ in variables(node)):
            variable = self.fresh()
            self.conditions.append(Form((Atom("="), Atom(variable), node)))
            return variable
        return node.text if is_variable(node) and isinstance(node, Atom) else node

    def _flattened(self, node: Node) -> Node:
        if isinstance(node, Atom):
            return node
        if sorts_of(node.head) is not None:
            return Atom(self.term(node))
        return Form(tuple(self._flattened(item) for item in node.items))

    def unite(self, first: str, second: str) -> None:
        """Both variables are the same tensor or literal."""
        first, second = self.name(first), self.name(second)
        if first == second:
            return
        if first.startswith("?") and not second.startswith("?"):
            first, second = second, first
        self._alias[second] = first
        self.tensors.pop(second, None)
        mine, other = self.applications.get(first), self.applications.pop(second, None)
        if other is None:
            return
        self.applications[first] = other
        if mine is not None:
            self._unify(mine, other)

    def _unify(self, one: Application, other: Application) -> None:
        if one.head != other.head:
            raise Contradiction(f"{one.head} is not {other.head}")
        sorts = sorts_of(one.head) or ()
        for sort, a, b in zip(sorts, one.arguments, other.arguments, strict=True):
            if sort in TENSOR_SORTS and isinstance(a, str) and isinstance(b, str):
                self.unite(a, b)
            elif isinstance(a, str) and isinstance(b, str):
                self.conditions.append(Form((Atom("="), Atom(a), Atom(b))))
            elif isinstance(a, str) or isinstance(b, str):
                named, literal = (a, b) if isinstance(a, str) else (b, a)
                self.conditions.append(Form((Atom("="), Atom(str(named)), literal)))  # type: ignore[arg-type]
            elif not _same_literal(a, b):
                raise Contradiction(f"{a} is not {b}")

    def _settle(self) -> None:
        """Write every variable by the name that stands for it."""
        rename = {v: self.name(v) for v in self._alias}
        for variable, application in list(self.applications.items()):
            arguments = tuple(rename.get(a, a) if isinstance(a, str) else a for a in application.arguments)
            self.applications[variable] = Application(application.head, arguments)
        self.conditions = [renamed(c, rename) for c in self.conditions]


def _same_literal(a: Node, b: Node) -> bool:
    try:
        return float(str(a)) == float(str(b))
    except ValueError:
        return str(a) == str(b)


def renamed(node: Node, names: dict[str, str]) -> Node:
    """The expression with variables by other names."""
    if isinstance(node, Atom):
        return Atom(names[node.text]) if is_variable(node) and node.text in names else node
    return Form((node.items[0], *(renamed(item, names) for item in node.items[1:])))


# --- the facts of a rule


def directions(rule: Rule) -> list[tuple[str, tuple[Node, ...]]]:
    """The facts that make the rule fire; for a birewrite those of either direction, by the names egglog reports."""
    form = sexpr.read(rule.text).forms[0]
    if form.head == "rule":
        return [(rule.name, _items(form.items[1]))]
    left, right = form.items[1:3]
    asked = conditions(form)
    if form.head == "birewrite":
        return [(f"{rule.name}=>", (left, *asked)), (f"{rule.name}<=", (right, *asked))]
    return [(rule.name, (left, *asked))]


def _items(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Form) else ()


@cache
def _deriving() -> dict[str, list[tuple[Form, tuple[Node, ...]]]]:
    """By relation: the conclusions of the analyses' rules about it, with their facts."""
    found: dict[str, list[tuple[Form, tuple[Node, ...]]]] = {}
    for rule in (rule for file in analysis_files() for rule in file.rules):
        form = sexpr.read(rule.text).forms[0]
        if form.head != "rule":
            continue
        for action in _items(form.items[2]):
            if isinstance(action, Form) and action.head not in ("set", "union", "let", "subsume", "delete"):
                found.setdefault(action.head, []).append((action, _items(form.items[1])))
    return found


def _traceable(fact: Node, tensors: frozenset[str]) -> bool:
    return (
        isinstance(fact, Form)
        and fact.head not in ASSERTED
        and fact.head in _deriving()
        and len(fact.items) > 1
        and all(isinstance(i, Atom) for i in fact.items)
        and (any(isinstance(i, Atom) and i.text in tensors for i in fact.items[1:]) or _computed(fact.head))
    )


@cache
def _demands(relation: str) -> bool:
    """Whether a relation of literals only says that there is a tensor which they are about: egglog sees to it."""
    return all(
        {v.text for v in _tensor_atoms(facts)} - {str(i) for i in conclusion.items[1:]}
        for conclusion, facts in _deriving()[relation]
    ) and "T" not in _tensor_positions().get(relation, ("T",))


def _tensor_atoms(facts: Sequence[Node]) -> list[Atom]:
    return [Atom(name) for name in _tensor_variables(facts)]


@cache
def _computed(relation: str) -> bool:
    """Whether a relation of literals follows from arithmetic alone, but for the tensors that asked for it."""
    rules = _deriving().get(relation, [])
    mentioned = {n.head for _, facts in rules for f in facts for n in sexpr.walk(f) if isinstance(n, Form)}
    return bool(rules) and not any(name in _deriving() and not name.endswith("-shape") for name in mentioned)


def makes(facts: Sequence[Node]) -> bool:
    """Whether facts are about operators, and not only about what the analyses know."""
    facts = traced(facts, Random(0))
    return any(isinstance(n, Form) and sorts_of(n.head) is not None for fact in facts for n in sexpr.walk(fact))


def traced(facts: Sequence[Node], random: Random, depth: int = 4) -> tuple[Node, ...]:
    """The facts with each derived relation between tensors replaced by what one of its rules derives it from."""
    facts = [named for fact in facts for named in _named_operands(fact, random)]
    tensors = frozenset(_tensor_variables(facts))
    result: list[Node] = []
    for fact in facts:
        if isinstance(fact, Form) and fact.head in _deriving() and _demands(fact.head):
            continue
        if depth and _traceable(fact, tensors):
            conclusion, premises = random.choice(_deriving()[fact.head])  # type: ignore[union-attr]
            result += traced(_instantiated(fact, conclusion, premises, random), random, depth - 1)  # type: ignore[arg-type]
        else:
            result.append(fact)
    return tuple(result)


def _named_operands(fact: Node, random: Random) -> list[Node]:
    """A fact about terms and computed literals as one about variables, and what they are."""
    if not isinstance(fact, Form) or fact.head not in _deriving() or fact.head in ASSERTED:
        return [fact]
    items, equations = [], []
    for item in fact.items:
        if isinstance(item, Form):
            variable = Atom(f"?{random.randrange(10**9)}")
            equations.append(Form((Atom("="), variable, item)))
            items.append(variable)
        else:
            items.append(item)
    return [*equations, Form(tuple(items))]


def _tensor_variables(facts: Iterable[Node]) -> Iterator[str]:
    relations = _tensor_positions()
    for fact in facts:
        for node in sexpr.walk(fact):
            if isinstance(node, Form):
                sorts = sorts_of(node.head) or relations.get(node.head, ())
                for sort, item in zip(sorts, node.items[1:], strict=False):
                    if sort in TENSOR_SORTS and isinstance(item, Atom):
                        yield item.text


@cache
def _tensor_positions() -> dict[str, tuple[str, ...]]:
    """Sorts of the arguments of every declared relation and function."""
    found: dict[str, tuple[str, ...]] = {}
    for declaration in (d for file in analysis_files() for d in file.declarations):
        form = sexpr.read(declaration.text).forms[0]
        if form.head in ("relation", "function") and isinstance(form.items[2], Form):
            found[str(form.items[1])] = tuple(map(str, form.items[2].items))
    return found


def _instantiated(fact: Form, conclusion: Form, premises: tuple[Node, ...], random: Random) -> list[Node]:
    names = {v.text: f"?{random.randrange(10**9)}" for p in premises for v in variables(p)}
    equal: list[Node] = []
    for wanted, given in zip(fact.items[1:], conclusion.items[1:], strict=True):
        if isinstance(given, Atom) and is_variable(given) and given.text in names and isinstance(wanted, Atom):
            if is_variable(wanted) and names[given.text].startswith("?"):
                names[given.text] = wanted.text
            else:
                equal.append(Form((Atom("="), Atom(names[given.text]), wanted)))
        else:
            equal.append(Form((Atom("="), renamed(given, names), wanted)))
    return [renamed(p, names) for p in premises] + equal
