"""Mapping types found by running an operator: change one element of an operand, see what changes in the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from eqfuse.extract.partition.baselines.mapping_types import MappingType
from eqfuse.ir.graph import OperatorGraph
from eqfuse.ir.operation import Attributes
from eqfuse.ir.operators import OPERATORS, Array, Operand, evaluate

from .graphs import Builder

FLOATS = (-1.5, -0.5, 0.5, 1.5)
OTHERS: dict[str, tuple[float, ...]] = {
    "f": (*FLOATS, 0.3, 50.0, -50.0, float("nan")),
    "i": (0, 1, 2),
    "u": (1, 2),
    "b": (False, True),
}
"""By kind of number, what an element is changed to: every operator answers to one of them."""


@dataclass(frozen=True)
class Call:
    """One operator of the rule language on operands of these shapes; `dtypes` tell those that are not float32."""

    op: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: Attributes = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()

    def arrays(self, seed: int) -> list[Array]:
        random = np.random.default_rng(seed)
        return [self._array(random, i, shape) for i, shape in enumerate(self.shapes)]

    def run(self, arrays: Sequence[Array]) -> Array:
        """The first output."""
        given = iter(arrays)
        arguments: list[Any] = [
            next(given, None) if isinstance(argument, Operand) else self.attributes.get(argument.name, argument.default)
            for argument in OPERATORS[self.op].arguments
        ]
        with np.errstate(all="ignore"):
            found = evaluate(self.op, arguments)
        return found[0] if isinstance(found, tuple) else found

    def graph(self) -> OperatorGraph:
        """The call alone, every operand an input of the graph: value i is operand i."""
        builder = Builder()
        inputs = [builder.input(*shape) for shape in self.shapes]
        builder.node(self.op, inputs, [self.run(self.arrays(0)).shape], self.attributes)
        return builder.graph()

    def dtype(self, position: int) -> str:
        return self.dtypes[position] if position < len(self.dtypes) else "float32"

    def _array(self, random: np.random.Generator, position: int, shape: tuple[int, ...]) -> Array:
        dtype = np.dtype(self.dtype(position))
        values = FLOATS if dtype.kind == "f" else OTHERS[dtype.kind]
        return np.asarray(random.choice(values, shape)).astype(dtype)


def observed(call: Call, position: int, runs: int) -> MappingType:
    """The type of the pair of that operand and the first output, over a few random operands."""
    return max(_observed(call, position, seed) for seed in range(runs))


def _observed(call: Call, position: int, seed: int) -> MappingType:
    arrays = call.arrays(seed)
    source, target = arrays[position], call.run(arrays)
    changes = np.zeros((source.size, target.size), bool)
    for element, changed in _changed(call, arrays, position):
        changes[element] |= ~_same(changed, target).ravel()
    if changes.sum(0).max(initial=0) > 1:
        return MappingType.MANY_TO_MANY
    if changes.sum(1).max(initial=0) > 1:
        return MappingType.ONE_TO_MANY
    return _movement(source, target, changes)


def _movement(source: Array, target: Array, changes: np.ndarray[Any, np.dtype[np.bool_]]) -> MappingType:
    """Of a relation that is 1-1 where it holds: whether it only moves all elements, and how."""
    places = changes.argmax(1) if changes.size else np.zeros(0, int)
    is_whole = source.size == target.size and bool(changes.any(1).all())
    if not is_whole or not bool(np.all(_same(source.ravel(), target.ravel()[places]))):
        return MappingType.ONE_TO_ONE
    if not np.array_equal(places, np.arange(len(places))):
        return MappingType.SHUFFLE
    return MappingType.ONE_TO_ONE if source.shape == target.shape else MappingType.REORGANIZE


def read_elements(call: Call, position: int, runs: int = 3) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Per element of the first output, which of an operand change it: the output's axes, then the operand's."""
    shape = call.run(call.arrays(0)).shape
    reads = np.zeros((prod(shape), prod(call.shapes[position])), bool)
    for seed in range(runs):
        arrays = call.arrays(seed)
        target = call.run(arrays)
        for element, changed in _changed(call, arrays, position):
            reads[:, element] |= ~_same(changed, target).ravel()
    return reads.reshape(*shape, *call.shapes[position])


def _changed(call: Call, arrays: list[Array], position: int) -> Iterator[tuple[int, Array]]:
    original = arrays[position]
    for element in range(original.size):
        for value in OTHERS[original.dtype.kind]:
            other = original.copy()
            other.flat[element] = value
            yield element, call.run([*arrays[:position], other, *arrays[position + 1 :]])


def _same(first: Array, second: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray((first == second) | ((first != first) & (second != second)))
