"""Extraction for a runtime that runs an operator between conversions as one kernel on integers, a unit.

Whether an operator is a unit follows from what makes its operands and what reads its result. So a class of numbers is
up to three kinds of classes of the problem, the last two for each type of integers: the number itself (the class as it
is), what a unit computes, and an operand of a unit, whose DequantizeLinear costs nothing:

    within(c)      = Add(dequantised, dequantised) | Transpose(within) | ...
    dequantised(c) = DequantizeLinear(x, s, z) | Transpose(dequantised) | ...
    number(c)      = c | MatMul(dequantised, dequantised)
    integers(c)    = QuantizeLinear(number) | QuantizeLinear(within)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...costmodels.runtime import Quantised
from ...engine.egraph.graph import EGraph, ENode
from ...ir.operation import VARIADIC
from ...ir.types import BYTES
from .layouts import Place, PlacedProblem, Row
from .problem import Candidate, Problem


class _State(NamedTuple):
    """What a class stands for beside its number: its kind, and the type of the integers."""

    kind: str
    dtype: str
    owner: int


@dataclass
class _Builder:
    egraph: EGraph
    rows: Sequence[Row]
    quantised: Quantised
    numbers: dict[_State, int] = field(default_factory=dict)
    classes: list[list[Candidate]] = field(default_factory=list)
    places: list[list[Place | None]] = field(default_factory=list)

    def find_states(self) -> None:
        """Number the states that classes can have, those whose candidates read them first."""
        waiting: dict[int, list[tuple[int, ENode]]] = {}
        found: list[_State] = []
        for owner, row in enumerate(self.rows):
            for node, _ in row:
                if node.op == "DequantizeLinear" and (dtype := self._dtype(node.children[0])):
                    found.append(_State("dequantised", dtype, owner))
                elif node.op in self.quantised.moving or node.op in self.quantised.units:
                    for child in set(node.children):
                        waiting.setdefault(child, []).append((owner, node))
        while found:
            state = found.pop()
            if state in self.numbers:
                continue
            self.numbers[state] = len(self.rows) + len(self.numbers)
            for owner, node in waiting.get(state.owner, ()):
                if node.op in self.quantised.moving and node.children[0] == state.owner:
                    found.append(_State(state.kind, state.dtype, owner))
                elif node.op in self.quantised.units and state.kind == "dequantised":
                    found += [_State("within", dtype, owner) for dtype in BYTES if self._operands(node, dtype)]

    def _dtype(self, owner: int) -> str:
        type_ = self.egraph.classes[owner].type
        return "" if type_ is None else type_.dtype

    def _number(self, kind: str, dtype: str, owner: int) -> int | None:
        return self.numbers.get(_State(kind, dtype, owner))

    def _operands(self, node: ENode, dtype: str) -> tuple[int, ...] | None:
        """The classes of the problem that an operator reads as a unit on integers of a type; None if it is none."""
        is_product = node.op in self.quantised.weighted
        operands: list[int] = []
        for place, child in enumerate(node.children):
            dtypes: Sequence[str] = (dtype,)
            if is_product and place:
                dtypes = BYTES if place == 1 else ("int32",)
            states = (self._number("dequantised", each, child) for each in dtypes)
            state = next((each for each in states if each is not None), None)
            if state is None and node.op in VARIADIC and any(n.op == node.op for n, _ in self.rows[child]):
                state = self._number("within", dtype, child)  # a link of the same chain
            if state is None and child != self.egraph.absent and not (place > 1 and self._is_zero(child)):
                return None
            operands.append(child if state is None else state)
        return tuple(operands)

    def _is_zero(self, owner: int) -> bool:
        return self.egraph.classes[owner].uniform == 0.0

    def build(self) -> PlacedProblem:
        """The problem with a class for each state."""
        self.classes = [[] for _ in range(len(self.rows) + len(self.numbers))]
        self.places = [[] for _ in self.classes]
        for owner, row in enumerate(self.rows):
            for index, (node, cost) in enumerate(row):
                self._append(owner, Candidate(cost, node.children), Place(owner, index))
                for number, candidate in self._candidates_in_units(owner, node, cost):
                    self._append(number, candidate, Place(owner, index))
        classes = tuple(tuple(candidates) for candidates in self.classes)
        return PlacedProblem(Problem(classes, self.egraph.roots), tuple(tuple(places) for places in self.places))

    def _candidates_in_units(self, owner: int, node: ENode, cost: float) -> Iterator[tuple[int, Candidate]]:
        """The candidates of an e-node in units, each with its class."""
        if node.op == "DequantizeLinear" and (own := self._number("dequantised", self._dtype(node.children[0]), owner)):
            yield own, Candidate(0.0, node.children)
        elif node.op == "QuantizeLinear":
            if within := self._number("within", self._dtype(owner), node.children[0]):
                yield owner, Candidate(0.0, (within, *node.children[1:]))
        elif node.op in self.quantised.moving:
            for state, number in self._states_of(owner):
                if (moved := self._number(state.kind, state.dtype, node.children[0])) is not None:
                    yield number, Candidate(cost, (moved, *node.children[1:]))
        elif node.op in self.quantised.units:
            for dtype in BYTES:
                operands, number_within = self._operands(node, dtype), self._number("within", dtype, owner)
                if operands is None or number_within is None:
                    continue
                is_signed = dtype == "int8" and node.op in self.quantised.weighted
                share = self.quantised.units[node.op] * (self.quantised.signed if is_signed else 1.0)
                candidate = Candidate(cost * share, operands)
                yield number_within, candidate
                if node.op in self.quantised.floating:
                    yield owner, candidate

    def _states_of(self, owner: int) -> Iterator[tuple[_State, int]]:
        for kind in ("dequantised", "within"):
            for dtype in (*BYTES, "int32"):
                if (number := self._number(kind, dtype, owner)) is not None:
                    yield _State(kind, dtype, owner), number

    def _append(self, number: int, candidate: Candidate, place: Place) -> None:
        self.classes[number].append(candidate)
        self.places[number].append(place)


def unit_problem(egraph: EGraph, rows: Sequence[Row], quantised: Quantised) -> PlacedProblem | None:
    """The extraction problem in which units have costs of their own; None if no operator can be one."""
    builder = _Builder(egraph, rows, quantised)
    builder.find_states()
    return builder.build() if any(state.kind == "within" for state in builder.numbers) else None
