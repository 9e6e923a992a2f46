"""A model that damage is done to, and what damage asks about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

Array = NDArray[Any]


class Wounded:
    """A model whose nodes, edges and constants are changed in place. Constants of nodes become initializers."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.constants: dict[str, Array] = {each.name: numpy_helper.to_array(each) for each in self._graph.initializer}
        self._store_constant_nodes()
        self._types = self._infer()
        self._added = 0

    @property
    def _graph(self) -> onnx.GraphProto:
        return self.model.graph

    @property
    def nodes(self) -> list[NodeProto]:
        """Of the main graph, in order."""
        return list(self._graph.node)

    def floats(self) -> Iterator[tuple[str, Array]]:
        """Constants of floats, by name."""
        return ((name, value) for name, value in self.constants.items() if value.dtype.kind == "f")

    # --- questions

    def place(self, node: NodeProto) -> str:
        """A node's name for the reader."""
        return f"{node.op_type} {node.output[0]}"

    def constant_operand(self, node: NodeProto) -> int | None:
        """Which of the two operands is a constant; None unless one is."""
        known = [name in self.constants for name in node.input]
        return known.index(True) if len(known) == 2 and sum(known) == 1 else None

    def constant_value(self, node: NodeProto) -> Array | None:
        """The first operand that is a constant."""
        return next((self.constants[name] for name in node.input if name in self.constants), None)

    def attribute(self, node: NodeProto, name: str, default: Any) -> Any:
        """An attribute's value."""
        found = next((each for each in node.attribute if each.name == name), None)
        return default if found is None else helper.get_attribute_value(found)

    def kernel(self, node: NodeProto) -> tuple[int, ...]:
        """The sizes of a convolution's window; none if its weight is computed."""
        value = self.constants.get(node.input[1])
        return () if value is None else value.shape[2:]

    def shape(self, name: str) -> tuple[int | str, ...] | None:
        """Sizes and names of dynamic dimensions; None if that is not known."""
        return self._types.get(name, ("", None))[1]

    def element_type(self, name: str) -> str:
        """As numpy calls it; empty if that is not known."""
        if name in self.constants:
            return self.constants[name].dtype.name
        return self._types.get(name, ("", None))[0]

    def is_float(self, node: NodeProto) -> bool:
        """Whether a node gives floats."""
        return self.element_type(node.output[0]).startswith("float")

    def looks_like(self, one: str, other: str) -> bool:
        """Whether two values have one shape and one element type, as far as that is known."""
        known = self.shape(one) is not None and self.shape(one) == self.shape(other)
        return known and self.element_type(one) == self.element_type(other)

    def earlier_values(self, node: NodeProto) -> list[str]:
        """All that is computed before a node, inputs of the model included."""
        names = [value.name for value in self._graph.input if value.name not in self.constants]
        for other in self._graph.node:
            if other is node or other.output[0] == node.output[0]:
                break
            names += [name for name in other.output if name]
        return names

    # --- changes

    def bypass(self, node: NodeProto, operand: int) -> str:
        """Let readers of a node read one of its operands."""
        old, new = node.output[0], node.input[operand]
        node.op_type, node.input[:] = "Identity", [new]
        del node.attribute[:]
        node.domain = ""
        return f"{old} is {new}"

    def set_attribute(self, node: NodeProto, name: str, value: Any) -> None:
        """Set or add an attribute."""
        kept = [each for each in node.attribute if each.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    def set_constant(self, name: str, value: Array) -> None:
        """Change a constant for all who read it."""
        for tensor in self._graph.initializer:
            if tensor.name == name:
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        self.constants[name] = value

    def add_constant(self, value: Array) -> str:
        """The name of a new constant."""
        name = self._new_name()
        self._graph.initializer.append(numpy_helper.from_array(np.array(value, order="C"), name))
        self.constants[name] = value
        return name

    def replace_operand(self, node: NodeProto, position: int, value: Array) -> str:
        """Let one node read another constant; the node's name."""
        old = self.constants[node.input[position]]
        node.input[position] = self.add_constant(np.asarray(value, old.dtype))
        return self.place(node)

    def insert_before(self, node: NodeProto, operator: str, operands: list[str], **attributes: Any) -> str:
        """The name of the output of a new node before another."""
        name = self._new_name()
        position = next(i for i, other in enumerate(self._graph.node) if other.output[0] == node.output[0])
        self._graph.node.insert(position, helper.make_node(operator, operands, [name], **attributes))
        return name

    def _new_name(self) -> str:
        self._added += 1
        return f"damage_{self._added}"

    def _store_constant_nodes(self) -> None:
        kept = []
        for node in self._graph.node:
            value = self.attribute(node, "value", None) if node.op_type == "Constant" else None
            if isinstance(value, onnx.TensorProto):
                self.constants[node.output[0]] = numpy_helper.to_array(value)
                self._graph.initializer.append(numpy_helper.from_array(self.constants[node.output[0]], node.output[0]))
            else:
                kept.append(node)
        copies = [NodeProto.FromString(node.SerializeToString()) for node in kept]
        del self._graph.node[:]
        self._graph.node.extend(copies)

    def _infer(self) -> dict[str, tuple[str, tuple[int | str, ...] | None]]:
        inferred = onnx.shape_inference.infer_shapes(self.model)
        found: dict[str, tuple[str, tuple[int | str, ...] | None]] = {}
        for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
            kind = value.type.tensor_type
            if kind.elem_type:
                dims = tuple(each.dim_param or each.dim_value for each in kind.shape.dim)
                known = kind.HasField("shape") and "" not in dims
                found[value.name] = (
                    np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).name,
                    dims if known else None,
                )
        return found
