"""Shorthand in rule files: `@each` states one rule for several operators, a named condition stands for its facts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from .binding import place_of_conditions
from .sexpr import Atom, Form, Node, SexprError, read, walk

SHARED = Path(__file__).with_name("conditions.egg")
"""The conditions that every rule file may use."""
_EACH = re.compile(r"@each\s+([^:]*):(.*)")
_VALUE = re.compile(r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|[^\s,()]+")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


# --- one rule for several operators


def instances(rule: Form, comment: Sequence[Atom]) -> Iterator[tuple[Form, Sequence[Atom]]]:
    """The rule and its comment for each row of its `@each` lines, in all combinations; themselves without such a line.

    Raises SexprError with the offset of an `@each` line that cannot be read, or of a placeholder without braces.
    """
    loops: list[Atom] = []
    others: list[Atom] = []
    for line in comment:
        if loops and loops[-1].text.endswith(","):
            loops[-1] = Atom(f"{loops[-1].text} {line.text}", loops[-1].start)
        else:
            (loops if line.text.startswith("@each") else others).append(line)
    if not loops:
        yield rule, comment
        return
    _check_placeholders(rule, loops, others)
    rules: list[tuple[Form, list[Atom]]] = []
    for rows in product(*map(_rows, loops)):
        values = {name: value for row in rows for name, value in row.items()}
        filled = _fill(rule, values)
        assert isinstance(filled, Form)
        rules.append((filled, [Atom(_fill_text(line.text, values), line.start) for line in others]))
    heads = [{node.head for node in walk(filled) if isinstance(node, Form)} for filled, _ in rules]
    for (filled, lines), used in zip(rules, heads, strict=True):
        elsewhere = set().union(*heads) - used
        kept = (_without(line, elsewhere) if line.text.startswith("@commutes") else line for line in lines)
        yield filled, [line for line in kept if line.text != "@commutes"]


def _check_placeholders(rule: Form, loops: Sequence[Atom], others: Sequence[Atom]) -> None:
    """Raise SexprError for a placeholder of operators that stands in the rule without braces, and nowhere with them.

    Operators begin with a capital; a small placeholder may be called as a variable of the rule is.
    """
    names = {name for line in loops if (match := _EACH.fullmatch(line.text)) for name in match[1].split()}
    atoms = [node for node in walk(rule) if isinstance(node, Atom)]
    filled = {name for part in (*atoms, *others, *loops) for name in _PLACEHOLDER.findall(part.text)}
    for atom in atoms:
        if atom.text[:1].isupper() and atom.text in names and atom.text not in filled:
            raise SexprError(atom.start, f"{atom.text} stands for a value of @each in braces only: {{{atom.text}}}")


def _without(line: Atom, operators: Collection[str]) -> Atom:
    """A line without some operators: `@commutes` lists those of all rules, and each rule has some of them."""
    return Atom(" ".join(word for word in line.text.replace(",", " ").split() if word not in operators), line.start)


def _rows(line: Atom) -> list[dict[str, str]]:
    """Read ``@each F o: Add +, Mul *``: the values of the placeholders for each rule. A comma at the end continues it.

    The name of a placeholder in lower case stands for its value as rules are named: `LogSoftmax` as ``log-softmax``.
    """
    match = _EACH.fullmatch(line.text)
    names = match[1].split() if match else []
    values = _VALUE.findall(match[2]) if match else []
    if not names or not values or len(values) % len(names):
        raise SexprError(line.start, "@each needs names, a colon, and a value for each name: @each F o: Add +, Mul *")
    rows = [dict(zip(names, row, strict=True)) for row in zip(*[iter(values)] * len(names), strict=True)]
    return [{name.lower(): _INNER_CAPITAL.sub("-", value).lower() for name, value in row.items()} | row for row in rows]


def _fill(node: Node, values: Mapping[str, str]) -> Node:
    if isinstance(node, Atom):
        if "{" not in node.text:
            return node
        text = _fill_text(node.text, values)
        return _substitute(read(text).forms[0], {}, node.start) if text.startswith("(") else Atom(text, node.start)
    return Form(tuple(_fill(item, values) for item in node.items), node.start, node.end)


def _fill_text(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


# --- named conditions


@dataclass(frozen=True)
class Condition:
    """``(condition (name parameters...) facts...)``."""

    parameters: tuple[str, ...]
    facts: tuple[Node, ...]


Conditions = Mapping[str, Condition]


def read_conditions(forms: Sequence[Form], shared: Conditions) -> Conditions:
    """The `shared` conditions and those that the forms define; a condition may use the ones before it."""
    conditions = dict(shared)
    for form in forms:
        head = form.items[1] if form.head == "condition" and len(form.items) > 1 else None
        if isinstance(head, Form) and head.head:
            facts = tuple(fact for called in form.items[2:] for fact in _facts(called, conditions))
            conditions[head.head] = Condition(tuple(map(str, head.items[1:])), facts)
    return conditions


@cache
def shared_conditions() -> Conditions:
    """The conditions of `SHARED`."""
    return read_conditions(read(SHARED.read_text(encoding="utf-8")).forms, {})


def expand_conditions(rule: Form, conditions: Conditions) -> Form:
    """The rule with the facts of each condition in place of its call; the rule itself if it calls none."""
    place = place_of_conditions(rule)
    if place is None:
        return rule
    called: Form = rule.items[place]  # type: ignore[assignment]
    facts = tuple(fact for call in called.items for fact in _facts(call, conditions))
    if facts == called.items:
        return rule
    return Form((*rule.items[:place], Form(facts, called.start), *rule.items[place + 1 :]), rule.start, rule.end)


def _facts(call: Node, conditions: Conditions) -> tuple[Node, ...]:
    """The facts that a condition stands for, all at the place of its call; any other fact itself."""
    condition = conditions.get(call.head) if isinstance(call, Form) else None
    if condition is None or not isinstance(call, Form) or len(call.items) != len(condition.parameters) + 1:
        return (call,)
    arguments = dict(zip(condition.parameters, call.items[1:], strict=True))
    return tuple(_substitute(fact, arguments, call.start) for fact in condition.facts)


def _substitute(node: Node, arguments: Mapping[str, Node], start: int) -> Node:
    if isinstance(node, Atom):
        return arguments.get(node.text, Atom(node.text, start))
    return Form(tuple(_substitute(item, arguments, start) for item in node.items), start, start)
