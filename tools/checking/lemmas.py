"""Rules of the user's files that derive facts, taken into the rules that ask for these facts.

A fact that such a rule derives holds no more than its own conditions: a rewrite that asks for it is a rewrite that asks
for them, and is checked as that, for each rule that derives the fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...rules import sexpr
from ...rules.commute import is_variable, variables
from ...rules.records import Rule, option
from ...rules.sexpr import Atom, Form, Node

_DEPTH = 3
"""How many rules deep facts are taken apart; those that follow from themselves end there."""
_MOST = 16
"""Ways to derive what a rule asks for that are looked at."""


@dataclass(frozen=True)
class _Lemma:
    name: str
    conclusion: Form
    facts: tuple[Node, ...]


@dataclass(frozen=True)
class Way:
    """A rule with the conditions of the rules `by` which its facts are derived, in the place of those facts."""

    by: tuple[str, ...]
    rule: Rule


def ways(rule: Rule, declarations: str) -> list[Way]:
    """The rule for each way to derive what it asks for by the rules among `declarations`; none where it asks for
    nothing of them."""
    lemmas = list(_lemmas(declarations))
    form = sexpr.read(rule.text).forms[0]
    place = 1 if form.head == "rule" else next((i for i, item in enumerate(form.items) if str(item) == ":when"), -2) + 1
    facts = form.items[place] if place > 0 else None
    if not isinstance(facts, Form):
        return []
    found: list[Way] = []
    for by, asked in _taken_apart(facts.items, lemmas, _DEPTH):
        if by and len(found) < _MOST:
            items = (*form.items[:place], Form(asked), *form.items[place + 1 :])
            found.append(Way(by, replace(rule, text=str(Form(items)))))
    return found


def _lemmas(declarations: str) -> Iterator[_Lemma]:
    for form in sexpr.read(declarations).forms:
        parts = form.items[1:3]
        if form.head == "rule" and all(isinstance(part, Form) for part in parts):
            facts, actions = (part.items for part in parts if isinstance(part, Form))
            for action in actions:
                if isinstance(action, Form) and action.head not in ("set", "let"):
                    yield _Lemma(option(form, ":name"), action, facts)


def _taken_apart(
    facts: Sequence[Node], lemmas: Sequence[_Lemma], depth: int
) -> Iterator[tuple[tuple[str, ...], tuple[Node, ...]]]:
    """The names of the rules taken in, and the facts with their conditions in place of what they derive."""
    for position, fact in enumerate(facts):
        fitting = [le for le in lemmas if isinstance(fact, Form) and le.conclusion.head == fact.head]
        if fitting and isinstance(fact, Form):
            for lemma in fitting if depth else ():
                marks = "'" * (_DEPTH - depth + 1)
                inside = _instance(lemma, fact, f"{marks}{position}")
                for by, rest in _taken_apart((*facts[:position], *inside, *facts[position + 1 :]), lemmas, depth - 1):
                    yield (lemma.name, *by), rest
            return
    yield (), tuple(facts)


def _instance(lemma: _Lemma, fact: Form, suffix: str) -> Iterator[Node]:
    """The conditions under which a rule derives a fact; its other variables get names of their own."""
    names: dict[str, Node] = {}
    equal: list[Node] = []
    for given, asked in zip(lemma.conclusion.items[1:], fact.items[1:], strict=True):
        if isinstance(given, Atom) and is_variable(given) and given.text not in names:
            names[given.text] = asked
        else:
            equal.append(Form((Atom("="), given, asked)))
    own = {v.text for node in (*lemma.facts, lemma.conclusion) for v in variables(node)}
    every = {name: names.get(name, Atom(f"{name}{suffix}")) for name in own}
    yield from (_substituted(node, every) for node in lemma.facts)
    for node in equal:
        assert isinstance(node, Form)
        yield Form((node.items[0], _substituted(node.items[1], every), node.items[2]))


def _substituted(node: Node, names: dict[str, Node]) -> Node:
    if isinstance(node, Atom):
        return names.get(node.text, node) if is_variable(node) else node
    return Form((*node.items[:1], *(_substituted(item, names) for item in node.items[1:])))
