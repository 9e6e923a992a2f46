"""A canonical text of a sub-graph, and its digest: the key under which measurements of it are kept.

The text describes the sub-graph in full but for names: operators, attributes, types, who reads what, which values are
constant (not what they hold) and which are read outside. So equal texts mean isomorphic sub-graphs, always. That
isomorphic sub-graphs get equal texts rests on a canonical order of the operators, found by colour refinement
(Weisfeiler and Leman 1968; McKay and Piperno, "Practical graph isomorphism, II", 2014, section 3): colours are refined
along and against the edges until stable; where some stay equal, each of the candidates is singled out in turn and the
one with the least colours is kept. Candidates that tie there are taken for interchangeable, which no graph of practical
size and kind was found to violate; where one does, its key may depend on the order of its operators, and a measurement
is missed, never confused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b, sha256

from ...ir.graph import Operator, OperatorGraph
from ...ir.operation import Attributes, dimension_size
from ...ir.types import Dimension, TensorType
from ...support.directed_graphs import topological_order

_TRIALS = 128
"""How many candidates are singled out at most, to bound the time of graphs with dozens of equal branches: from then on
all candidates are told apart at once, as they come."""


def subgraph_key(graph: OperatorGraph, members: Iterable[int]) -> str | None:
    """SHA-256 of `subgraph_text` in hexadecimal; None where an operator is opaque, as nothing tells what it does."""
    inside = tuple(members)
    if any(graph.operators[member].is_opaque for member in inside):
        return None
    return sha256(subgraph_text(graph, inside).encode()).hexdigest()


def subgraph_text(graph: OperatorGraph, members: Iterable[int]) -> str:
    """The sub-graph of these operators, a line each for what it reads, computes and gives to others.

    Independent of names and of the order of operators. A symbolic dimension is written as its number in the text and
    the size that it counts as (``s0~128``). An opaque operator is marked as such.
    """
    subgraph = _Subgraph(graph, tuple(sorted(set(members))))
    return _text(subgraph, _distinct(subgraph))


def operator_names(text: str) -> tuple[str, ...]:
    """The operators in a text of `subgraph_text`, in its order."""
    return tuple(re.findall(r"^  (?:.*? = )?(?:opaque )?(\w+)\(", text, re.MULTILINE))


_Colours = dict[int, str]
"""Per vertex: an operator by its index, a value from outside by -1 minus its index."""

_Symbols = dict[str, int]
"""Numbers of symbolic dimensions, by their names."""


@dataclass(frozen=True)
class _Subgraph:
    graph: OperatorGraph
    members: tuple[int, ...]

    @cached_property
    def inside(self) -> frozenset[int]:
        return frozenset(self.members)

    @cached_property
    def sources(self) -> dict[int, tuple[tuple[int, int] | None, ...]]:
        """Per operator, the vertex and the number of its output that each operand comes from."""
        return {m: tuple(self._source(v) for v in _given(self.graph.operators[m])) for m in self.members}

    @cached_property
    def users(self) -> dict[int, list[tuple[int, int, int]]]:
        """Per vertex, the operator, operand and output number of each use."""
        found: dict[int, list[tuple[int, int, int]]] = {member: [] for member in self.members}
        for member, sources in self.sources.items():
            for position, source in enumerate(sources):
                if source is not None:
                    found.setdefault(source[0], []).append((member, position, source[1]))
        return found

    def _source(self, value: int | None) -> tuple[int, int] | None:
        if value is None:
            return None
        producer = self.graph.values[value].producer
        if producer is None or producer not in self.inside:
            return -1 - value, 0
        return producer, self.graph.operators[producer].outputs.index(value)

    def is_read_outside(self, value: int) -> bool:
        consumers = self.graph.consumers[value]
        return self.graph.values[value].is_output or any(user not in self.inside for user in consumers)

    def label(self, vertex: int) -> str:
        """What is known of a vertex without its neighbours."""
        if vertex < 0:
            return self.kind(-1 - vertex)
        operator = self.graph.operators[vertex]
        outputs = ", ".join(f"{self.kind(v)} {self.is_read_outside(v)}" for v in operator.outputs)
        return f"{_call(operator)} {outputs}"

    def kind(self, value: int, symbols: _Symbols | None = None) -> str:
        """Type of a value, and whether it is constant; `symbols` are those numbered so far, None numbers none."""
        known = self.graph.values[value]
        return f"constant {_type(known.type, symbols)}" if known.is_constant else _type(known.type, symbols)


def _given(operator: Operator) -> tuple[int | None, ...]:
    """Operands without those left out at the end: leaving out and not naming are the same."""
    count = len(operator.inputs)
    while count and operator.inputs[count - 1] is None:
        count -= 1
    return operator.inputs[:count]


# --- colours


def _digest(content: object) -> str:
    return blake2b(repr(content).encode(), digest_size=12).hexdigest()


def _distinct(subgraph: _Subgraph) -> _Colours:
    """A colour per vertex, all different, chosen alike in isomorphic sub-graphs."""
    colours = _refined(subgraph, {vertex: _digest(subgraph.label(vertex)) for vertex in subgraph.users})
    trials = 0
    while cell := _smallest_cell(colours):
        trials += len(cell)
        choices = [[vertex] for vertex in cell] if trials <= _TRIALS else [cell]
        refined = [_refined(subgraph, _singled_out(colours, choice)) for choice in choices]
        colours = min(refined, key=lambda made: sorted(made.values()))
    return colours


def _singled_out(colours: _Colours, chosen: list[int]) -> _Colours:
    return {**colours, **{vertex: _digest((position, colours[vertex])) for position, vertex in enumerate(chosen)}}


def _smallest_cell(colours: _Colours) -> list[int]:
    """The vertices of the rarest colour that more than one has; [] where all differ."""
    shared = [(count, colour) for colour, count in Counter(colours.values()).items() if count > 1]
    if not shared:
        return []
    _, chosen = min(shared)
    return [vertex for vertex, colour in colours.items() if colour == chosen]


def _refined(subgraph: _Subgraph, colours: _Colours) -> _Colours:
    """Let each vertex see its neighbours, down and up the graph, until that tells no more of them apart."""
    count = len(set(colours.values()))
    while True:
        colours = _seen_from_below(subgraph, _seen_from_above(subgraph, colours))
        told_apart = len(set(colours.values()))
        if told_apart == count:
            return colours
        count = told_apart


def _seen_from_above(subgraph: _Subgraph, colours: _Colours) -> _Colours:
    made = dict(colours)
    for member in subgraph.members:
        sources = [source and (made[source[0]], source[1]) for source in subgraph.sources[member]]
        made[member] = _digest((made[member], sources))
    return made


def _seen_from_below(subgraph: _Subgraph, colours: _Colours) -> _Colours:
    made = dict(colours)
    outside = [vertex for vertex in colours if vertex < 0]
    for vertex in (*reversed(subgraph.members), *outside):
        users = sorted((made[user], position, output) for user, position, output in subgraph.users[vertex])
        made[vertex] = _digest((made[vertex], users))
    return made


# --- text


def _text(subgraph: _Subgraph, colours: _Colours) -> str:
    order = _order(subgraph, colours)
    operators = [subgraph.graph.operators[member] for member in order]
    read = dict.fromkeys(v for o in operators for v in _given(o) if v is not None)
    made = [value for operator in operators for value in operator.outputs]
    outside = [value for value in read if value not in set(made)]
    number = {value: f"%{position}" for position, value in enumerate((*outside, *made))}
    symbols: _Symbols = {}
    lines = [f"{number[value]}: {subgraph.kind(value, symbols)}" for value in outside]
    lines += [_line(subgraph, operator, number, symbols) for operator in operators]
    results = ", ".join(number[value] for value in made if subgraph.is_read_outside(value))
    return "\n".join((*lines, f"return {results}".rstrip()))


def _line(subgraph: _Subgraph, operator: Operator, number: dict[int, str], symbols: _Symbols) -> str:
    """One operator: ``  %2: float32[1,8] = Gemm(%0, _, %1) {alpha=1.0}``."""
    outputs = ", ".join(f"{number[value]}: {subgraph.kind(value, symbols)}" for value in operator.outputs)
    operands = ", ".join("_" if value is None else number[value] for value in _given(operator))
    name, _, attributes = _call(operator).partition(" {")
    return f"  {outputs}{' = ' if outputs else ''}{name}({operands}){' {' if attributes else ''}{attributes}"


def _order(subgraph: _Subgraph, colours: _Colours) -> list[int]:
    """The topological order that takes the least colour first."""
    users = {member: [user for user, _, _ in subgraph.users[member]] for member in subgraph.members}
    return topological_order(users, key=colours.__getitem__)


def _call(operator: Operator) -> str:
    """Operator and attributes: ``Softmax {axis=-1}``."""
    name = f"opaque {operator.op}" if operator.is_opaque else operator.op
    return f"{name} {{{_attributes(operator.attributes)}}}" if operator.attributes else name


def _attributes(attributes: Attributes) -> str:
    return ", ".join(f"{name}={attributes[name]!r}" for name in sorted(attributes))


def _type(tensor: TensorType | None, symbols: _Symbols | None) -> str:
    if tensor is None:
        return "?"
    if tensor.shape is None:
        return f"{tensor.dtype}[...]"
    return f"{tensor.dtype}[{','.join(_dimension(d, symbols) for d in tensor.shape)}]"


def _dimension(dimension: Dimension, symbols: _Symbols | None) -> str:
    if isinstance(dimension, int):
        return str(dimension)
    number = "" if symbols is None else symbols.setdefault(dimension, len(symbols))
    return f"s{number}~{dimension_size(dimension)}"
