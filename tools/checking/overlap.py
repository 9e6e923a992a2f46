"""Rules that overlap: the same rewrite twice, or two rewrites of one left side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ...rules import sexpr
from ...rules.commute import is_variable, swappable, variables
from ...rules.records import Rule, conditions
from ...rules.sexpr import Atom, Form, Node
from .sampling.left_side import rename

COMMUTATIVE = frozenset(
    {"=", "Add", "Mul", "Min", "Max", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal"}
)


@dataclass(frozen=True)
class Overlap:
    """Two rules with the same left side. `same`: their right sides are the same too, so that the later rule is
    superfluous, unless its conditions are weaker. `conditions`: their conditions are the same."""

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
    """Pairs of rewrites whose left sides are equal except for the names of variables and the order of commutative
    operands."""
    seen: defaultdict[str, list[tuple[Rule, _Signature]]] = defaultdict(list)
    result = []
    for rule in rules:
        for signature in _signatures(rule):
            for other, theirs in seen[signature.left]:
                if other.base != rule.base:
                    same = signature.right == theirs.right
                    result.append(Overlap(rule, other, same, signature.conditions == theirs.conditions))
            seen[signature.left].append((rule, signature))
    return result


def count_distinct(rules: Iterable[Rule]) -> int:
    """The number of rules; those with equal left and right sides count once, as they write out the cases of one
    rewrite. Names and the order of commutative operands make no difference."""
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
    left = _sort_operands(left)
    names = {name: f"?{i}" for i, name in enumerate(dict.fromkeys(v.text for v in variables(left)))}
    facts = frozenset(str(_sort_operands(rename(condition, names))) for condition in asked)
    return _Signature(str(rename(left, names)), str(_sort_operands(rename(right, names))), facts)


def _skeleton(node: Node) -> str:
    """The text without the names of variables, to sort by."""
    if isinstance(node, Atom):
        return "?" if is_variable(node) else node.text
    return f"({' '.join((str(node.items[0]), *map(_skeleton, node.items[1:])))})"


def _sort_operands(node: Node) -> Node:
    """The expression with the operands of commutative constructors in a fixed order."""
    if isinstance(node, Atom):
        return node
    items = [_sort_operands(item) for item in node.items[1:]]
    if swappable(node, COMMUTATIVE):
        items.sort(key=_skeleton)
    return Form((node.items[0], *items))
