"""A canonical text of a sub-graph, and its digest: the key under which measurements of it are kept.

The text describes the sub-graph in full but for names: operators, attributes, types, the readers of each value, which
values are constant (not their contents) and which are read outside. So equal texts mean isomorphic sub-graphs, always.
That isomorphic sub-graphs get equal texts rests on a canonical order of the operators, found by colour refinement
(Weisfeiler and Leman 1968; McKay and Piperno, "Practical graph isomorphism, II", 2014, section 3): colours are refined
along and against the edges until stable; if some stay equal, each of the candidates is singled out in turn and the
one with the least colours is kept. Candidates that tie there are taken for interchangeable, which holds for all
graphs of practical size and kind that were tried. Otherwise the key may depend on the order of the operators, and a
measurement is missed, never confused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b, sha256
from typing import NamedTuple

from ...ir.graph import Operator, OperatorGraph
from ...ir.sizes import dimension_size
from ...ir.types import Dimension, TensorType
from ...support.directed_graphs import topological_order

_TRIALS = 128
"""The most candidates that are singled out, to bound the time of graphs with dozens of equal branches: from then on
all candidates are told apart at once, in their order."""


def subgraph_key(graph: OperatorGraph, members: Iterable[int]) -> str | None:
    """SHA-256 of `subgraph_text` in hexadecimal; None if an operator is opaque, as its function is not known."""
    inside = tuple(members)
    if any(graph.operators[member].is_opaque for member in inside):
        return None
    return sha256(subgraph_text(graph, inside).encode()).hexdigest()


def subgraph_text(graph: OperatorGraph, members: Iterable[int]) -> str:
    """The sub-graph of these operators, a line for each value that it reads, computes or gives to others.

    Independent of names and of the order of operators. A symbolic dimension is written as its number in the text and
    the size that costs assume for it (``s0~128``). Opaque operators are marked.
    """
    subgraph = _Subgraph(graph, tuple(sorted(set(members))))
    return _write(subgraph, _distinct_colours(subgraph))


def operator_names(text: str) -> tuple[str, ...]:
    """The operators in a text of `subgraph_text`, in its order."""
    return tuple(re.findall(r"^  (?:.*? = )?(?:opaque )?(\w+)\(", text, re.MULTILINE))


Colours = dict[int, str]
"""Per vertex: an operator by its index, a value from outside by -1 minus its index."""

Symbols = dict[str, int]
"""Numbers of symbolic dimensions, by their names."""


class Source(NamedTuple):
    """The origin of an operand: a vertex, and the number of its output."""

    vertex: int
    output: int


class Use(NamedTuple):
    """A reader of a vertex: the operator, the number of the operand, and that of the vertex's output."""

    operator: int
    operand: int
    output: int


@dataclass(frozen=True)
class _Subgraph:
    graph: OperatorGraph
    members: tuple[int, ...]

    @cached_property
    def inside(self) -> frozenset[int]:
        return frozenset(self.members)

    @cached_property
    def sources(self) -> dict[int, tuple[Source | None, ...]]:
        """Per operator, the sources of its operands."""
        return {m: tuple(map(self._source, operands(self.graph.operators[m]))) for m in self.members}

    @cached_property
    def uses(self) -> dict[int, list[Use]]:
        """Per vertex, its uses."""
        uses: dict[int, list[Use]] = {member: [] for member in self.members}
        for member, sources in self.sources.items():
            for position, source in enumerate(sources):
                if source is not None:
                    uses.setdefault(source.vertex, []).append(Use(member, position, source.output))
        return uses

    def _source(self, value: int | None) -> Source | None:
        if value is None:
            return None
        producer = self.graph.values[value].producer
        if producer is None or producer not in self.inside:
            return Source(-1 - value, 0)
        return Source(producer, self.graph.operators[producer].outputs.index(value))

    def is_read_outside(self, value: int) -> bool:
        """Whether another operator or the caller reads a value."""
        return self.graph.values[value].is_output or not self.inside.issuperset(self.graph.consumers[value])

    def label(self, vertex: int) -> str:
        """The description of a vertex without its neighbours."""
        if vertex < 0:
            return self.describe_value(-1 - vertex)
        operator = self.graph.operators[vertex]
        outputs = ", ".join(f"{self.describe_value(v)} {self.is_read_outside(v)}" for v in operator.outputs)
        return f"{_call(operator)} {outputs}"

    def describe_value(self, value: int, symbols: Symbols | None = None) -> str:
        """Type of a value, and whether it is constant; `symbols` are those numbered so far, None numbers none."""
        described = self.graph.values[value]
        return f"{'constant ' if described.is_constant else ''}{_type(described.type, symbols)}"


