"""Operators that a rule names by key although the operator table has a row for them: made terms of its constructor.

``(Out (Op "com.microsoft.Gelu" (Cons x (Nil))) 0)`` and ``(MicrosoftGelu x)`` are one operator, but the checker knows
only what the second computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ....engine.egraph.other_domains import parse_operator_key
from ....ir.operators import OPERATORS, Attribute, OperatorSchema
from ....rules.sexpr import Atom, Form, Node
from .conditions import Value
from .scratch import Classes, EClass, Fired, ScratchNode
from .terms import literal_text

_Operand = TypeVar("_Operand")
_READ = {"f64": float, "i64": int, "Ints": tuple, "String": str}
"""For each kind of literal the function that makes it from a value in a key."""


def key_misfit(key: str) -> str:
    """The attributes in a key of an operator that its row in the table does not have, as a sentence; "" if there are
    none or the operator has no row."""
    parsed = parse_operator_key(key)
    row = None if parsed is None else _row(*parsed[:2])
    if parsed is None or row is None:
        return ""
    unknown = sorted(parsed[2].keys() - {attribute.name for attribute in row.attributes})
    return f"{parsed[0]}.{parsed[1]} has no attribute {', '.join(unknown)}" if unknown else ""


def _row(domain: str, op_type: str) -> OperatorSchema | None:
    rows = (row for row in OPERATORS.values() if row.domain == domain)
    return next((row for row in rows if op_type == (row.op_type or row.name)), None)


def _arguments(
    row: OperatorSchema, attributes: Mapping[str, Any], operands: Sequence[_Operand], absent: _Operand
) -> list[_Operand | Value] | None:
    """The arguments of a row's constructor; None if the key and the operands do not fit the row."""
    least = sum(not operand.optional for operand in row.operands)
    known = {attribute.name for attribute in row.attributes}
    if attributes.keys() - known or not least <= len(operands) <= len(row.operands):
        return None
    waiting = [*operands, *[absent] * (len(row.operands) - len(operands))]
    result: list[_Operand | Value] = []
    for argument in row.arguments:
        if not isinstance(argument, Attribute):
            result.append(waiting.pop(0))
            continue
        value = attributes.get(argument.name, argument.default)
        try:
            result.append(_READ[argument.kind](value))
        except (TypeError, ValueError):
            return None
    return result


# --- in the text of a rule


def write_constructors(node: Node) -> Node:
    """The expression with constructors in the place of keys that are written out."""
    if isinstance(node, Atom):
        return node
    node = Form(tuple(map(write_constructors, node.items)))
    if node.head == "Out" and len(node.items) == 3 and isinstance(node.items[1], Form):
        inner = node.items[1]
        row = OPERATORS.get(inner.head)
        if row is not None and row.domain and row.sort == "T" and str(node.items[2]) == "0":
            return inner
    return _constructor(node) or node


def _constructor(node: Form) -> Form | None:
    if node.head != "Op" or len(node.items) != 3 or not str(node.items[1]).startswith('"'):
        return None
    parsed = parse_operator_key(str(node.items[1]).strip('"'))
    row = None if parsed is None else _row(*parsed[:2])
    operands = _list_items(node.items[2])
    if parsed is None or row is None or operands is None:
        return None
    arguments = _arguments(row, parsed[2], operands, Form((Atom("Absent"),)))
    if arguments is None:
        return None
    return Form((Atom(row.name), *(a if isinstance(a, (Atom, Form)) else _literal(a) for a in arguments)))


def _literal(value: Value) -> Node:
    if isinstance(value, tuple):
        return Form((Atom("vec-of" if value else "vec-empty"), *(Atom(str(item)) for item in value)))
    return Atom(literal_text(value))


def _list_items(node: Node) -> list[Node] | None:
    """The items of a list that is written out."""
    items = []
    while isinstance(node, Form) and node.head == "Cons" and len(node.items) == 3:
        items.append(node.items[1])
        node = node.items[2]
    return items if isinstance(node, Form) and node.head == "Nil" else None


# --- in the result of a rule


def name_operators(fired: Fired) -> Fired:
    """The result of a rule, in which nodes of the rows' constructors replace nodes with computed keys."""
    classes = fired.classes
    if not any(node.head == "Op" for nodes in classes.values() for node in nodes):
        return fired
    absent = next((c for c, nodes in classes.items() if any(n.head == "Absent" for n in nodes)), EClass(-1))
    classes = {absent: (ScratchNode("Absent", ()),), **classes}
    named = {
        number: tuple(_named(node, classes, absent) or node for node in nodes) for number, nodes in classes.items()
    }
    if not any(node.head == "Op" for nodes in named.values() for node in nodes):  # nothing needs the lists any more
        named = {c: nodes for c, nodes in named.items() if not any(node.head in ("Cons", "Nil") for node in nodes)}
    single = {number: node for number, nodes in named.items() for node in nodes if _has_one_output(node)}
    return Fired(fired.roots, {c: tuple(_only_output(n, single) for n in nodes) for c, nodes in named.items()})


def _has_one_output(node: ScratchNode) -> bool:
    row = OPERATORS.get(node.head)
    return row is not None and bool(row.domain) and row.sort == "T"


def _only_output(node: ScratchNode, single: Mapping[EClass, ScratchNode]) -> ScratchNode:
    inner = single.get(node.arguments[0]) if node.head == "Out" else None  # type: ignore[arg-type]
    return inner if inner is not None and node.arguments[1] == 0 else node


def _named(node: ScratchNode, classes: Classes, absent: EClass) -> ScratchNode | None:
    parsed = parse_operator_key(str(node.arguments[0])) if node.head == "Op" else None
    row = None if parsed is None else _row(*parsed[:2])
    if parsed is None or row is None:
        return None
    operands = []
    rest = node.arguments[1]
    while isinstance(rest, EClass) and (cell := next((n for n in classes[rest] if n.head == "Cons"), None)) is not None:
        operands.append(cell.arguments[0])
        rest = cell.arguments[1]
    arguments = _arguments(row, parsed[2], operands, absent)
    return None if arguments is None else ScratchNode(row.name, tuple(arguments))
