"""Rules of the user's files that derive facts, put into the rules that ask for these facts.

A derived fact says no more than the conditions of the rule that derives it: a rewrite that asks for the fact is checked
as a rewrite that asks for these conditions, once for each rule that derives the fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ...rules import sexpr
from ...rules.commute import is_variable, variables
from ...rules.records import Rule
from ...rules.sexpr import Atom, Form, Node
from .drawing.left_side import Derivation, derivations_in, substitute

_DEPTH = 3
"""How many rules deep facts are replaced by conditions; derivations that recur end there."""
_MOST = 16
"""Ways to derive the facts of a rule that are checked."""


@dataclass(frozen=True)
class RuleExpansion:
    """A rule whose derived facts are replaced by the conditions of the rules that derive them, named in `by`."""

    by: tuple[str, ...]
    rule: Rule


def expand_derived_facts(rule: Rule, declarations: str) -> list[RuleExpansion]:
    """The rule for each way to derive its facts by the rules among `declarations`; [] where it asks for none of
    their facts."""
    lemmas = list(derivations_in(sexpr.read(declarations).forms))
    form = sexpr.read(rule.text).forms[0]
    place = 1 if form.head == "rule" else next((i for i, item in enumerate(form.items) if str(item) == ":when"), -2) + 1
    facts = form.items[place] if place > 0 else None
    if not isinstance(facts, Form):
        return []
    result = []
    for by, conditions in islice(((by, c) for by, c in _derive(facts.items, lemmas, _DEPTH) if by), _MOST):
        items = (*form.items[:place], Form(conditions), *form.items[place + 1 :])
        result.append(RuleExpansion(by, replace(rule, text=str(Form(items)))))
    return result


def _derive(
    facts: Sequence[Node], lemmas: Sequence[Derivation], depth: int
) -> Iterator[tuple[tuple[str, ...], tuple[Node, ...]]]:
    """The names of the rules used, and the facts with the conditions of these rules in the place of derived facts."""
    for position, fact in enumerate(facts):
        fitting = [le for le in lemmas if isinstance(fact, Form) and le.conclusion.head == fact.head]
        if fitting and isinstance(fact, Form):
            for lemma in fitting if depth else ():
                marks = "'" * (_DEPTH - depth + 1)
                inside = _conditions_of(lemma, fact, f"{marks}{position}")
                for by, rest in _derive((*facts[:position], *inside, *facts[position + 1 :]), lemmas, depth - 1):
                    yield (lemma.rule, *by), rest
            return
    yield (), tuple(facts)


def _conditions_of(lemma: Derivation, fact: Form, suffix: str) -> Iterator[Node]:
    """The conditions under which a rule derives a fact; its other variables get names of their own."""
    nodes = (*lemma.premises, lemma.conclusion)
    values: dict[str, Node] = {v.text: Atom(f"{v.text}{suffix}") for node in nodes for v in variables(node)}
    bound: set[str] = set()
    equations: list[tuple[Node, Node]] = []
    for own, item in zip(lemma.conclusion.items[1:], fact.items[1:], strict=True):
        if isinstance(own, Atom) and is_variable(own) and own.text not in bound:
            bound.add(own.text)
            values[own.text] = item
        else:
            equations.append((own, item))
    yield from (substitute(node, values) for node in lemma.premises)
    yield from (Form((Atom("="), substitute(own, values), item)) for own, item in equations)
