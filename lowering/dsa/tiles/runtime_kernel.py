"""A tile's graph in ONNX Runtime, for operators that have no other way to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ....engine.egraph.emit import Emission, emit_node
from ....engine.egraph.graph import ENode
from ....engine.onnx.typing import dtype_of
from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.operators import OPERATORS
from ...base.errors import DsaError

Array = np.ndarray[Any, Any]
_OPSET = 24
_IR_VERSION = 10


class RuntimeTile:
    """A tile that ONNX Runtime computes, operator by operator: each is written in an opset that has it."""

    def __init__(self, graph: OperatorGraph, opset: int | None = None) -> None:
        """`opset` is the one of the network, whose attributes operators have that the rules do not know.

        Raises DsaError for an operator that cannot be written, or that ONNX Runtime does not run.
        """
        self._graph = graph
        self._sessions = [_session(operator.op, operator_model(graph, operator, opset)) for operator in graph.operators]

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The results of a tile, in order; operands in order, in their own types."""
        values = self._graph.values
        inputs = [number for number, value in enumerate(values) if value.producer is None]
        computed = dict(zip(inputs, arrays, strict=True))
        for operator, session in zip(self._graph.operators, self._sessions, strict=True):
            results = session.run(None, {values[v].name: computed[v] for v in operator.inputs if v is not None})
            computed |= dict(zip(operator.outputs, map(np.asarray, results), strict=True))
        return [computed[number] for number, value in enumerate(values) if value.is_output]


def _session(op: str, model: onnx.ModelProto) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions share no base class of their own
        raise DsaError(f"{op}: ONNX Runtime does not run it as a tile: {' '.join(str(error).split())[:200]}") from None


def operator_model(graph: OperatorGraph, operator: Operator, opset: int | None) -> onnx.ModelProto:
    """An operator by itself. Raises DsaError where it cannot be written."""
    is_strange = operator.is_opaque or operator.op not in OPERATORS
    if operator.is_opaque and opset is None:
        raise DsaError(f"{operator.op}: this form of it cannot be run as a tile without the opset of its model")
    version = opset if is_strange and opset is not None else _OPSET
    constants: list[onnx.TensorProto] = []
    node = _plain(graph, operator) if is_strange else _node(graph, operator, constants)
    read = dict.fromkeys(v for v in operator.inputs if v is not None)
    ports, results = ([_info(graph.values[v]) for v in values] for values in (read, operator.outputs))
    proto = helper.make_graph([node], "tile", ports, results, constants)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", version)], ir_version=_IR_VERSION)


def _info(value: Value) -> onnx.ValueInfoProto:
    assert value.type is not None
    return helper.make_tensor_value_info(value.name, int(dtype_of(value.type.dtype)), value.type.shape)


def _plain(graph: OperatorGraph, operator: Operator) -> onnx.NodeProto:
    """A node with the attributes that it had in its model; what had others than numbers and texts is not complete."""
    if operator.is_opaque and operator.op not in OPERATORS:
        raise DsaError(f"{operator.op}: cannot be run as a tile, its attributes or its domain are not known")
    names = ["" if v is None else graph.values[v].name for v in operator.inputs]
    outputs = [graph.values[v].name for v in operator.outputs]
    attributes: dict[str, Any] = dict(operator.attributes)
    return helper.make_node(operator.op, names, outputs, **attributes)


def _node(graph: OperatorGraph, operator: Operator, constants: list[onnx.TensorProto]) -> onnx.NodeProto:
    """A node of canonical attributes; those that are inputs in ONNX become constants."""
    if operator.op == "Concat":
        names = [graph.values[v].name for v in operator.inputs if v is not None]
        outputs = [graph.values[v].name for v in operator.outputs]
        return helper.make_node("Concat", names, outputs, axis=operator.attributes["axis"])
    found = _emission(graph, operator)
    inputs = []
    for source in found.inputs:
        if isinstance(source, int):
            value = operator.inputs[source]
            inputs.append("" if value is None else graph.values[value].name)
        elif source is None:
            inputs.append("")
        else:
            inputs.append(f"c{len(constants)}")
            constants.append(numpy_helper.from_array(source, inputs[-1]))
    outputs = [graph.values[v].name for v in operator.outputs]
    return helper.make_node(found.op_type, inputs, outputs, domain=found.domain, **found.attributes)


def _emission(graph: OperatorGraph, operator: Operator) -> Emission:
    known = OPERATORS[operator.op]
    literals = tuple(operator.attributes.get(a.name, a.default) for a in known.attributes)
    types = [None if v is None else graph.values[v].type for v in operator.inputs]
    types += [None] * (len(known.operands) - len(types))
    children = tuple(-1 if type_ is None else number for number, type_ in enumerate(types))
    node = ENode(operator.op, literals, children)  # type: ignore[arg-type]
    found = emit_node(node, types, graph.values[operator.outputs[0]].type, _OPSET, {})
    if found is None or found.lines:
        raise DsaError(f"{operator.op}: this form of it cannot be run as a tile")
    return found
