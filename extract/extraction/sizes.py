"""The sizes that costs assume: every symbolic dimension of an input gets a number, and all others follow from these.

The analyses leave a shape open if it depends on a symbolic dimension in a way that they do not express (the height
behind a Conv of stride 2). A cost needs a number there too: without one, a convolution over a feature map would cost
as much as one over a single pixel, and the extractor would take either.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from ...engine.egraph.emit import Array, Emission, emit_node
from ...engine.egraph.encode import Encoding
from ...engine.egraph.graph import EGraph, ENode, NodePosition, WaitingNodes
from ...engine.onnx.typing import infer_outputs, type_proto
from ...engine.shapes.inference import Knowledge, infer_node_types
from ...ir.operators import OPERATORS
from ...ir.sizes import assume_sizes, dimension_size
from ...ir.types import Dimension, TensorType

Types = tuple[TensorType | None, ...]


def assume_types(
    egraph: EGraph, encoding: Encoding, opset: int, knowledge: Knowledge, sizes: Mapping[str, int]
) -> Types:
    """The type of each class, of fixed sizes wherever these follow from assumed sizes of the inputs: those in `sizes`,
    by the name of a dimension, else those of `assume_sizes`.

    If nothing else is known of a value of the model, the dimensions of its type in `knowledge` count.
    """
    return _Assumptions(egraph, encoding, opset, knowledge, sizes).run()


class _Assumptions:
    """A walk from the leaves to the roots; of each class the first e-node whose operands have sizes decides."""

    def __init__(
        self, egraph: EGraph, encoding: Encoding, opset: int, knowledge: Knowledge, sizes: Mapping[str, int]
    ) -> None:
        self.egraph, self.encoding, self.opset, self.knowledge = egraph, encoding, opset, knowledge
        inputs = (c.type for c in egraph.classes if any(n.op == "Var" for n in c.nodes))
        self.sizes = assume_sizes(type_.shape or () for type_ in inputs if type_ is not None) | dict(sizes)
        self.symbols = {number: name for name, number in encoding.symbols.items()}
        self.types = [self._assume(class_.type) for class_ in egraph.classes]
        self.named: dict[int, TensorType] = {}
        for name, term in encoding.values.items():
            if (type_ := knowledge.types.get(name)) is not None and type_.shape is not None:
                self.named.setdefault(egraph.terms[term], type_)
        self.opaque = {egraph.terms[t]: node for node, t in encoding.nodes.items() if encoding.terms[t].op == "Op"}
        self.outputs: dict[int, Types] = {}
        self.inferences: dict[tuple[object, ...], Types] = {}

    def run(self) -> Types:
        classes = self.egraph.classes
        if all(type_ is not None and type_.is_static for type_ in self.types):
            return tuple(self.types)
        waiting = WaitingNodes()
        positions = (NodePosition(owner, place) for owner, c in enumerate(classes) for place in range(len(c.nodes)))
        ready = [p for p in positions if waiting.add(p, classes[p.owner].nodes[p.place].children)]
        done: set[int] = set()
        while ready:
            following: list[NodePosition] = []
            for owner, place in ready:
                if owner not in done and self._assume_sizes_of(owner, classes[owner].nodes[place]):
                    done.add(owner)
                    following += waiting.provide(owner)
            ready = following
        return tuple(self.types)

    def _assume(self, type_: TensorType | None) -> TensorType | None:
        """The type with a number for every dimension that the inputs declare."""
        if type_ is None or type_.shape is None or type_.is_static:
            return type_
        declared = self.symbols.values()
        return TensorType(type_.dtype, tuple(self._size(d) if d in declared else d for d in type_.shape))

    def _size(self, dimension: Dimension) -> int:
        return dimension_size(dimension, self.sizes)

    def _assume_sizes_of(self, owner: int, node: ENode) -> bool:
        """Give a class the sizes that an e-node has; returns whether the readers of the class can get theirs."""
        type_ = self.types[owner]
        if type_ is not None and type_.is_static:
            return True
        shape = self._shape(owner, node)
        if shape is None and owner in self.named and (node.op == "Out" or node == self.egraph.classes[owner].nodes[0]):
            shape = self.named[owner].shape
        if shape is not None and type_ is not None:
            dimensions = type_.shape if type_.shape is not None and len(type_.shape) == len(shape) else shape
            sizes = tuple(k if isinstance(k, int) else self._size(d) for k, d in zip(dimensions, shape, strict=True))
            self.types[owner] = TensorType(type_.dtype, sizes)
            return True
        return type_ is None or node.op in ("Absent", "Op") or shape is not None

    def _shape(self, owner: int, node: ENode) -> tuple[Dimension, ...] | None:
        if node.op == "Out":
            outputs = self.outputs.get(node.children[0], ())
            index = int(node.attributes[0])  # type: ignore[arg-type]
            type_ = outputs[index] if index < len(outputs) else None
            return type_.shape if type_ is not None else None
        if owner in self.opaque:
            self.outputs[owner] = self._infer_opaque(self.opaque[owner])
        operator = OPERATORS.get(node.op)
        operands = tuple(self.types[c] for c in node.children)
        absent = self.egraph.absent
        if operator is None or any(self.types[c] is None and c != absent for c in node.children):
            return None
        if operator.category in ("elementwise.unary", "elementwise.binary", "elementwise.ternary", "normalization"):
            return _broadcast(operands)
        if node.op == "If":
            return operands[1].shape if operands[1] is not None else None
        emission = emit_node(node, operands, self.types[owner], self.opset, self.symbols, absent)
        if emission is None or emission.lines:
            return operands[0].shape if emission is not None and operands[0] is not None else None
        key = (node.op, node.attributes, operands, tuple(c == absent for c in node.children))
        if key not in self.inferences:
            self.inferences[key] = _infer(emission, operands, self.opset)
        self.outputs[owner] = self.inferences[key]
        first = self.inferences[key][0] if self.inferences[key] else None
        return first.shape if first is not None else None

    def _infer_opaque(self, node: ir.Node) -> Types:
        """The types of the outputs of a node of the model that rules cannot look into."""
        names = [value.name for value in node.inputs if value is not None and value.name]
        classes = {name: self.egraph.terms[self.encoding.values[name]] for name in names}
        types = {name: type_ for name, owner in classes.items() if (type_ := self.types[owner]) is not None}
        inferred = infer_node_types(node, types, self.knowledge.constants, {"": self.opset})
        return tuple(inferred.get(output.name or "") for output in node.outputs)


def _broadcast(operands: Types) -> tuple[int, ...] | None:
    shapes = [tuple(map(dimension_size, o.shape)) for o in operands if o is not None and o.shape is not None]
    try:
        return np.broadcast_shapes(*shapes) if shapes else None
    except ValueError:  # assumed sizes that do not fit: half of one against another
        return max(shapes, key=lambda shape: np.prod(shape, dtype=float))


def _infer(emission: Emission, operands: Types, opset: int) -> Types:
    """The types of a new node's outputs by ONNX's inference, () if it fails."""
    types: dict[str, onnx.TypeProto] = {}
    constants: dict[str, Array] = {}
    names = []
    for index, source in enumerate(emission.inputs):
        names.append("" if source is None else f"i{index}")
        if isinstance(source, int):
            if (type_ := operands[source]) is not None:
                types[names[-1]] = type_proto(type_)
        elif source is not None:
            constants[names[-1]] = source
            types[names[-1]] = type_proto(TensorType(source.dtype.name, source.shape))
    outputs = [f"o{index}" for index in range(emission.outputs)]
    try:
        node = onnx.helper.make_node(emission.op_type, names, outputs, **emission.attributes)
    except ValueError:  # onnx makes no attribute of an empty list
        return ()
    inferred = infer_outputs(node, types, constants, opset)
    return () if not inferred else tuple(map(inferred.get, outputs))
