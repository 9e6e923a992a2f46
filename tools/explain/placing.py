"""A session's e-graph by class, and in terms of another e-graph of the same encoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...engine.egraph.graph import EGraph, ENode, Literal
from .messages import Cell, Contents, class_number
from .signatures import TERM_SORTS, Signatures

_LISTS = frozenset({"Nil", "Cons"})


@dataclass
class Classes:
    """The e-nodes of each class of a session, over such classes; the class of each term of the encoding, and the first
    term in a class."""

    rows: dict[int, list[ENode]] = field(default_factory=dict)
    of: dict[int, int] = field(default_factory=dict)
    terms: dict[int, int] = field(default_factory=dict)


def group_by_class(contents: Contents, tables: Signatures, originals: Mapping[str, str]) -> Classes:
    """Sort the rows of a session by class; `originals` are what the labels in its tables stand for."""
    by_class = Classes()
    for name in ("term", "node"):
        rows = contents.constructors[name]
        by_class.of |= {class_number(index): class_number(owner) for index, owner in rows}
    for index in sorted(by_class.of):
        by_class.terms.setdefault(by_class.of[index], index)
    for op, rows in contents.constructors.items():
        if op in ("term", "node"):
            continue
        sorts = tables[op].inputs
        for row in rows:
            cells = list(zip(sorts, row, strict=False))
            literals = tuple(_original(c, originals) for s, c in cells if s not in TERM_SORTS)
            children = tuple(class_number(c) for s, c in cells if s in TERM_SORTS)
            by_class.rows.setdefault(class_number(row[-1]), []).append(ENode(op, literals, children))
    return by_class


def _original(cell: Cell, originals: Mapping[str, str]) -> Literal:
    return originals.get(cell, cell) if isinstance(cell, str) else cell


def place_classes(by_class: Classes, egraph: EGraph) -> dict[int, int]:
    """The class of the e-graph that each class of the session is, where there is one."""
    index = {node: owner for owner, c in enumerate(egraph.classes) for node in c.nodes}
    places = {owner: egraph.terms[term] for owner, term in by_class.terms.items() if term in egraph.terms}
    lists: dict[int, tuple[int, ...]] = {}
    pending = [(owner, row) for owner, rows in by_class.rows.items() for row in rows]
    while True:
        later = []
        for owner, row in pending:
            if owner not in places and owner not in lists and not _place(owner, row, places, lists, index):
                later.append((owner, row))
        if len(later) == len(pending):
            return places
        pending = later


def _place(
    owner: int, row: ENode, places: dict[int, int], lists: dict[int, tuple[int, ...]], index: Mapping[ENode, int]
) -> bool:
    """Place one class by one of its e-nodes, if its operands are placed."""
    operands = tuple(_operands(row.children, places, lists))
    if len(operands) < len(row.children):
        return False
    flat = tuple(o for operand in operands for o in operand)
    if row.op in _LISTS:
        lists[owner] = flat
        return True
    if (place := index.get(ENode(row.op, row.attributes, flat))) is not None:
        places[owner] = place
    return place is not None


def _operands(
    children: tuple[int, ...], places: Mapping[int, int], lists: Mapping[int, tuple[int, ...]]
) -> Iterator[tuple[int, ...]]:
    for child in children:
        if child in places:
            yield (places[child],)
        elif child in lists:
            yield lists[child]
