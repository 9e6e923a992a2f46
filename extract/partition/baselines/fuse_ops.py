"""Fusion by pattern kinds along post-dominators, TVM's FuseOps: ``OperatorGraph -> Partition``.

Source: Chen et al., "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning" (OSDI 2018), section 3, and
the pass ``FuseOps`` of Relay. A node is merged with its immediate post-dominator, and with all nodes between the two,
if the kinds of the groups in between and at the end allow it. Three passes over the nodes:

0. an OUT_ELEMENTWISE_FUSABLE group (Conv, MatMul, ...) takes in the element-wise operators behind it; element-wise and
   broadcast nodes join any group but an opaque one, reductions included;
1. the same for element-wise and broadcast nodes; injective nodes and tuples join injective groups, late, so that they
   do not keep a Conv from growing;
2. operands of a tuple (of a Concat) join it, if that was merged with its reader.

All readers of a node that is not the last of its group are in the group. So a group has one last operator, whose
results alone are read from outside. Hence groups are convex, and the graph of groups has no cycle: the last operators
of the groups along it would each come before the next. No group has two OUT_ELEMENTWISE_FUSABLE operators.

Relax, which replaced Relay (checked against TVM 0.27), runs the same three passes on a different graph:

- edges: each has the kind of the operator that reads, which is element-wise as soon as *one* operand has the output's
  shape. So the Conv of a squeeze-and-excitation gate is fused into the product that broadcasts its result. Here, as in
  Relay, the edge of an operand that is broadcast is BROADCAST, and a Conv stops before it;
- tuples: the operands of a Concat are its direct operands and TUPLE never occurs. So element-wise nodes join a Concat
  in pass 0, also across paths that pass through it; a tuple would stop them;
- constants: OPAQUE, as in Relay those that are not scalars; scalars are ELEMENTWISE in Relay, and count towards the
  depth of the group that they join. Constants are no nodes here;
- kinds: see below.

The graph on which fusion is decided has a node for each tuple besides the operators, as Relay's: one that gathers the
operands of a Concat (TUPLE), and one that takes each output of an operator that has several (INJECTIVE).

The order of the operators decides between two Convs that feed one Add: the first takes it. That order is the model's;
TVM's front ends may write the same model down in another.

Pattern kinds say how an operator's output elements depend on its inputs', as TVM classifies operators for fusion.

Source: TVM's ``OpPatternKind`` (Chen et al., OSDI 2018, section 3), as ``relax.transform.AnnotateTIROpPattern`` of TVM
0.27 finds it in the loops to which an operator legalises. Here it is derived from the operator's index maps, which
describe the same loops. The operators of Relay, the earlier IR, were annotated by hand, which sometimes differs from
the loops:

- softmax and the normalisations are OUT_ELEMENTWISE_FUSABLE (a reduction, then element-wise loops), not OPAQUE;
- so is a mean, which divides after it sums; only the other reductions are COMM_REDUCE;
- Squeeze and Unsqueeze are BROADCAST (an index dropped or added), not INJECTIVE;
- Gather is OPAQUE (it reads indices from memory), not INJECTIVE.

The kinds differ from 0.27 in four places, because of ONNX's operators:

- BatchNormalization is BROADCAST, like the result of ``DecomposeOpsForInference``; by itself it comes out INJECTIVE;
- Slice is always INJECTIVE; 0.27 calls one that keeps a prefix of each axis element-wise, its indices being equal;
- Min, Max, Clip, Gemm, the activations and reductions that the ONNX front end writes as several calls have the kind of
  one loop nest that computes all of it;
- binary operators are BROADCAST and each edge is looked at (`edge_kind`); 0.27 calls the operator element-wise as soon
  as one operand has the output's shape, and that for all of its edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ....engine.choices import MAX_FUSE_DEPTH
from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.index_maps import ZERO, Axis, IndexMaps, OperandMap, Shape, Sum, Unknown, loops_of
from ....ir.operators import OPERATORS, RESHAPES, OperatorSchema
from ....ir.operators.graph_maps import index_maps_of
from ....support.directed_graphs import immediate_dominators
from ..groups import Partition, partition_of


class PatternKind(IntEnum):
    """TVM's kinds and their numbers; the larger of two describes both together."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMENTWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


_WITHOUT_LOOPS = frozenset({"CumSum", "Hardmax"})
"""Operators that TVM does not legalise to plain loops."""

_FLAT = RESHAPES - {"Squeeze", "Unsqueeze"} | {"Transpose"}
"""Operators whose loops TVM finds INJECTIVE even if only axes of one element come, go or move."""

