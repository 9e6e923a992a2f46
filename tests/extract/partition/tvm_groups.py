"""What TVM's own FuseOps makes of a graph: the forward graph that it sees, and the groups that it finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import IRModule, ir, relax, te, tirx, transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from eqfuse.extract.partition.baselines.fuse_ops import Edge, ForwardGraph, PatternKind
from eqfuse.ir.graph import Operator, OperatorGraph

Groups = set[frozenset[int]]
_CALL_TIR = ir.Op.get("relax.call_tir")


def legalised(module: IRModule) -> IRModule:
    """The module as calls of loop nests, each with its kind, and no two calls of the same function."""
    passes = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    return _tagged(transform.Sequential(passes)(module))


def for_inference(module: IRModule) -> IRModule:
    """The same, after batch normalisation is written out and what depends on constants alone is computed."""
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
    ]
    return _tagged(transform.Sequential(passes)(module))


def fused(module: IRModule, max_depth: int = 256, opt_level: int = 2) -> Groups:
    """The calls that FuseOps puts together; a call is known by its position among the calls of loop nests."""
    with transform.PassContext(config={"relax.FuseOps.max_depth": max_depth}):
        functions = relax.transform.FuseOps(opt_level)(module).functions
    found = [
        frozenset(_number(binding.value.args[0]) for binding in _bindings(function) if _is_loops(binding.value))
        for function in functions.values()
        if isinstance(function, relax.Function) and function.attrs and function.attrs.get("Primitive")
    ]
    alone = {frozenset({n}) for n in range(len(kinds(module)))} - {frozenset({n}) for group in found for n in group}
    return alone | {group for group in found if group}


def kinds(module: IRModule) -> list[PatternKind]:
    """The kind of each call of a loop nest, in order."""
    calls = [binding.value for binding in _bindings(module["main"]) if _is_loops(binding.value)]
    return [PatternKind(int(module[call.args[0]].attrs["op_pattern"])) for call in calls]


def calls(module: IRModule) -> list[str]:
    """The loop nests that main calls, by the names that TVM gave them, without the numbers that tell them apart."""
    found = [module[b.value.args[0]] for b in _bindings(module["main"]) if _is_loops(b.value)]
    return [str(function.attrs["named"]).rstrip("0123456789") for function in found]


def forward_graph_of(module: IRModule) -> ForwardGraph:
    """The graph that TVM's FuseOps looks at, less inputs and constants; `node_of` holds the calls of loop nests."""
    bindings = _bindings(module["main"])
    index = {binding.var: number for number, binding in enumerate(bindings)}
    own = [_kind(module, binding.value) for binding in bindings]
    edges: list[list[Edge]] = [[] for _ in bindings]
    for number, binding in enumerate(bindings):
        for source in _read(binding.value):
            if source in index:
                edges[index[source]].append(Edge(number, own[number]))
    external = [not isinstance(binding.var, relax.DataflowVar) for binding in bindings]
    node_of = [number for number, binding in enumerate(bindings) if _is_loops(binding.value)]
    return ForwardGraph(own, edges, external, node_of)


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


@mutator
class _Tagger(PyExprMutator):  # type: ignore[misc]
    """Gives each call a function of its own, numbered: FuseOps shares functions that are equal."""

    count = 0

    def visit_call_(self, call: Any) -> Any:
        if call.op != _CALL_TIR:
            return super().visit_call_(call)
        loops = self.builder_.get()[call.args[0]]
        tagged = loops.with_attrs({"number": self.count, "named": call.args[0].name_hint})
        function = self.builder_.add_func(tagged, f"f{self.count}")
        self.count += 1
        return relax.Call(call.op, [function, *call.args[1:]], call.attrs, call.ty_args)


def _tagged(module: IRModule) -> IRModule:
    tagger = _Tagger(module)
    main = tagger.visit_expr(module["main"])
    tagger.builder_.update_func(module.get_global_var("main"), main)
    return tagger.builder_.get()


def _bindings(function: Any) -> list[Any]:
    return [binding for block in function.body.blocks for binding in block.bindings]


def _is_loops(value: Any) -> bool:
    return isinstance(value, relax.Call) and value.op == _CALL_TIR


def _number(function: Any) -> int:
    return int(function.name_hint[1:])


def _kind(module: IRModule, value: Any) -> PatternKind:
    if _is_loops(value):
        return PatternKind(int(module[value.args[0]].attrs["op_pattern"]))
    return PatternKind.INJECTIVE if isinstance(value, relax.TupleGetItem) else PatternKind.OPAQUE


def _read(value: Any) -> list[Any]:
    """Variables that a binding reads, as often as it does."""
    if isinstance(value, relax.Call):
        return [leaf for argument in value.args for leaf in _read(argument)]
    if isinstance(value, relax.Tuple):
        return [leaf for item in value.fields for leaf in _read(item)]
    if isinstance(value, relax.TupleGetItem):
        return _read(value.tuple_value)
    return [value] if isinstance(value, relax.Var) else []
