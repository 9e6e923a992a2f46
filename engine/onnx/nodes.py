"""Properties of ONNX nodes: purity, references to outer graphs, dependence on inputs, identity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper
from onnx_ir import serde

from ...ir.operators.quantization import CONVERSIONS
from ...support.errors import EqfuseError, ModelError
from .model import Model, first_line
from .wellformed import ONNX_DOMAINS, body_graphs, node_title

RANDOM_OPERATORS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
BODY_DOMAIN = "eqfuse.body"
"""The domain of If, Loop and Scan without bodies, which only a flat model has (engine/bodies)."""
FORMAL_KEY = "eqfuse.formal"
"""On inputs of a flat graph that a Loop or Scan gives to its body: in the metadata."""
INFERRED_KEY = "eqfuse.inferred"
"""On outputs of a Loop or Scan whose types were inferred from its body: in the metadata."""
_LIKE = {("com.microsoft", "DynamicQuantizeLSTM"): ("LSTM", 3)}
"""Operators that ONNX does not know: the one whose shapes theirs are, and how many inputs both have in common."""
_QUANTIZATION = CONVERSIONS | {"DynamicQuantizeLinear"}


def is_standard(node: ir.Node) -> bool:
    """Whether the node is of the standard ONNX domain."""
    return node.domain in ONNX_DOMAINS


def is_inferable(node: ir.Node) -> bool:
    """Whether ONNX infers shapes of a node, so that declarations of the model for its results are not used."""
    return is_standard(node) or (node.domain, node.op_type) in _LIKE


def serialize_for_inference(node: ir.Node) -> onnx.NodeProto:
    """A node as ONNX infers its shapes: one that it does not know as the operator whose shapes it has."""
    proto = serde.serialize_node(node)
    if (node.domain, node.op_type) in _LIKE:
        proto.domain, (proto.op_type, inputs) = "", _LIKE[node.domain, node.op_type]
        del proto.input[inputs:]
    return proto


def title(node: ir.Node) -> str:
    """How messages call a node."""
    return node_title(node.name, node.op_type, [output.name for output in node.outputs])


@contextmanager
def blame_node(node: ir.Node, label: str) -> Iterator[None]:
    """Turn any exception about a malformed node into a ModelError that names the node and the model, `label`."""
    try:
        yield
    except (EqfuseError, MemoryError):
        raise
    except Exception as error:  # libraries raise many kinds on attributes and operands that do not fit the operator
        raise ModelError(
            f"{label}: {title(node)}: its attributes or operands make no sense ({type(error).__name__}: "
            f"{first_line(error)}); mend the node or export the model again"
        ) from error


def has_body(node: ir.Node) -> bool:
    """Whether the node carries subgraphs (If, Loop, Scan, SequenceMap)."""
    return any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())


def is_flattened(node: ir.Node) -> bool:
    """Whether rules see the meaning of a node in the flat form of a model only: it has bodies, or reads a sequence."""
    return has_body(node) or node.op_type in ("SequenceAt", "SequenceLength", "ConcatFromSequence")


def is_pure(node: ir.Node) -> bool:
    """Whether equal operands are known to give equal results, so that twins may be merged."""
    if not is_standard(node) or node.op_type in RANDOM_OPERATORS or has_body(node):
        return False
    return not (node.op_type == "Dropout" and len(node.inputs) > 2)


def is_foldable(node: ir.Node) -> bool:
    """Whether the node may be evaluated at compile time if its operands are constant.

    Quantization may not: `CONVERSIONS` says why.
    """
    has_sequence = "Sequence" in node.op_type or node.op_type.startswith("Optional")
    return is_pure(node) and node.op_type not in _QUANTIZATION and not has_sequence


def outer_values(node: ir.Node, graph: ir.Graph) -> tuple[ir.Value, ...]:
    """Values of `graph` that the node's bodies refer to, in order of first use."""
    values: list[ir.Value | None] = []
    for body in body_graphs(node):
        values += (value for inner in body.all_nodes() for value in inner.inputs)
        values.extend(body.outputs)  # it refuses `+=`
    return tuple(dict.fromkeys(value for value in values if value is not None and value.graph is graph))


def fingerprint(node: ir.Node) -> str:
    """The operator with all its attributes: equal for two nodes that differ only in names and operands."""
    attributes = sorted(
        serde.serialize_attribute(a).SerializeToString(deterministic=True) for a in node.attributes.values()
    )
    parts = [node.domain, node.op_type, node.overload, *(a.hex() for a in attributes), str(len(node.outputs))]
    return ":".join(parts)


def is_flat_if(node: ir.Node) -> bool:
    """Whether a node is an If whose branches are operands."""
    return node.domain == BODY_DOMAIN and node.op_type == "If"


def branches(node: ir.Node) -> tuple[tuple[ir.Value, ...], tuple[ir.Value, ...]]:
    """The values that the two branches of a flat If return."""
    values = tuple(value for value in node.inputs[1:] if value is not None)
    half = len(values) // 2
    return values[:half], values[half:]


def layer_nodes(model: Model) -> Iterator[ir.Node]:
    """Nodes that depend on an input of the graph, or on chance, in order."""
    constant = frozenset(model.graph.initializers) - model.overridable_initializers
    live = {i for i in model.graph.inputs if i.name not in constant}
    for node in model.graph:
        used = (*node.inputs, *(outer_values(node, model.graph) if has_body(node) else ()))
        is_random = is_standard(node) and node.op_type in RANDOM_OPERATORS
        if is_random or any(v in live for v in used if v is not None):
            live.update(node.outputs)
            yield node


def attribute_of(node: ir.Node, name: str, default: Any) -> Any:
    """The value of an attribute, or the default if the node does not give it."""
    return node.attributes[name].value if name in node.attributes else default


def stored_input(node: ir.Node, place: int) -> np.ndarray[Any, Any] | None:
    """The value of an input that is stored; None if it is computed or absent."""
    value = node.inputs[place] if len(node.inputs) > place else None
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def constant_node(name: str, value: Any, dtype: str) -> onnx.NodeProto:
    """A Constant whose result has this name."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value, dtype), name))
