"""Conditions and what they were tried on, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from ...engine.egraph.encode import Encoding, opaque_type
from ...engine.egraph.graph import ENode
from ...rules.commute import variables
from ...rules.sexpr import Atom, Form, read, walk
from .conditions import COMPUTED, Anchored, Condition
from .messages import Cell, class_number
from .patterns import ROOT
from .placing import Classes
from .signatures import TERM_SORTS, Signatures

_KINDS = {"Var": "an input of the graph", "Weight": "a constant", "Full": "a constant", "Absent": "absent"}

_SHOWN = 5
"""How many operators of one class are named."""


class Words:
    """Describes one attempt: `cells` are what its variables are bound to, classes by their numbers in `classes`."""

    def __init__(
        self, attempt: Anchored, cells: Mapping[str, Cell], classes: Classes, encoding: Encoding, tables: Signatures
    ) -> None:
        self.attempt, self.cells, self.classes, self.encoding, self.tables = attempt, cells, classes, encoding, tables
        self.symbols = {number: name for name, number in encoding.symbols.items()}

    @cached_property
    def names(self) -> dict[int, str]:
        """The name of each class that a value of the model is in."""
        names: dict[int, str] = {}
        for name, term in self.encoding.values.items():
            names.setdefault(self.classes.of[term], name)
        return names

    def values(self) -> dict[str, str]:
        """The term that each variable of the rule is bound to."""
        made_up = ("part.", "any.", ROOT)
        return {name: self._value(name) for name in self.cells if not name.startswith(made_up)}

    def failure(self, condition: Condition) -> str:
        """Why a condition is not met, the variables of those before it bound."""
        if condition.kind == "operator":
            return self._operator(condition)
        if condition.kind == "argument":
            value, wanted = self._value(condition.variable), self._expectation(condition)
            return f"{condition.place} is {value}, the pattern wants {wanted}"
        if condition.kind == "fact" and condition.fact.head in COMPUTED:
            return "; ".join((f"{condition.shown}: false", *self._bindings(condition)))
        return "; ".join((f"{condition.shown}: not known{self._declaration(condition)}", *self._bindings(condition)))

    def _declaration(self, condition: Condition) -> str:
        """The place where the meaning of a function or relation is written."""
        called = next((n.head for n in (*condition.fact.items, condition.fact) if isinstance(n, Form)), "")
        place = self.tables[called].place if called in self.tables else ""
        return f" (see {place})" if place else ""

    # --- operators and their arguments

    def _operator(self, condition: Condition) -> str:
        if condition.variable not in self.cells:
            return "; ".join((f"nothing is {condition.shown}", *self._bindings(condition)))
        owner, subject = class_number(self.cells[condition.variable]), condition.place or "the node"
        there = self._operators(owner)
        wanted = "it absent" if condition.wanted == "Absent" else condition.wanted
        if condition.wanted in there:
            return f"{subject} is {wanted}, but hidden from rules: it is made of constants, or replaced for good"
        return f"{subject} is {self._describe(owner, there)}, the pattern wants {wanted}"

    def _operators(self, owner: int) -> list[str]:
        """The operators in a class, opaque ones by their ONNX type."""
        return list(dict.fromkeys(map(self._operator_name, self.classes.rows.get(owner, []))))

    def _operator_name(self, row: ENode) -> str:
        if row.op == "Out":
            return f"output {row.attributes[0]} of {', '.join(self._operators(row.children[0]))}"
        return opaque_type(row) if row.op == "Op" else row.op

    def _describe(self, owner: int, operators: list[str]) -> str:
        """A class by its operators and its name."""
        kinds = list(dict.fromkeys(_KINDS.get(op, op) for op in operators))
        more = [f"{len(kinds) - _SHOWN} more"] if len(kinds) > _SHOWN else []
        kind = " or ".join(", ".join((*kinds[:_SHOWN], *more)).rsplit(", ", 1))
        return f"{kind} (`{self.names[owner]}`)" if owner in self.names else kind

    def _expectation(self, condition: Condition) -> str:
        node = read(f"({condition.wanted})").forms[0].items[0]
        if isinstance(node, Atom):
            return f"{self._value(node.text)}, as {node.text}" if node.text in self.cells else node.text
        if node.head in ("vec-of", "vec-empty") and not any(variables(node)):
            return f"[{', '.join(map(str, node.items[1:]))}]"
        return "; ".join((str(node), *self._bindings(condition)))

    # --- what variables are bound to

    def _bindings(self, condition: Condition) -> Iterator[str]:
        """The known values of the expressions in a condition."""
        if condition.kind == "lookup":
            names = sorted(condition.variables)
        else:
            names = list(dict.fromkeys(str(n) for n in walk(condition.fact) if isinstance(n, Atom)))
        for name in names:
            if name in self.cells and name != condition.variable:
                yield f"{self._label(name)} is {self._value(name)}"

    def _label(self, name: str) -> str:
        """A variable as the rule has it; a part of an expression by its text."""
        if name == ROOT:
            return "the node"
        makers = (c for c in self.attempt.conditions if c.kind == "lookup" and str(c.fact.items[1]) == name)
        return next((c.shown for c in makers), name)

    def _value(self, name: str) -> str:
        if name not in self.cells:
            return "not bound"
        cell = self.cells[name]
        if self.attempt.sorts.get(name) in TERM_SORTS:
            return self._class(class_number(cell))
        if isinstance(cell, tuple):
            return f"[{', '.join(self.symbols.get(n, str(n)) for n in cell)}]"
        return f"{cell:g}" if isinstance(cell, float) else str(cell)

    def _class(self, owner: int) -> str:
        """A class by its name; by its first e-node where the model has no name for it."""
        if owner in self.names:
            return f"`{self.names[owner]}`"
        rows = self.classes.rows.get(owner, [])
        return self._row(rows[0]) if rows else "a new value"

    def _row(self, row: ENode) -> str:
        if row.op == "Full":
            return f"{row.attributes[1]:g}"
        if row.op == "Absent":
            return "absent"
        operands = (f"`{self.names[c]}`" if c in self.names else "..." for c in row.children)
        return f"{self._operator_name(row)}({', '.join(operands)})"
