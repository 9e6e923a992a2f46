"""The example of a rule as ONNX: a sample of it before and after, in ONNX's own text format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper, printer

from ...engine.egraph.emit import Emission, emit_node
from ...engine.egraph.graph import ENode
from ...ir.operators import Array, Unsupported
from ...ir.types import TensorType
from .sampling.elements import draw
from .sampling.evaluation import Evaluation
from .sampling.hits import Hit
from .sampling.placement import Placement
from .sampling.scratch import Fired
from .sampling.terms import Leaf, Term

_OPSET = 23
"""The version of ONNX's operators in which examples are written."""


def before_and_after(hit: Hit) -> tuple[str, str] | None:
    """The two sides of a rule on one of its samples, a line for each node; None if ONNX cannot express one."""
    if not isinstance(hit.outcome, Fired):
        return None
    elements = draw(hit.sample, "ordinary", {}, np.random.default_rng(0))
    sides = (hit.sample.roots, Placement(hit.sample, hit.outcome).after())
    try:
        with np.errstate(all="ignore"):
            before, after = (
                _Writer(Evaluation(hit.sample, hit.outcome, elements, {})).write(roots) for roots in sides
            )
    except (_Inexpressible, Unsupported):
        return None
    return before, after


class _Inexpressible(Exception):
    pass


@dataclass
class _Writer:
    """Writes terms, each once. `names` has the names of their outputs."""

    evaluation: Evaluation
    names: dict[Term, list[str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def write(self, roots: Sequence[Term | Leaf]) -> str:
        """The nodes and the values that they return. Raises _Inexpressible and Unsupported."""
        outputs = [self._name(root) for root in dict.fromkeys(roots)]
        return "\n".join([*self.lines, f"return {', '.join(outputs)}"])

    def _type(self, term: Term | Leaf) -> TensorType | None:
        value = self.evaluation.value(term)
        array = value[0] if isinstance(value, tuple) else value
        return None if array is None else TensorType(array.dtype.name, array.shape)

    def _name(self, term: Term | Leaf) -> str:
        """The name of a term; writes the nodes that make it first."""
        if isinstance(term, Leaf):
            return _leaf_text(term)
        if term.head == "Out":
            node, index = term.arguments
            self._name(node)  # type: ignore[arg-type]
            return self.names[node][index]  # type: ignore[index]
        if term not in self.names:
            self._write_node(term)
        return self.names[term][0]

    def _write_node(self, term: Term) -> None:
        operands = [a for a in term.arguments if isinstance(a, (Term, Leaf))]
        literals = tuple(a for a in term.arguments if not isinstance(a, (Term, Leaf)))
        children = tuple(-1 if a == Leaf("Absent") else i for i, a in enumerate(operands))
        types = [self._type(a) for a in operands]
        emission = emit_node(ENode(term.head, literals, children), types, self._type(term), _OPSET, {}, -1)
        if emission is None:
            raise _Inexpressible
        inputs = ", ".join(self._input(i, operands) for i in emission.inputs)
        number = len(self.names)
        names = [f"t{number}" + (f"_{i}" if emission.outputs > 1 else "") for i in range(emission.outputs)]
        self.names[term] = names
        self.lines.append(f"{_head(emission, names)}({inputs})")

    def _input(self, source: int | Array | None, operands: Sequence[Term | Leaf]) -> str:
        if isinstance(source, int):
            return self._name(operands[source])
        return '""' if source is None else f"{{{', '.join(map(str, source.reshape(-1).tolist()))}}}"


def _head(emission: Emission, outputs: Sequence[str]) -> str:
    """The node as ONNX prints it, up to its inputs."""
    values = {name: value for name, value in emission.attributes.items() if value is not None}
    attributes: dict[str, Any] = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
    node = helper.make_node(emission.op_type, [], outputs, domain=emission.domain, **attributes)
    graph = printer.to_text(helper.make_graph([node], "example", [], []))  # not every onnx prints a node by itself
    return graph.partition("{")[2].rpartition("(")[0].strip()


def _leaf_text(leaf: Leaf) -> str:
    shape = f"[{','.join(map(str, leaf.type.shape))}]" if leaf.type.shape else ""
    if leaf.kind == "Full":
        return f"{leaf.type.value:g}{shape}"
    return '""' if leaf.kind == "Absent" else leaf.name.rstrip("'") + shape
