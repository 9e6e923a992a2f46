"""Operators that the opset lacks, as the nodes that a runtime runs as one kernel (`costmodels/runtimes/`): they are
written so, and recognised in a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations

import onnx_ir as ir

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


# --- recognised


_EITHER_WAY = frozenset({"Add", "Mul"})
"""Operators whose two operands may be exchanged."""
_CLOSE = 1e-4
"""How far a constant may be from that of the form, relative to it: exporters write as many digits as they like."""


@dataclass(frozen=True)
class Spelled:
    """Nodes that a runtime runs as one operator: its name, its attributes of text, the names of its operands, and the
    nodes, the last of which makes its result."""

    op: str
    attributes: Mapping[str, str | float]
    operands: tuple[str, ...]
    nodes: tuple[ir.Node, ...]


def find_spelled(
    nodes: Sequence[ir.Node], runtime: Runtime, opset: int, number: Callable[[str], float | None]
) -> list[Spelled]:
    """The operators that nodes of a graph spell out, each node in one of them at most. `number` is the value of a
    constant of one element. A form counts if nothing else reads what is computed inside of it."""
    forms = [form for form in runtime.spelling if form.since <= opset < form.before]
    found: list[Spelled] = []
    taken: set[ir.Node] = set()
    for last in nodes:
        for form in forms:
            match = _Match([_parse(line, form.operator) for line in form.lines], number)
            if not match.takes(last, len(form.lines) - 1) or not taken.isdisjoint(match.nodes.values()):
                continue
            inside = set(match.nodes.values())
            values = [output for node in inside - {last} for output in node.outputs]
            if any(value.is_graph_output() or any(use.node not in inside for use in value.uses()) for value in values):
                continue
            operands = tuple(match.operands[position] for position in sorted(match.operands))
            lines = tuple(match.nodes[line] for line in sorted(match.nodes))
            found.append(Spelled(form.operator, form.when, operands, lines))
            taken |= inside
            break
    return found


@dataclass
class _Match:
    """Lines of a form, found from the last to the first: the nodes by their lines, operands by their positions."""

    lines: Sequence[tuple[str, tuple[Source, ...], bool]]
    number: Callable[[str], float | None]
    nodes: dict[int, ir.Node] = field(default_factory=dict)
    operands: dict[int, str] = field(default_factory=dict)

    def takes(self, node: ir.Node | None, line: int) -> bool:
        """Whether the node is that of the line, together with the nodes that make what it reads."""
        op_type, sources, _ = self.lines[line]
        if line in self.nodes or node is None:
            return self.nodes.get(line) is node and node is not None
        if node.domain or node.op_type != op_type or len(node.inputs) < len(sources):
            return False
        before = dict(self.nodes), dict(self.operands)
        inputs = node.inputs[: len(sources)]
        for order in permutations(sources) if op_type in _EITHER_WAY else (sources,):
            self.nodes, self.operands = {**before[0], line: node}, dict(before[1])
            if all(self._reads(value, source) for value, source in zip(inputs, order, strict=True)):
                return True
        self.nodes, self.operands = before
        return False

    def _reads(self, value: ir.Value | None, source: Source) -> bool:
        if value is None or not value.name:
            return False
        if isinstance(source, Earlier):
            return self.takes(value.producer(), source.line)
        if isinstance(source, Operand):
            return self.operands.setdefault(source.position, value.name) == value.name
        found = self.number(value.name)
        return found is not None and (isinstance(source, Attribute) or abs(found - source) <= _CLOSE * abs(source))
