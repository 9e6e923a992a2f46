"""Facts that the shipped analyses derive only on demand, and rules that ask for one without a demand of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from ...rules import sexpr
from ...rules.places import analysis_files
from ...rules.records import Rule, conditions
from ...rules.sexpr import Form, Node

_DEMAND = "-demand"
"""The end of the name of every relation by which a rule demands facts."""


def describe_missing_demand(rule: Rule, declarations: str) -> str:
    """The first fact that a rule asks for although no rule among `declarations` demands it, as part of a sentence; ""
    if there is none. Rules and analyses of other files may demand it for the rule's operators."""
    demanded = {row.head for row in _rows(sexpr.read(declarations).forms)}
    form = sexpr.read(rule.text).forms[0]
    facts = form.items[1] if form.head == "rule" else Form((form.items[1], *conditions(form)))
    for fact in (node for node in sexpr.walk(facts) if isinstance(node, Form)):
        demands = _demands().get(fact.head, frozenset())
        if demands and demands.isdisjoint(demanded):
            names = " or ".join(f"({demand} ...)" for demand in sorted(demands))
            return f"it asks for {fact}, which is derived on demand, and no rule of its file makes {names}"
    return ""


@cache
def _demands() -> dict[str, frozenset[str]]:
    """By fact the demands from which it is derived; facts that are derived without one are left out."""
    premises: dict[str, list[frozenset[str]]] = {}
    for form in (sexpr.read(rule.text).forms[0] for file in analysis_files() for rule in file.rules):
        if form.head == "rule":
            heads = frozenset(node.head for node in sexpr.walk(form.items[1]) if isinstance(node, Form))
            for row in _rows((form,)):
                premises.setdefault(row.head, []).append(heads)
    facts = {head for head in premises if not head.endswith(_DEMAND)}
    while free := {head for head in facts if any(not (_own(each) | each & facts) for each in premises[head])}:
        facts -= free
    behind = {head: frozenset[str]().union(*map(_own, premises[head])) for head in facts}
    for _ in facts:
        behind = {
            head: own or own.union(*(behind[other] for each in premises[head] for other in each & facts))
            for head, own in behind.items()
        }
    return behind


def _own(heads: Iterable[str]) -> frozenset[str]:
    return frozenset(head for head in heads if head.endswith(_DEMAND))


def _rows(forms: Iterable[Form]) -> Iterator[Form]:
    """The rows of tables that the actions of rules make."""
    for form in forms:
        actions: Node = form.items[2] if form.head == "rule" else Form(())
        for action in actions.items if isinstance(actions, Form) else ():
            if isinstance(action, Form) and action.head not in ("union", "let", "subsume", "delete"):
                row = action.items[1] if action.head == "set" else action
                if isinstance(row, Form):
                    yield row
