"""Operators that the opset lacks, as the nodes that a runtime runs as one kernel (`costmodels/runtimes/`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ...costmodels.runtime import Runtime
from ...ir.operators import OPERATORS
from ...ir.types import TensorType


@dataclass(frozen=True)
class Operand:
    """The operand at a position of the operator that is spelled."""

    position: int


@dataclass(frozen=True)
class Earlier:
    """The result of an earlier line."""

    line: int


@dataclass(frozen=True)
class Attribute:
    """A number that an attribute of the operator holds."""

    name: str


Source = Operand | Earlier | Attribute | float


@dataclass(frozen=True)
class Line:
    """One node: the values that it reads, constants of one element among them, and the axes that it reduces."""

    op_type: str
    inputs: tuple[Operand | Earlier | float, ...]
    axes: tuple[int, ...] = ()


def spell_out(
    runtime: Runtime,
    op: str,
    literals: Mapping[str, object],
    operands: Sequence[TensorType | None],
    opset: int,
) -> tuple[Line, ...] | None:
    """The lines of an operator; () if the opset has it as a node, None if it can only be spelled, but not for
    these operands: a form is of float32, and reduces the last axis."""
    lines = runtime.spell(op, literals, opset)
    if not lines:
        return ()
    first = operands[0]
    if any(type_ is None or type_.dtype != "float32" for type_ in operands) or first is None:
        return None
    parsed = [_parse(line, op) for line in lines]
    axes: tuple[int, ...] = ()
    if any(axis for _, _, axis in parsed):
        if first.shape is None or literals["axis"] != len(first.shape) - 1:
            return None
        axes = (len(first.shape) - 1,)
    return tuple(
        Line(op_type, tuple(_number(source, literals) for source in inputs), axes if axis else ())
        for op_type, inputs, axis in parsed
    )


def _number(source: Source, literals: Mapping[str, object]) -> Operand | Earlier | float:
    return float(literals[source.name]) if isinstance(source, Attribute) else source  # type: ignore[arg-type]


@cache
def _parse(line: str, op: str) -> tuple[str, tuple[Source, ...], bool]:
    """The operator of a line, the values it reads, and whether it reduces over the axis of the spelled operator."""
    op_type, *words = line.split()
    names = [operand.name for operand in OPERATORS[op].operands]
    sources: list[Source] = []
    for word in words:
        if word.startswith("#"):
            sources.append(Earlier(int(word[1:])))
        elif word.startswith("{"):
            sources.append(Attribute(word.strip("{}")))
        elif word in names:
            sources.append(Operand(names.index(word)))
        elif word != "axes={axis}":
            sources.append(float(word))
    return op_type, tuple(sources), "axes={axis}" in words