_NOT_ONLY_REDUCTIONS = frozenset(
    {
        "ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ArgMax", "ArgMin",
        "GlobalAveragePool", "AveragePool", "MaxPool",
    }
)  # fmt: skip
"""Operators that pad before they reduce, reduce pairs, or compute something from the reduced values."""


def pattern_kind(graph: OperatorGraph, operator: Operator) -> PatternKind:
    """The kind of an operator; OPAQUE, so never fused, if rules cannot look into it or its shapes are unknown."""
    schema = OPERATORS.get(operator.op)
    if schema is None or operator.is_opaque or operator.op in _WITHOUT_LOOPS:
        return PatternKind.OPAQUE
    if schema.is_elementwise:
        is_unary = sum(operand.optional is False for operand in schema.operands) == 1
        return PatternKind.ELEMENTWISE if is_unary else PatternKind.BROADCAST
    maps = index_maps_of(graph, operator)
    return PatternKind.OPAQUE if maps is None else _kind_of_maps(schema, maps)


def _kind_of_maps(schema: OperatorSchema, maps: IndexMaps) -> PatternKind:
    read = [(operand, shape) for operand, shape in zip(maps.operands, maps.shapes, strict=False) if operand]
    indices = [index for operand, _ in read for index in operand]
    if any(isinstance(index, Unknown) and index.is_data for index in indices):
        return PatternKind.OPAQUE
    if maps.reductions or schema.category == "pooling":
        beside = any(loop.beside is not None for loop in maps.reductions)
        sums = len(read) == 1 and not beside and all(len(list(loops_of(index))) == 1 for index in indices)
        is_reduction = sums and schema.name not in _NOT_ONLY_REDUCTIONS
        return PatternKind.COMM_REDUCE if is_reduction else PatternKind.OUT_ELEMENTWISE_FUSABLE
    is_in_order = schema.name not in _FLAT and all(_is_broadcast(operand, shape or ()) for operand, shape in read)
    return PatternKind.BROADCAST if is_in_order else PatternKind.INJECTIVE


def _is_broadcast(operand: OperandMap, shape: Shape) -> bool:
    """Whether an operand is read whole, along axes of the result in their order, or repeated."""
    axes = [index.number for index in operand if isinstance(index, Axis)]
    whole = all(
        index == ZERO if isinstance(index, Sum) else isinstance(index, Axis) and index.extent == extent
        for index, extent in zip(operand, shape, strict=True)
    )
    return whole and axes == sorted(axes)


def edge_kind(kind: PatternKind, operand: Value, result: Value) -> PatternKind:
    """The kind of an edge into an operator of `kind`: element-wise if a broadcast leaves the operand's shape alone.

    Shapes that are not known to be equal count as different.
    """
    if kind is not PatternKind.BROADCAST or operand.type is None or result.type is None:
        return kind
    is_same = operand.type.shape is not None and operand.type.shape == result.type.shape
    return PatternKind.ELEMENTWISE if is_same else kind


_PASSES = 3


@dataclass(frozen=True)
class FuseOpsLimits:
    """The options of TVM's pass.

    `fuse_opt_level` 0 fuses nothing, all others are alike. A group has at most `max_fuse_depth` operators. No merge
    makes a group that reads and makes more than `max_function_args` values together, if that is not 0; with
    `link_params` constants do not count, since they are part of the group's function.

    Relay adds up the arguments of the groups that a node reads from, which errs on both sides, and Relax's pass
    takes no such limit. Here the values themselves are counted, so the written functions keep to it.
    """

    fuse_opt_level: int = 1
    max_fuse_depth: int = MAX_FUSE_DEPTH
    max_function_args: int = 0
    link_params: bool = False


DEFAULT_LIMITS = FuseOpsLimits()


def fuse_ops(graph: OperatorGraph, limits: FuseOpsLimits = DEFAULT_LIMITS) -> Partition:
    """The groups that TVM's FuseOps forms in `graph` within these limits."""
    nodes = forward_graph(graph)
    operators = {node: number for number, node in enumerate(nodes.node_of)}

    def count_arguments(members: Sequence[int]) -> int:
        inside = [operators[node] for node in members if node in operators]
        read = graph.inputs_of(inside)
        linked = sum(limits.link_params and graph.values[value].is_constant for value in read)
        return len(read) - linked + len(graph.outputs_of(inside))

    labels = node_groups(nodes, limits, count_arguments)
    return partition_of(graph, [labels[node] for node in nodes.node_of], "fuseops")


# --- the graph


