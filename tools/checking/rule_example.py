"""The example of a rule as ONNX: a sample of it before and after, in ONNX's own text format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper, printer

from ...engine.egraph.emit import Emission, emit_node
from ...engine.egraph.graph import ENode
from ...ir import operators as semantics
from ...ir.operators import Array
from ...ir.types import TensorType
from .drawing.elements import draw
from .drawing.hits import Hit
from .drawing.placement import Placement
from .drawing.scratch import Fired
from .drawing.terms import Leaf, Term

OPSET = 23


def before_and_after(hit: Hit) -> tuple[str, str] | None:
    """The two sides of a rule on one of its samples, a line for each node; None where ONNX cannot say one."""
    if not isinstance(hit.outcome, Fired):
        return None
    elements = draw(hit.sample, "ordinary", {}, np.random.default_rng(0))
    sides = (hit.sample.roots, Placement(hit.sample, hit.outcome).after())
    before, after = (_Writer(elements).write(roots) for roots in sides)
    return None if before is None or after is None else (before, after)


class _Inexpressible(Exception):
    pass


@dataclass
class _Writer:
    """Writes terms, each once."""

    elements: Mapping[str, Array]
    values: dict[Term, Array | tuple[Array, ...]] = field(default_factory=dict)
    names: dict[Term, list[str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def write(self, roots: Sequence[Term | Leaf]) -> str | None:
        """The nodes and what they return."""
        try:
            returned = [self.name(root) for root in dict.fromkeys(roots)]
        except (_Inexpressible, semantics.Unsupported):
            return None
        return "\n".join([*self.lines, f"return {', '.join(returned)}"])

    def value(self, term: Term | Leaf) -> Array | tuple[Array, ...] | None:
        if isinstance(term, Leaf):
            if term.kind == "Absent":
                return None
            full = semantics.full(term.type.shape, term.type.value or 0.0, term.type.dtype)
            return full if term.kind == "Full" else self.elements[term.name]
        if term not in self.values:
            arguments = [self.value(a) if isinstance(a, (Term, Leaf)) else a for a in term.arguments]
            if term.head == "Out":
                self.values[term] = arguments[0][arguments[1]]  # type: ignore[index,assignment]
            else:
                with np.errstate(all="ignore"):
                    self.values[term] = semantics.evaluate(term.head, arguments)  # type: ignore[arg-type]
        return self.values[term]

    def type(self, term: Term | Leaf) -> TensorType | None:
        value = self.value(term)
        array = value[0] if isinstance(value, tuple) else value
        return None if array is None else TensorType(array.dtype.name, array.shape)

    def name(self, term: Term | Leaf) -> str:
        """What a term is called, after the nodes that make it are written."""
        if isinstance(term, Leaf):
            return _leaf(term)
        if term.head == "Out":
            node, index = term.arguments
            self.name(node)  # type: ignore[arg-type]
            return self.names[node][index]  # type: ignore[index]
        if term not in self.names:
            self._write(term)
        return self.names[term][0]

    def _write(self, term: Term) -> None:
        operands = [a for a in term.arguments if isinstance(a, (Term, Leaf))]
        literals = tuple(a for a in term.arguments if not isinstance(a, (Term, Leaf)))
        children = tuple(-1 if a == Leaf("Absent") else i for i, a in enumerate(operands))
        types = [self.type(a) for a in operands]
        spec = emit_node(ENode(term.head, literals, children), types, self.type(term), OPSET, {}, -1)
        if spec is None:
            raise _Inexpressible
        inputs = ", ".join(self._input(i, operands) for i in spec.inputs)
        number = len(self.names)
        made = [f"t{number}" + (f"_{i}" if spec.outputs > 1 else "") for i in range(spec.outputs)]
        self.names[term] = made
        self.lines.append(f"{_head(spec, made)}({inputs})")

    def _input(self, source: int | Array | None, operands: Sequence[Term | Leaf]) -> str:
        if isinstance(source, int):
            return self.name(operands[source])
        return '""' if source is None else f"{{{', '.join(map(str, source.reshape(-1).tolist()))}}}"


def _head(spec: Emission, made: Sequence[str]) -> str:
    """The node as ONNX prints it, up to its inputs."""
    given = {name: value for name, value in spec.attributes.items() if value is not None}
    attributes: dict[str, Any] = {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
    node = helper.make_node(spec.op_type, [], made, domain=spec.domain, **attributes)
    graph = printer.to_text(helper.make_graph([node], "example", [], []))  # not every onnx prints a node by itself
    return graph.partition("{")[2].rpartition("(")[0].strip()


def _leaf(leaf: Leaf) -> str:
    shape = f"[{','.join(map(str, leaf.type.shape))}]" if leaf.type.shape else ""
    if leaf.kind == "Full":
        return f"{leaf.type.value:g}{shape}"
    return '""' if leaf.kind == "Absent" else leaf.name.rstrip("'") + shape
