"""Rules taken apart into the facts that have to match, and the terms that a match makes equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from ...rules.commute import is_variable, variables
from ...rules.records import Rule, conditions
from ...rules.sexpr import Atom, Form, Node, read, substitute
from .signatures import TERM_SORTS, Signatures

ROOT = "root.of.rewrite"
"""The variable for the term that a rewrite rewrites; a rule that is no rewrite names its own variables."""
_FLAGS = (":naive", ":no-decomp")
"""Options of egglog for the matching of a rule, which a recorder of its matches keeps."""


@dataclass(frozen=True)
class Pattern:
    """A rule in the one form that egglog knows: facts, and the pairs of expressions that a match unites.

    `name` is the one that egglog reports; a birewrite is two patterns. `flags` say how to match.
    """

    name: str
    rule: Rule
    facts: tuple[Node, ...]
    unions: tuple[tuple[Node, Node], ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hole:
    """A variable of a template."""

    name: str


@dataclass(frozen=True)
class Call:
    """A constructor over templates."""

    op: str
    arguments: tuple[Template, ...]


@dataclass(frozen=True)
class Literal:
    """A number or string."""

    value: int | float | str


Template = Hole | Call | Literal


def read_patterns(rule: Rule) -> tuple[Pattern, ...]:
    """The patterns of a rule."""
    form = read(rule.text).forms[0]
    if form.head == "rule":
        facts, unions = _distinct(_items(form.items[1])), tuple(_unions(_items(form.items[2])))
        return (Pattern(rule.name, rule, facts, unions, tuple(f for f in _FLAGS if f in map(str, form.items))),)
    left, right = form.items[1:3]
    asked = conditions(form)
    if form.head == "rewrite":
        return (_rewrite(rule.name, rule, left, right, asked),)
    return (
        _rewrite(f"{rule.name}=>", rule, left, right, asked),
        _rewrite(f"{rule.name}<=", rule, right, left, asked),
    )


def _rewrite(name: str, rule: Rule, left: Node, right: Node, asked: tuple[Node, ...]) -> Pattern:
    facts = (Form((Atom("="), Atom(ROOT), left)), *asked)
    return Pattern(name, rule, _distinct(facts), ((Atom(ROOT), right),))


def _items(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Form) else ()


def _distinct(facts: Sequence[Node]) -> tuple[Node, ...]:
    """The facts with a name of its own for every `_`."""
    count = 0

    def rename(node: Node) -> Node:
        nonlocal count
        if isinstance(node, Form):
            return Form(tuple(map(rename, node.items)), node.start, node.end)
        if node.text != "_":
            return node
        count += 1
        return Atom(f"any.{count}", node.start)

    return tuple(map(rename, facts))


def _unions(actions: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
    """The pairs that the actions unite, with the definitions of their variables put in."""
    defined: dict[str, Node] = {}
    for action in actions:
        if isinstance(action, Form) and action.head == "let":
            defined[str(action.items[1])] = substitute(action.items[2], defined)
        elif isinstance(action, Form) and action.head == "union":
            yield substitute(action.items[1], defined), substitute(action.items[2], defined)


def equated_variables(facts: Iterable[Node]) -> Iterator[tuple[str, Node]]:
    """The variables that stand alone on a side of an equation among the facts, each with the other side."""
    for fact in facts:
        if isinstance(fact, Form) and fact.head == "=" and len(fact.items) == 3:
            for one, other in (fact.items[1:], fact.items[:0:-1]):
                if isinstance(one, Atom) and is_variable(one):
                    yield one.text, other


def variable_sorts(facts: Sequence[Node], tables: Signatures) -> dict[str, str]:
    """The sorts of the variables that occur in constructors, functions and relations, or equal one of those."""
    sorts: dict[str, str] = {}
    for fact in facts:
        _argument_sorts(fact, tables, sorts)
        for name, other in equated_variables([fact]):
            if isinstance(other, Form) and other.head in tables:
                sorts.setdefault(name, tables[other.head].output)
    return sorts


def _argument_sorts(node: Node, tables: Signatures, sorts: dict[str, str]) -> None:
    if isinstance(node, Atom):
        return
    inputs = tables[node.head].inputs if node.head in tables else ()
    for index, item in enumerate(node.items[1:]):
        if isinstance(item, Atom) and is_variable(item) and index < len(inputs):
            sorts.setdefault(item.text, inputs[index])
        _argument_sorts(item, tables, sorts)


def find_definitions(facts: Sequence[Node], tables: Signatures) -> dict[str, Form]:
    """The variables that a fact sets equal to a constructor over operands; the first such fact counts."""
    equations = reversed([*equated_variables(facts)])
    return {name: other for name, other in equations if constructs(other, tables)}


def constructs(node: Node, tables: Signatures) -> TypeGuard[Form]:
    """Whether an expression is a constructor applied to something."""
    return isinstance(node, Form) and node.head in tables and tables[node.head].constructs


class Unclear(Exception):
    """A rule has a variable whose sort does not follow from the rule."""


@dataclass(frozen=True)
class Recorder:
    """A rule that records the matches of a pattern in a table instead of acting on them.

    A row of the table has the values of `columns` (variable -> sort), in order; `equations` are the two sides of each
    union in terms of them.
    """

    pattern: Pattern
    table: str
    columns: Mapping[str, str]
    equations: tuple[tuple[Template, Template], ...]
    program: str


def make_recorder(pattern: Pattern, table: str, ruleset: str, tables: Signatures, anchor: str = "") -> Recorder:
    """The recorder of a pattern; `anchor` is a further fact. Raises Unclear."""
    builder = _TemplateBuilder(tables, find_definitions(pattern.facts, tables), variable_sorts(pattern.facts, tables))
    equations = tuple(builder.equation(*union) for union in pattern.unions)
    columns = builder.columns
    sorts = " ".join(columns.values())
    facts, flags = " ".join(map(str, (*pattern.facts, *builder.facts))), " ".join(pattern.flags)
    program = (
        f"(relation {table} ({sorts}))\n"
        f'(rule ({facts} {anchor}) (({table} {" ".join(columns)})) {flags} :ruleset {ruleset} :name "{table}")\n'
    )
    return Recorder(pattern, table, columns, equations, program)


@dataclass
class _TemplateBuilder:
    """Makes templates of expressions, and collects for a recorder the `columns` and `facts` that their holes need."""

    tables: Signatures
    defined: Mapping[str, Form]
    sorts: Mapping[str, str]
    columns: dict[str, str] = field(default_factory=dict)
    facts: list[Form] = field(default_factory=list)
    computed: dict[str, str] = field(default_factory=dict)

    def equation(self, left: Node, right: Node) -> tuple[Template, Template]:
        sort = next((s for s in map(self._sort, (left, right)) if s), "")
        if sort not in TERM_SORTS:
            raise Unclear(f"cannot tell what ({left} {right}) unites")
        return self.template(left, sort), self.template(right, sort)

    def _sort(self, node: Node) -> str:
        if isinstance(node, Form):
            return self.tables[node.head].output if node.head in self.tables else ""
        return self.sorts.get(node.text, "")

    def template(self, node: Node, sort: str, inside: frozenset[str] = frozenset()) -> Template:
        """The expression as a template; a variable that the facts define becomes its definition.

        The value of a primitive or function becomes a hole.
        """
        if isinstance(node, Atom):
            if not is_variable(node):
                return Literal(literal(node.text, sort))
            if node.text in self.defined and node.text not in inside:
                return self.template(self.defined[node.text], sort, inside | {node.text})
            self.columns[node.text] = sort
            return Hole(node.text)
        if constructs(node, self.tables):
            arguments = zip(node.items[1:], self.tables[node.head].inputs, strict=True)
            return Call(node.head, tuple(self.template(a, s, inside) for a, s in arguments))
        text = str(node)
        if text not in self.computed:
            self.computed[text] = f"computed.{len(self.computed)}"
            self.facts.append(Form((Atom("="), Atom(self.computed[text]), node)))
            self.columns[self.computed[text]] = sort
        return Hole(self.computed[text])


def literal(text: str, sort: str) -> int | float | str:
    """The value of a literal as a rule writes it."""
    if text.startswith('"'):
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return float(text) if sort == "f64" else int(text)


def free_variables(node: Node) -> set[str]:
    """The variables in an expression."""
    return {v.text for v in variables(node)}