class Edge(NamedTuple):
    """To the node that reads, and how it reads."""

    target: int
    kind: PatternKind


@dataclass(frozen=True)
class ForwardGraph:
    """Nodes in a topological order. Per node: its kind, the edges to its readers, and whether the caller reads it.

    `node_of` holds the node of each operator of the graph that this one was made from. Inputs and constants, which are
    never fused, have no nodes.
    """

    kinds: list[PatternKind] = field(default_factory=list)
    edges: list[list[Edge]] = field(default_factory=list)
    is_external: list[bool] = field(default_factory=list)
    node_of: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kinds)

    def add_node(self, kind: PatternKind, sources: Sequence[tuple[int | None, PatternKind]]) -> int:
        """Add a node that reads from some nodes, None being no node, and return its number."""
        node = len(self.kinds)
        self.kinds.append(kind)
        self.edges.append([])
        self.is_external.append(False)
        for source, edge in sources:
            if source is not None:
                self.edges[source].append(Edge(node, edge))
        return node


def forward_graph(graph: OperatorGraph) -> ForwardGraph:
    """The graph of tuples and operators on which the fusion of `graph` is decided."""
    nodes, maker = ForwardGraph(), dict[int, int]()
    for operator in graph.operators:
        node = _add_operator(graph, operator, nodes, maker)
        nodes.node_of.append(node)
        for value in operator.outputs:
            is_output = graph.values[value].is_output
            maker[value] = node
            # An output without readers gets no node: it would keep the operator from having a post-dominator.
            if len(operator.outputs) > 1 and (is_output or graph.consumers[value]):
                maker[value] = nodes.add_node(PatternKind.INJECTIVE, [(node, PatternKind.INJECTIVE)])
            nodes.is_external[maker[value]] |= is_output
    return nodes


def _add_operator(graph: OperatorGraph, operator: Operator, nodes: ForwardGraph, maker: dict[int, int]) -> int:
    kind = pattern_kind(graph, operator)
    read = [value for value in operator.inputs if value is not None]
    if operator.op == "Concat" and kind is PatternKind.INJECTIVE:
        fields = nodes.add_node(PatternKind.TUPLE, [(maker.get(value), PatternKind.INJECTIVE) for value in read])
        return nodes.add_node(PatternKind.INJECTIVE, [(fields, PatternKind.INJECTIVE)])
    kinds = [kind] * len(read)
    if operator.outputs:
        result = graph.values[operator.outputs[0]]
        kinds = [edge_kind(kind, graph.values[value], result) for value in read]
    return nodes.add_node(kind, [(maker.get(value), edge) for value, edge in zip(read, kinds, strict=True)])


class PostDominator(NamedTuple):
    """The nearest node that every path onwards goes through, and the largest kind of all edges on the paths to it."""

    node: int
    kind: PatternKind


def post_dominators(graph: ForwardGraph) -> list[PostDominator | None]:
    """Per node; None for a node that the caller reads and one whose paths never meet again."""
    end = len(graph)
    sources: dict[int, list[int]] = {node: [] for node in range(end + 1)}
    for node, edges in enumerate(graph.edges):
        for target in [end] if graph.is_external[node] or not edges else [edge.target for edge in edges]:
            sources[target].append(node)
    nearest = immediate_dominators(sources, end)
    onwards: list[PostDominator | None] = [None] * end
    for node in reversed(range(end)):
        if nearest[node] != end:
            kind = PatternKind.ELEMENTWISE
            for edge in graph.edges[node]:
                kind = max(kind, edge.kind)
                between = edge.target
                while between != nearest[node]:
                    step = onwards[between]
                    assert step is not None, "paths from here meet at the post-dominator of the node"
                    between, kind = step.node, max(kind, step.kind)
            onwards[node] = PostDominator(nearest[node], kind)
    return onwards


# --- the groups


def node_groups(
    graph: ForwardGraph, limits: FuseOpsLimits = DEFAULT_LIMITS, count_arguments: Callable[[Sequence[int]], int] = len
) -> list[int]:
    """Per node of a forward graph, the last node of its group; `count_arguments` is for some nodes as one function."""
    groups = _Groups(graph, post_dominators(graph), limits, count_arguments)
    for number in range(_PASSES if limits.fuse_opt_level else 0):
        for node in range(len(graph)):
            groups.merge_with_post_dominator(node, number)
    return [groups.find(node) for node in range(len(graph))]


class _Kinds(NamedTuple):
    """The largest kinds that groups may have for a merge: those between a node and its post-dominator, and its own."""

    between: PatternKind
    sink: PatternKind


