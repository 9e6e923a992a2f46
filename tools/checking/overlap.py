"""Rules that say the same: the same rewrite twice, or two for one left side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...rules import sexpr
from ...rules.commute import is_variable, swappable
from ...rules.records import Rule, conditions
from ...rules.sexpr import Atom, Form, Node

COMMUTATIVE = frozenset(
    {"=", "Add", "Mul", "Min", "Max", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal"}
)


@dataclass(frozen=True)
class Overlap:
    """Two rules with the same left side. `same` tells whether they also make the same of it: then the later one is
    superfluous, unless its conditions are weaker."""

    rule: Rule
    other: Rule
    same: bool
    conditions: bool


@dataclass(frozen=True)
class _Signature:
    left: str
    right: str
    conditions: frozenset[str]


def overlaps(rules: Iterable[Rule]) -> list[Overlap]:
    """Pairs of rewrites whose left sides are equal but for the names of variables and the order of commutative
    operands."""
    seen: dict[str, list[tuple[Rule, _Signature]]] = {}
    found = []
    for rule in rules:
        for signature in _signatures(rule):
            for other, theirs in seen.get(signature.left, []):
                if other.base != rule.base:
                    same = signature.right == theirs.right
                    found.append(Overlap(rule, other, same, signature.conditions == theirs.conditions))
            seen.setdefault(signature.left, []).append((rule, signature))
    return found


def distinct(rules: Iterable[Rule]) -> int:
    """How many rules there are when those count once that only write out the cases of one rewrite: equal left and
    right sides, up to names and the order of commutative operands."""
    seen: set[tuple[str, str] | str] = set()
    for rule in rules:
        signatures = _signatures(rule)
        seen.add((signatures[0].left, signatures[0].right) if signatures else rule.base)
    return len(seen)


def _signatures(rule: Rule) -> list[_Signature]:
    form = sexpr.read(rule.text).forms[0]
    if form.head == "rule":
        return []
    left, right = form.items[1:3]
    sides = [(left, right), (right, left)] if form.head == "birewrite" else [(left, right)]
    return [_signature(a, b, conditions(form)) for a, b in sides]


def _signature(left: Node, right: Node, asked: Iterable[Node]) -> _Signature:
    ordered = _sorted(left)
    names = {name: f"?{i}" for i, name in enumerate(dict.fromkeys(_variables(ordered)))}
    facts = frozenset(str(_sorted(_renamed(c, names))) for c in asked)
    return _Signature(str(_renamed(ordered, names)), str(_sorted(_renamed(right, names))), facts)


def _variables(node: Node) -> list[str]:
    if isinstance(node, Atom):
        return [node.text] if is_variable(node) else []
    return [name for item in node.items[1:] for name in _variables(item)]


def _renamed(node: Node, names: dict[str, str]) -> Node:
    if isinstance(node, Atom):
        return Atom(names.get(node.text, node.text)) if is_variable(node) else node
    return Form((node.items[0], *(_renamed(item, names) for item in node.items[1:])))


def _skeleton(node: Node) -> str:
    """The text without the names of variables, to sort by."""
    if isinstance(node, Atom):
        return "?" if is_variable(node) else node.text
    return f"({' '.join((str(node.items[0]), *map(_skeleton, node.items[1:])))})"


def _sorted(node: Node) -> Node:
    """The expression with the operands of commutative constructors in a fixed order."""
    if isinstance(node, Atom):
        return node
    items = [_sorted(item) for item in node.items[1:]]
    if swappable(node, COMMUTATIVE):
        items.sort(key=_skeleton)
    return Form((node.items[0], *items))
