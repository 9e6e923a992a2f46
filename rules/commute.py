"""Mirrored variants of a rewrite: the operands of commutative constructors in its left side, swapped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .sexpr import Atom, Form, Node, walk


def orders(pattern: Node, names: frozenset[str]) -> Iterator[Node]:
    """The pattern itself, then every other order of the operands of the named binary constructors in it."""
    if isinstance(pattern, Atom):
        yield pattern
        return
    inner = [list(orders(item, names)) for item in pattern.items]
    yield from (Form(items) for items in product(*inner))
    if swappable(pattern, names):
        yield from (Form((head, right, left)) for head, left, right in product(*inner))


def swappable(node: Node, names: frozenset[str]) -> bool:
    """Whether the node is one of the named constructors applied to two arguments."""
    return isinstance(node, Form) and node.head in names and len(node.items) == 3


def is_variable(node: Node) -> bool:
    """Whether a node in argument position is a pattern variable rather than a literal or a form."""
    if isinstance(node, Form) or node.text[0] in '":' or node.text in ("true", "false", "NaN", "inf", "-inf"):
        return False
    return not node.text.lstrip("+-")[:1].isdigit()


def variables(node: Node) -> Iterator[Atom]:
    """The pattern variables of an expression, from left to right, with repetitions; heads of forms are none."""
    if isinstance(node, Atom):
        if is_variable(node):
            yield node
        return
    for item in node.items[1:]:
        yield from variables(item)


def _sort_operands(node: Node, names: frozenset[str], numbers: dict[str, int]) -> str:
    """The text of an expression with numbered variables and the operands of commutative constructors sorted."""
    if isinstance(node, Atom):
        return f"?{numbers[node.text]}" if node.text in numbers and is_variable(node) else node.text
    arguments = [_sort_operands(item, names, numbers) for item in node.items[1:]]
    if swappable(node, names):
        arguments.sort()
    return f"({' '.join((str(node.items[0]), *arguments))})"


def _signature(rewrite: Form, names: frozenset[str]) -> tuple[str, ...]:
    """Equal for two rewrites that match the same terms and make the same of them, but for names and mirror images."""
    left, *others = rewrite.items[1:]
    numbers = {name: i for i, name in enumerate(dict.fromkeys(v.text for v in variables(left)))}
    conditions = [f for f in others[1:] if isinstance(f, Form)]
    exact = _sort_operands(left, frozenset(), numbers)
    facts = sorted(_sort_operands(f, names, numbers) for condition in conditions for f in condition.items)
    return (exact, _sort_operands(others[0], names, numbers), *facts)


def mirror(rewrite: Form, names: frozenset[str]) -> list[Form]:
    """The variants of ``(rewrite left right options...)`` that differ from it and from each other.

    Two are the same if renaming variables makes their left sides equal and the rest equal up to the order of
    commutative operands.
    """
    head, left, *others = rewrite.items
    candidates = [Form((head, order, *others)) for order in orders(left, names)]
    distinct: dict[tuple[str, ...], Form] = {}
    for candidate in candidates:
        distinct.setdefault(_signature(candidate, names), candidate)
    return list(distinct.values())[1:]


def swaps(pattern: Node, names: frozenset[str]) -> int:
    """How many constructors in the pattern can be swapped; there are 2**swaps orders."""
    return sum(swappable(node, names) for node in walk(pattern))