_ANCHOR = _Kinds(PatternKind.BROADCAST, PatternKind.BROADCAST)
_ELEMENTWISE = _Kinds(PatternKind.INJECTIVE, PatternKind.OUT_ELEMENTWISE_FUSABLE)
_INJECTIVE = _Kinds(PatternKind.INJECTIVE, PatternKind.INJECTIVE)


class _Groups:
    """Disjoint sets of nodes. `members`, `kind` and `has_anchor` of a root describe its group."""

    def __init__(
        self,
        graph: ForwardGraph,
        onwards: Sequence[PostDominator | None],
        limits: FuseOpsLimits,
        count_arguments: Callable[[Sequence[int]], int],
    ) -> None:
        self.graph, self.onwards, self.limits, self.count_arguments = graph, onwards, limits, count_arguments
        self.parent = list(range(len(graph)))
        self.members = [[node] for node in range(len(graph))]
        self.kind = list(graph.kinds)
        self.has_anchor = [kind is PatternKind.OUT_ELEMENTWISE_FUSABLE for kind in graph.kinds]

    def find(self, node: int) -> int:
        """The root of the group of a node."""
        while self.parent[node] != node:
            self.parent[node] = self.parent[self.parent[node]]
            node = self.parent[node]
        return node

    def merge_with_post_dominator(self, node: int, number: int) -> None:
        """Merge `node`, and the nodes between, with its post-dominator if pass `number` does so."""
        onwards = self.onwards[node]
        if onwards is None:
            return
        kinds = self._kinds_into_tuple(node, onwards.node) if number == 2 else self._kinds(node, onwards, number)
        region = self._region(node, onwards.node, kinds) if kinds else []
        if region and self._has_too_many_arguments([*region, onwards.node]):
            return
        for member in region:
            self._merge(member, onwards.node)

    def _has_too_many_arguments(self, region: Sequence[int]) -> bool:
        """Whether the groups of some nodes, as one, read and make more values than a function may take."""
        if not self.limits.max_function_args:
            return False
        members = [member for root in set(map(self.find, region)) for member in self.members[root]]
        return self.count_arguments(members) > self.limits.max_function_args

    def _merge(self, child: int, target: int) -> None:
        """Put the group of `child` into that of `target`, whose kind only an anchor op changes."""
        child, target = self.find(child), self.find(target)
        if child == target:
            return
        self.parent[child] = target
        self.members[target] += self.members[child]
        if self.has_anchor[child]:
            self.has_anchor[target] = True
            self.kind[target] = max(self.kind[target], self.kind[child])

    def _kinds(self, node: int, onwards: PostDominator, number: int) -> _Kinds | None:
        """The limits of a merge in pass 0 or 1; None if there can be none."""
        kind = self.kind[node]
        if self.kind[onwards.node] is PatternKind.TUPLE or self.find(node) == self.find(onwards.node):
            return None
        if kind is PatternKind.OUT_ELEMENTWISE_FUSABLE:
            return _ANCHOR if number == 0 and onwards.kind is PatternKind.ELEMENTWISE else None
        if kind <= PatternKind.BROADCAST:
            return _ELEMENTWISE if onwards.kind <= PatternKind.COMM_REDUCE else None
        if kind in (PatternKind.INJECTIVE, PatternKind.TUPLE):
            return _INJECTIVE if number == 1 else None
        return None

    def _kinds_into_tuple(self, node: int, sink: int) -> _Kinds | None:
        """The limits of a merge in pass 2, for a tuple `sink` that was merged with its reader before."""
        if self.kind[node] > PatternKind.INJECTIVE or self.kind[sink] is not PatternKind.TUPLE:
            return None
        return _INJECTIVE if self.kind[self.find(sink)] <= PatternKind.INJECTIVE else None

    def _region(self, node: int, sink: int, kinds: _Kinds) -> list[int]:
        """`node` and the nodes between it and `sink`; nothing if a group breaks the limits or it gets too deep.

        Merged nodes count with all of their group, as in TVM, so the depth errs on the safe side.
        """
        if self.kind[self.find(sink)] > kinds.sink:
            return []
        depth = len(self.members[self.find(sink)])
        region = {node: None, sink: None}
        stack = [node]
        while stack:
            member = stack.pop()
            depth += len(self.members[member])
            if depth > self.limits.max_fuse_depth or (member != node and self.kind[self.find(member)] > kinds.between):
                return []
            new = {edge.target: None for edge in self.graph.edges[member] if edge.target not in region}
            region.update(new)
            stack += new
        return [member for member in region if member != sink]