def operands(operator: Operator) -> tuple[int | None, ...]:
    """Operands without absent ones at the end: leaving out and not naming are the same."""
    count = len(operator.inputs)
    while count and operator.inputs[count - 1] is None:
        count -= 1
    return operator.inputs[:count]


# --- colours


def _digest(content: object) -> str:
    return blake2b(repr(content).encode(), digest_size=12).hexdigest()


def _distinct_colours(subgraph: _Subgraph) -> Colours:
    """A colour per vertex, all different, chosen alike in isomorphic sub-graphs."""
    colours = _refine(subgraph, {vertex: _digest(subgraph.label(vertex)) for vertex in subgraph.uses})
    trials = 0
    while shared := [(count, colour) for colour, count in Counter(colours.values()).items() if count > 1]:
        _, rarest = min(shared)
        cell = [vertex for vertex, colour in colours.items() if colour == rarest]
        trials += len(cell)
        trial_cells = [[vertex] for vertex in cell] if trials <= _TRIALS else [cell]
        refined = []
        for chosen in trial_cells:
            told_apart = {vertex: _digest((position, rarest)) for position, vertex in enumerate(chosen)}
            refined.append(_refine(subgraph, {**colours, **told_apart}))
        colours = min(refined, key=lambda trial: sorted(trial.values()))
    return colours


def _refine(subgraph: _Subgraph, colours: Colours) -> Colours:
    """Let each vertex see its neighbours, down and up the graph, until that tells no more of them apart."""
    colours = dict(colours)
    count, before = len(set(colours.values())), 0
    upwards = [*reversed(subgraph.members), *(vertex for vertex in colours if vertex < 0)]
    while count != before:
        for member in subgraph.members:
            sources = [source and (colours[source.vertex], source.output) for source in subgraph.sources[member]]
            colours[member] = _digest((colours[member], sources))
        for vertex in upwards:
            users = sorted((colours[use.operator], use.operand, use.output) for use in subgraph.uses[vertex])
            colours[vertex] = _digest((colours[vertex], users))
        before, count = count, len(set(colours.values()))
    return colours


# --- text


def _write(subgraph: _Subgraph, colours: Colours) -> str:
    readers = {member: [use.operator for use in subgraph.uses[member]] for member in subgraph.members}
    order = topological_order(readers, key=colours.__getitem__)
    operators = [subgraph.graph.operators[member] for member in order]
    read = dict.fromkeys(v for operator in operators for v in operands(operator) if v is not None)
    results = [value for operator in operators for value in operator.outputs]
    outside = [value for value in read if value not in set(results)]
    number = {value: f"%{position}" for position, value in enumerate((*outside, *results))}
    symbols: Symbols = {}
    lines = [f"{number[value]}: {subgraph.describe_value(value, symbols)}" for value in outside]
    lines += [_line(subgraph, operator, number, symbols) for operator in operators]
    given = ", ".join(number[value] for value in results if subgraph.is_read_outside(value))
    return "\n".join((*lines, f"return {given}".rstrip()))


def _line(subgraph: _Subgraph, operator: Operator, number: dict[int, str], symbols: Symbols) -> str:
    """One operator: ``  %2: float32[1,8] = Gemm(%0, _, %1) {alpha=1.0}``."""
    outputs = ", ".join(f"{number[value]}: {subgraph.describe_value(value, symbols)}" for value in operator.outputs)
    read = ", ".join("_" if value is None else number[value] for value in operands(operator))
    name, _, attributes = _call(operator).partition(" {")
    return f"  {outputs}{' = ' if outputs else ''}{name}({read}){' {' if attributes else ''}{attributes}"


def _call(operator: Operator) -> str:
    """Operator and attributes: ``Softmax {axis=-1}``."""
    name = f"opaque {operator.op}" if operator.is_opaque else operator.op
    attributes = ", ".join(f"{name}={operator.attributes[name]!r}" for name in sorted(operator.attributes))
    return f"{name} {{{attributes}}}" if attributes else name


def _type(tensor: TensorType | None, symbols: Symbols | None) -> str:
    if tensor is None:
        return "?"
    if tensor.shape is None:
        return f"{tensor.dtype}[...]"
    return f"{tensor.dtype}[{','.join(_dimension(d, symbols) for d in tensor.shape)}]"


def _dimension(dimension: Dimension, symbols: Symbols | None) -> str:
    if isinstance(dimension, int):
        return str(dimension)
    number = "" if symbols is None else symbols.setdefault(dimension, len(symbols))
    return f"s{number}~{dimension_size(dimension)}"
