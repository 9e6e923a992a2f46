"""Modules of TVM to run its FuseOps on: calls of given kinds, and operator graphs as calls of Relax operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import IRModule, relax, te, tirx

from eqfuse.ir.graph import Operator, OperatorGraph


def annotated(kinds_: Sequence[int], sources: Sequence[Sequence[int]], outputs: set[int]) -> IRModule:
    """Calls that read earlier ones, or the input where they read none, with the kinds given; what they do is nothing.

    `outputs` are read by the caller.
    """
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    made: list[Any] = []
    with builder.function("main", [x]):
        with builder.dataflow():
            for number, (kind, reads) in enumerate(zip(kinds_, sources, strict=True)):
                loops = _sum(max(1, len(reads))).with_attrs({"op_pattern": int(kind), "number": number})
                function = builder.add_func(loops, f"f{number}")
                operands = [made[source] for source in reads] or [x]
                call = relax.call_tir(function, operands, relax.TensorType((4,), "float32"))
                made.append(builder.emit_output(call) if number in outputs else builder.emit(call))
            last = builder.emit_output(relax.Tuple([made[number] for number in sorted(outputs)]))
        builder.emit_func_output(last)
    return builder.get()


def relax_of(graph: OperatorGraph) -> IRModule:
    """A graph as calls of Relax operators, one for each operator of the graph."""
    builder = relax.BlockBuilder()
    values = {n: _leaf(graph, n) for n, value in enumerate(graph.values) if value.producer is None}
    with builder.function("main", [leaf for leaf in values.values() if isinstance(leaf, relax.Var)]):
        with builder.dataflow():
            for operator in graph.operators:
                result = builder.emit(_call(graph, operator, [values[v] for v in operator.inputs if v is not None]))
                gives_tuple = len(operator.outputs) > 1 or operator.op == "BatchNormalization"
                for position, made in enumerate(operator.outputs):
                    values[made] = builder.emit(relax.TupleGetItem(result, position)) if gives_tuple else result
            outputs = [values[number] for number, value in enumerate(graph.values) if value.is_output]
            last = builder.emit_output(relax.Tuple(outputs))
        builder.emit_func_output(last)
    return builder.get()


def _leaf(graph: OperatorGraph, number: int) -> Any:
    """An input as a parameter, a constant as ones."""
    shape = _shape(graph, number)
    if graph.values[number].is_constant:
        return relax.const(np.ones(shape, "float32"))
    return relax.Var(graph.values[number].name, relax.TensorType(shape, "float32"))


_NAMES = {
    "Add": "add", "Mul": "multiply", "Sub": "subtract", "Div": "divide", "Sigmoid": "sigmoid", "Tanh": "tanh",
    "Erf": "erf", "MatMul": "matmul", "Relu": "nn.relu", "Softmax": "nn.softmax", "GlobalAveragePool": "mean",
    "ReduceMean": "mean", "ReduceSum": "sum", "Where": "where", "Exp": "exp",
}  # fmt: skip


def _call(graph: OperatorGraph, operator: Operator, inputs: list[Any]) -> Any:
    """One Relax operator, with what it needs of the shapes of the operator's results."""
    shape = _shape(graph, operator.outputs[0])
    match operator.op:
        case "Conv":
            pads = operator.attributes.get("pads", (0, 0, 0, 0))
            return relax.op.nn.conv2d(*inputs, padding=pads, groups=operator.attributes.get("group", 1))
        case "BatchNormalization":
            return relax.op.nn.batch_norm(*inputs, axis=1, training=False)
        case "LayerNormalization":
            return relax.op.nn.layer_norm(*inputs, axes=[-1])
        case "MaxPool":
            return relax.op.nn.max_pool2d(*inputs, pool_size=(3, 3), padding=(1, 1))
        case "GlobalAveragePool":
            return relax.op.mean(*inputs, axis=[2, 3], keepdims=True)
        case "ReduceSum" | "ReduceMean":
            return getattr(relax.op, _NAMES[operator.op])(*inputs, axis=[-1], keepdims=True)
        case "Transpose":
            return relax.op.permute_dims(*inputs, axes=operator.attributes["perm"])
        case "Reshape" | "Expand":
            name = "reshape" if operator.op == "Reshape" else "broadcast_to"
            return getattr(relax.op, name)(*inputs, shape)
        case "Unsqueeze":
            return relax.op.expand_dims(*inputs, axis=operator.attributes["axes"])
        case "Slice":
            axis, end = operator.attributes["axes"][0], operator.attributes["ends"][0]
            return relax.op.strided_slice(*inputs, axes=[axis], begin=[operator.attributes["starts"][0]], end=[end])
        case "Concat":
            return relax.op.concat(inputs, axis=operator.attributes["axis"])
        case "Split":
            return relax.op.split(*inputs, len(operator.outputs), axis=operator.attributes["axis"])
    names = _NAMES[operator.op].split(".")
    function: Any = relax.op
    for name in names:
        function = getattr(function, name)
    return function(*inputs)


def _shape(graph: OperatorGraph, value: int) -> tuple[int, ...]:
    type_ = graph.values[value].type
    assert type_ is not None
    assert type_.shape is not None
    return tuple(d for d in type_.shape if isinstance(d, int))


def _sum(count: int) -> Any:
    operands = [te.placeholder((4,), name=f"a{i}") for i in range(count)]
    total = te.compute((4,), lambda i: sum((operand[i] for operand in operands), tirx.const(0, "float32")))
    return te.create_prim_func([*operands, total])
