"""The place where two models part: the earliest value, in topological order, that both name and that differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .effect import measure_effect
from .runs.compare import Difference, Tolerance, compare
from .runs.run import Backend, OnnxRuntime, Reference
from .runs.source import Source
from .runs.structure import Structure, TensorShape
from .runs.values import Feeds, RunError, Value

_BATCH_BYTES = 256 << 20
"""The most bytes of values that one run returns."""
_BATCH_VALUES = 512
"""The most values that one run returns."""
_UNKNOWN_DIM = 16
"""The size that an unknown dimension is taken for in estimates of memory."""
_UNKNOWN_BYTES = 1 << 20
"""The bytes that a value of unknown rank is taken for."""
_ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Divergence:
    """A value of both models that differs beyond tolerance, and the operator that produces it in the original."""

    name: str
    operator: str
    difference: Difference

    def __str__(self) -> str:
        return f"{self.name!r} ({self.operator}: {self.difference})"


Judge = Callable[[str, Value, Value], Difference | None]
"""(name, original's value, candidate's value) -> the difference, if it is one."""


def tolerance_judge(tolerance: Tolerance) -> Judge:
    """The judge for which a value differs if it is out of tolerance."""

    def judge_by_tolerance(_: str, expected: Value, actual: Value) -> Difference | None:
        difference = compare(expected, actual, tolerance)
        return None if difference.equal else difference

    return judge_by_tolerance


def judge_bits(_: str, expected: Value, actual: Value) -> Difference | None:
    """A judge for which a value differs if any of its bits does."""
    return None if measure_effect(expected, actual).is_identical else compare(expected, actual, Tolerance())


def first_divergence(
    original: Source, candidate: Source, structure: Structure, feeds: Feeds, differs: Judge, on_reference: bool
) -> Divergence | None:
    """Run both with their common values as outputs, in batches that bound the memory, and stop at the first difference.

    ``structure`` is the original's. None if no common value differs or the models cannot be run this way.
    """
    operators = {name: node.op_type for node in original.graph.node for name in node.output}
    for batch in _batches(common_values(original, candidate, structure), structure.shapes):
        try:
            expected = _load(original, batch, on_reference).run(feeds)
            results = _load(candidate, batch, on_reference).run(feeds)
        except RunError:
            return None
        for name in batch:
            difference = differs(name, expected[name], results[name]) if name in expected and name in results else None
            if difference is not None:
                return Divergence(name, operators[name], difference)
    return None


def _load(source: Source, extra: Sequence[str], on_reference: bool) -> Backend:
    return Reference(source, extra) if on_reference else OnnxRuntime(source, extra)


def common_values(original: Source, candidate: Source, structure: Structure) -> list[str]:
    """Names that nodes of both models give to a value, in the topological order of the original."""
    shared = {name for node in candidate.graph.node for name in node.output if name}
    names = (name for node in original.graph.node for name in node.output)
    return [name for name in names if name in shared and name not in structure.random]


def _batches(names: Sequence[str], shapes: dict[str, TensorShape]) -> Iterator[list[str]]:
    batch: list[str] = []
    total = 0
    for name in names:
        size = _estimate_bytes(shapes.get(name))
        if batch and (total + size > _BATCH_BYTES or len(batch) >= _BATCH_VALUES):
            yield batch
            batch, total = [], 0
        batch.append(name)
        total += size
    if batch:
        yield batch


def _estimate_bytes(shape: TensorShape | None) -> int:
    """An estimate; generated inputs have small symbolic sizes."""
    if shape is None or shape.dims is None:
        return _UNKNOWN_BYTES
    return _ELEMENT_BYTES * math.prod(dim if dim is not None else _UNKNOWN_DIM for dim in shape.dims)
