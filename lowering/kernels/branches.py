"""Ifs whose branches are operands: which steps run only if a condition has a value, and in which order.

    Y = If(c, f(X), g(X))  =>  if (c) A = f(X); if (!c) B = g(X); Y = c ? A : B

A step runs in a branch if everything that reads its results does. So what both branches read always runs, whichever
branch the model wrote it in.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...engine.onnx.model import Model
from ...engine.onnx.nodes import is_flat_if
from ...ir.graph import Operator, OperatorGraph
from .steps import View

Guard = tuple[int, bool]
"""A value that is a condition, and the truth value that it has when a step runs."""


class Reader(Protocol):
    """A step that reads and fills values."""

    @property
    def inputs(self) -> tuple[int, ...]: ...

    @property
    def outputs(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class Choice:
    """An If: the values `outputs` are those of `then` if the value `condition` is true, else of `otherwise`."""

    members: tuple[int, ...]
    condition: int
    then: tuple[int, ...]
    otherwise: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """The values that it reads."""
        return (self.condition, *self.then, *self.otherwise)


def find_choice(graph: OperatorGraph, members: Sequence[int], model: Model) -> Choice | None:
    """The If that a group is; None if it is something else."""
    operator = graph.operators[members[0]]
    if len(members) > 1 or operator.op != "If":
        return None
    name = graph.values[operator.outputs[0]].name
    node = next(node for node in model.graph if any(output.name == name for output in node.outputs))
    if not is_flat_if(node):
        return None
    condition, *values = (value for value in operator.inputs if value is not None)
    half = len(values) // 2
    return Choice(tuple(members), condition, tuple(values[:half]), tuple(values[half:]), operator.outputs)


def arrange(graph: OperatorGraph, steps: Sequence[View | Reader]) -> list[tuple[int, tuple[Guard, ...]]]:
    """The numbers of the steps in an order to run them, each with what it runs under: conditions in order, too."""
    if not any(isinstance(step, Choice) for step in steps):
        return [(number, ()) for number in range(len(steps))]
    maker = {value: number for number, step in enumerate(steps) for value in _written(step)}
    guards = _find_guards(graph, list(map(_Use.of_step, steps)))
    before = [
        {maker[v] for v in (*_read(step), *(c for c, _ in guards[number])) if v in maker}
        for number, step in enumerate(steps)
    ]
    after: list[list[int]] = [[] for _ in steps]
    for number, sources in enumerate(before):
        for source in sources:
            after[source].append(number)
    waiting = [len(sources) for sources in before]
    ready = [number for number, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for reader in after[number]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    place = {number: index for index, number in enumerate(order)}

    def age(guard: Guard) -> int:
        return place.get(maker.get(guard[0], -1), -1)

    return [(number, tuple(sorted(guards[number], key=age))) for number in order]


def split_branches(graph: OperatorGraph, groups: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The groups, given in the order they run, those cut that hold operators of several branches."""
    if not any(operator.op == "If" for operator in graph.operators):
        return tuple(groups)
    guards = operator_guards(graph)
    pieces: list[tuple[int, ...]] = []
    for group in groups:
        parts: dict[frozenset[Guard], list[int]] = {}
        for member in sorted(group):
            parts.setdefault(guards[member], []).append(member)
        pieces += (tuple(parts[guard]) for guard in sorted(parts, key=len))
    return tuple(pieces)


def operator_guards(graph: OperatorGraph) -> list[frozenset[Guard]]:
    """The conditions that each operator runs under."""
    return _find_guards(graph, [_Use.of_operator(operator) for operator in graph.operators])


@dataclass(frozen=True)
class _Use:
    """The values that a step or operator reads and writes; of an If, `choices` are the values of each branch."""

    read: tuple[int, ...]
    written: tuple[int, ...]
    condition: int = -1
    choices: tuple[tuple[tuple[int, ...], bool], ...] = ()

    @staticmethod
    def of_step(step: View | Reader) -> _Use:
        if isinstance(step, Choice):
            return _Use((), step.outputs, step.condition, ((step.then, True), (step.otherwise, False)))
        return _Use(_read(step), _written(step))

    @staticmethod
    def of_operator(operator: Operator) -> _Use:
        values = tuple(value for value in operator.inputs if value is not None)
        half = len(operator.outputs)
        if operator.op != "If" or len(values) != 1 + 2 * half:
            return _Use(values, operator.outputs)
        return _Use((), operator.outputs, values[0], ((values[1 : 1 + half], True), (values[1 + half :], False)))


def _find_guards(graph: OperatorGraph, uses: Sequence[_Use]) -> list[frozenset[Guard]]:
    """For each step or operator, in running order, the conditions under which all runs that reads its results."""
    readers: dict[int, list[frozenset[Guard]]] = {}
    guards: list[frozenset[Guard]] = [frozenset()] * len(uses)
    for number, use in reversed(list(enumerate(uses))):
        under = [guard for value in use.written for guard in readers.get(value, ())]
        if under and not any(graph.values[value].is_output for value in use.written):
            guards[number] = frozenset.intersection(*under)
        for value in (*use.read, *(() if use.condition < 0 else (use.condition,))):
            readers.setdefault(value, []).append(guards[number])
        for values, when in use.choices:
            for value in values:
                readers.setdefault(value, []).append(guards[number] | {(use.condition, when)})
    return guards


def _read(step: View | Reader) -> tuple[int, ...]:
    return (step.source,) if isinstance(step, View) else step.inputs


def _written(step: View | Reader) -> tuple[int, ...]:
    return (step.result,) if isinstance(step, View) else step.outputs
