"""What happened to each node between two models, by the names of the values that both compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..ir.graph import Operator, OperatorGraph

Kind = Literal["kept", "changed", "fused", "removed", "added"]


@dataclass(frozen=True)
class NodeChange:
    """The change of one node: `value` is its first output, `operator` what makes it, `now` what makes it in the other
    model; "" if nothing does.

    ``changed``: both models compute the value, by another operator or from other operands. ``fused``: the value is
    gone, and what it was computed for is computed otherwise; ``added``: only the second model has the value. `targets`
    are the changed values that a fused or added node is computed for. ``removed``: it is gone without such a value.
    """

    kind: Kind
    node: str
    value: str
    operator: str
    now: str = ""
    targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Such as ``fused into y``."""
        if self.kind == "changed":
            return f"now {self.now}" if self.now != self.operator else "other operands or attributes"
        return self.kind + {"fused": " into ", "added": " for "}.get(self.kind, "") + ", ".join(self.targets)


@dataclass(frozen=True)
class NodeChanges:
    """The change of every operator of both graphs, in their order."""

    before: tuple[NodeChange, ...]
    after: tuple[NodeChange, ...]

    @property
    def all(self) -> Iterable[NodeChange]:
        """The nodes that are not the same in both, each once."""
        yield from (each for each in self.before if each.kind != "kept")
        yield from (each for each in self.after if each.kind == "added")


@dataclass(frozen=True)
class NamedGraph:
    """A graph by the names of its values. `constants` are those that are compared by their elements: others are equal
    if their names are."""

    graph: OperatorGraph
    constants: Mapping[str, np.ndarray[Any, Any]]

    @cached_property
    def producers(self) -> Mapping[str, Operator]:
        """The operator of each value, by the first of its outputs."""
        return {self._names(operator.outputs)[0]: operator for operator in self.graph.operators if operator.outputs}

    def _names(self, values: Sequence[int | None]) -> list[str]:
        return ["" if value is None else self.graph.values[value].name for value in values]

    def text_of(self, name: str) -> tuple[object, ...]:
        """What tells two nodes apart that make a value of this name."""
        operator = self.producers[name]
        operands = tuple(map(self._operand, self._names(operator.inputs)))
        return operator.op, tuple(sorted(operator.attributes.items())), operands

    def _operand(self, name: str) -> tuple[object, ...]:
        held = self.constants.get(name)
        return (name,) if held is None else (str(held.dtype), held.shape, held.tobytes())

    def targets(self, changed: frozenset[str], other: Mapping[str, Operator]) -> Mapping[str, tuple[str, ...]]:
        """For each value that the other graph lacks, the changed values that it is computed for."""
        found: dict[str, dict[str, None]] = {}
        for operator in reversed(self.graph.operators):
            if not operator.outputs:
                continue
            name = self._names(operator.outputs)[0]
            reached = {name: None} if name in changed else {} if name in other else found.get(name, {})
            for operand in self._names(operator.inputs):
                if operand in self.producers and operand not in other:
                    found.setdefault(operand, {}).update(reached)
        return {name: tuple(reversed(each)) for name, each in found.items()}


def compare_nodes(old: NamedGraph, new: NamedGraph) -> NodeChanges:
    """Compare two graphs of which the second was made from the first, or the other way round."""
    changed = frozenset(
        name for name in old.producers.keys() & new.producers.keys() if old.text_of(name) != new.text_of(name)
    )
    return NodeChanges(_changes(old, new, changed, "fused"), _changes(new, old, changed, "added"))


def _changes(
    graph: NamedGraph, other: NamedGraph, changed: frozenset[str], kind: Literal["fused", "added"]
) -> tuple[NodeChange, ...]:
    targets = graph.targets(changed, other.producers)
    changes = []
    for operator in graph.graph.operators:
        value = graph.graph.values[operator.outputs[0]].name if operator.outputs else ""
        into = targets.get(value, ())
        if value in other.producers:
            now = other.producers[value].op
            changes.append(
                NodeChange("changed" if value in changed else "kept", operator.name, value, operator.op, now)
            )
        else:
            gone: Kind = "removed" if kind == "fused" and not into else kind
            changes.append(NodeChange(gone, operator.name, value, operator.op, "", into))
    return tuple(changes)
