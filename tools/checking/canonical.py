"""A rule as the checker reads it: no verdict depends on how its author called the rule or its variables, or in which
order the conditions stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from ...rules import sexpr
from ...rules.binding import in_order_of_binding
from ...rules.commute import variables
from ...rules.records import Rule, conditions, parse_example
from ...rules.sexpr import Atom, Form, Node
from .sampling.by_key import write_constructors
from .sampling.left_side import rename
from .verdict import Verdict

_NAME = '"rule"'
_OWN = re.compile(r"\b(?:variable|example)-\d+\b")
"""The names of variables in a canonical rule, and in its example."""
_ANYTHING = "_"
"""A wildcard: each mention of it is a variable of its own."""
_REFINEMENTS = 4
"""Rounds of refinement: if no chain of this many conditions tells two variables apart, they may change places, and the
rule with other names may get another canonical form. More rounds cost time and tell few more variables apart."""
_ITSELF = "itself"
_LAST_SIDE = 2
"""The place of the right side of a rewrite, and of the actions of a rule."""


@dataclass(frozen=True)
class CanonicalRule:
    """A rule whose variables are numbered in the order of their first mention. `names` has the author's."""

    rule: Rule
    names: dict[str, str]

    def with_author_names(self, verdict: Verdict) -> Verdict:
        """The verdict on the canonical rule as one on the author's."""
        example = verdict.counterexample
        if example is not None:
            example = replace(
                example,
                sample=self._restore(example.sample),
                made=self._restore(example.made),
                reason=self._restore(example.reason),
                elements={self._restore(name): elements for name, elements in example.elements.items()},
            )
        return replace(
            verdict,
            condition=self._restore(verdict.condition),
            reason=self._restore(verdict.reason),
            remark=self._restore(verdict.remark),
            uncovered=tuple(map(self._restore, verdict.uncovered)),
            counterexample=example,
        )

    def _restore(self, text: str) -> str:
        return _OWN.sub(lambda match: self.names.get(match[0], match[0]), text)


def canonical(rule: Rule) -> CanonicalRule:
    """The rule in the form that does not depend on its author's choices.

    Its variables have canonical names, and so have those of its example, which are not the rule's. Its conditions are
    in a canonical order. Constructors replace the keys of operators that have one.
    """
    form = sexpr.read(rule.text).forms[0]
    sides = () if form.head == "rule" else form.items[1 : _LAST_SIDE + 1]
    uses = _uses(form)
    form = in_order_of_binding(form, lambda ordered, condition: _newness((*sides, *ordered), condition, uses))
    own = _numbered(_expressions(form), "variable")
    items = (_rename_item(form, place, own) for place in range(len(form.items)))
    example = parse_example(rule.example)
    others = _numbered((*example.lefts, example.right), "example")
    lefts, right = (
        " ".join(str(write_constructors(rename(side, others))) for side in sides)
        for sides in (example.lefts, (example.right,))
    )
    renamed = replace(rule, text=str(write_constructors(Form(tuple(items)))), example=f"{lefts} => {right}")
    return CanonicalRule(renamed, {new: old for names in (own, others) for old, new in names.items()})


def _newness(before: Sequence[Node], condition: Node, uses: dict[str, str]) -> tuple[bool, int, str]:
    """A sort key that does not depend on the names of variables: first come conditions that mention a variable of the
    nodes `before` them, and of these the ones with the fewest new variables, which `uses` tells apart."""
    known = _numbered(before, "variable")
    mentioned = dict.fromkeys(v.text for v in variables(condition))
    new = len(mentioned.keys() - known.keys())
    return new == len(mentioned), new, str(rename(condition, {v: known.get(v, uses[v]) for v in mentioned}))


def _uses(form: Form) -> dict[str, str]:
    """A word for each variable, made from the expressions of the rule that use it, whatever the names of variables and
    the order of conditions are. As in colour refinement, each round adds the words of the variables beside it."""
    unordered = form.items[1].items if form.head == "rule" else conditions(form)  # type: ignore[union-attr]
    ordered = form.items[_LAST_SIDE].items if form.head == "rule" else form.items[1 : _LAST_SIDE + 1]  # type: ignore[union-attr]
    expressions = [("", node) for node in unordered] + [(str(place), node) for place, node in enumerate(ordered)]
    users: dict[str, list[tuple[str, Node]]] = {}
    for place, node in expressions:
        for name in dict.fromkeys(v.text for v in variables(node)):
            users.setdefault(name, []).append((place, node))
    words = dict.fromkeys(users, _ANYTHING)
    for _ in range(_REFINEMENTS):
        told = {
            name: sorted(f"{place} {rename(node, {**words, name: _ITSELF})}" for place, node in those)
            for name, those in users.items()
        }
        words = {name: sha256("\n".join(texts).encode()).hexdigest()[:12] for name, texts in told.items()}
    return words


def _numbered(nodes: Iterable[Node], word: str) -> dict[str, str]:
    """New names for the variables of some expressions, by the order of their first mention."""
    names = dict.fromkeys(v.text for node in nodes for v in variables(node) if v.text != _ANYTHING)
    return {name: f"{word}-{number}" for number, name in enumerate(names, 1)}


def _expressions(form: Form) -> Iterator[Node]:
    """The expressions with variables: both sides, the facts and the actions."""
    for place in range(1, len(form.items)):
        if _is_list(form, place):
            yield from form.items[place].items  # type: ignore[union-attr]
        elif place <= _LAST_SIDE:
            yield form.items[place]


def _is_list(form: Form, place: int) -> bool:
    """Whether an item is a list of facts or actions rather than a term."""
    is_facts = str(form.items[place - 1]) == ":when" or (form.head == "rule" and place <= _LAST_SIDE)
    return is_facts and isinstance(form.items[place], Form)


def _rename_item(form: Form, place: int, names: dict[str, str]) -> Node:
    item = form.items[place]
    if place and isinstance(item, Form) and _is_list(form, place):
        return Form(tuple(rename(each, names) for each in item.items))
    if 0 < place <= _LAST_SIDE:
        return rename(item, names)
    return Atom(_NAME) if str(form.items[place - 1]) == ":name" else item
