"""What TVM's own FuseOps makes of a graph: the forward graph that it sees, and the groups on it, beside ours."""

from __future__ import annotations

from typing import Any

from tvm import IRModule, ir, relax, transform
from tvm.relax.expr_functor import PyExprMutator, mutator

from eqfuse.extract.partition.baselines.fuse_ops import (
    DEFAULT_LIMITS,
    Edge,
    ForwardGraph,
    FuseOpsLimits,
    PatternKind,
    node_groups,
)

Groups = set[frozenset[int]]
_CALL_TIR = ir.Op.get("relax.call_tir")


def legalised(module: IRModule) -> IRModule:
    """The module as calls of loop nests, each with its kind, and no two calls of the same function.

    Calls that nothing reads are removed, as FuseOps asks: it draws no group of them.
    """
    passes = [
        relax.transform.DeadCodeElimination(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
    ]
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


def grouped(graph: ForwardGraph, limits: FuseOpsLimits = DEFAULT_LIMITS) -> Groups:
    """The calls that this project's FuseOps puts together on the graph that TVM's looks at."""
    groups: dict[int, set[int]] = {}
    labels = node_groups(graph, limits)
    for number, node in enumerate(graph.node_of):
        groups.setdefault(labels[node], set()).add(number)
    return set(map(frozenset, groups.values()))


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
