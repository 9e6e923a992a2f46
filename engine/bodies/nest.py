"""One graph as nested graphs: the way back from `flatten`.

A value is computed where it is needed: in the graph that reads it or, if several do, in the innermost one around them
that always needs it. So operators that both branches of an If compute run before it. An operator that no iteration of a
Loop changes runs before the Loop if it did so in the source, or cannot fail. If two graphs may need a
value, but need not, each computes it by itself, unless the source computes it for both.
"""

from __future__ import annotations

import heapq
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count

import onnx_ir as ir

from ...ir.operators import SCHEMAS
from ..egraph.encode import Encoding
from ..egraph.graph import EClass, EGraph, ENode
from ..onnx.model import Model
from ..onnx.nodes import BODY_DOMAIN, FORMAL_KEY, branches, has_body, is_flat_if, is_pure
from ..onnx.wellformed import body_graphs
from ..shapes.inference import SMALL
from .flatten import FlatModel, region_of


def is_total(node: ir.Node) -> bool:
    """Whether a node runs on any operands of its types: shapes are known and nothing depends on elements."""
    row = SCHEMAS.get(node.op_type)
    if row is None or not row.is_total or not is_pure(node):
        return False
    operands = [value for value in node.inputs if value is not None]
    if any(value.dtype is None or value.dtype == ir.DataType.STRING for value in operands):
        return False
    return len(operands) <= 1 or all(value.shape is not None and value.shape.is_static() for value in operands)


@dataclass(frozen=True)
class Body:
    """A body to be written: the attribute that holds it and the values that it returns.

    `scope` is that of the region in the source, None for a branch of an If; `formals` are the arguments of the body.
    """

    attribute: str
    results: tuple[ir.Value, ...]
    scope: int | None = None
    formals: tuple[ir.Value, ...] = ()

    @property
    def may_return_formal(self) -> bool:
        """Whether the first value that it returns may be the second formal: the condition of a Loop."""
        return len(self.formals) > 1 and self.results[:1] == self.formals[1:2]


class Placement:
    """Answers about the nodes of a flat graph, which have operands that they read and bodies that may read others."""

    def __init__(self, graph: ir.Graph, flat: FlatModel) -> None:
        self.flat = flat
        self.nodes = tuple(graph)
        self.order = {node: index for index, node in enumerate(self.nodes)}
        inputs = {value.name: value for value in graph.inputs}
        self.inputs = {node: tuple(node.inputs) for node in self.nodes}
        self.reads: dict[ir.Node, tuple[ir.Value, ...]] = {}
        self.bodies: dict[ir.Node, tuple[Body, ...]] = {}
        self.formals: dict[ir.Value, int | None] = {}
        self.total: dict[ir.Node, bool] = {}
        self.free: dict[ir.Node, frozenset[int | None]] = {}
        for node in self.nodes:
            region = region_of(node, flat.regions)
            operands: Iterable[ir.Value | None] = node.inputs
            bodies: tuple[Body, ...] = ()
            if is_flat_if(node):
                then, otherwise = branches(node)
                operands, bodies = node.inputs[:1], (Body("then_branch", then), Body("else_branch", otherwise))
            elif region is not None:
                formals = tuple(inputs[name] for name in region.formals)
                results = tuple(value for value in node.inputs[region.inputs :] if value is not None)
                operands, bodies = node.inputs[: region.inputs], (Body("body", results, region.scope, formals),)
                self.formals |= dict.fromkeys(formals, region.scope)
            elif has_body(node):
                inner = [n for body in body_graphs(node) for n in body.all_nodes()]
                returned = [value for body in body_graphs(node) for value in body.outputs]
                captured = (*(i for n in inner for i in n.inputs), *returned)
                operands = (*node.inputs, *(v for v in captured if v is not None and v.graph is graph))
            self.reads[node] = tuple(value for value in operands if value is not None)
            self.bodies[node] = bodies
        for node in self.nodes:
            self._describe(node)

    def _describe(self, node: ir.Node) -> None:
        """The values that a node depends on, and whether it can run anywhere."""
        free: set[int | None] = set()
        total = is_total(node) or is_flat_if(node)
        for value in self.operands(node):
            producer = value.producer()
            if producer is not None:
                free |= self.free[producer]
                total = total and (self.total[producer] or not is_flat_if(node))
            elif value in self.formals:
                free.add(self.formals[value])
        self.free[node] = frozenset(free).difference(body.scope for body in self.bodies[node])
        self.total[node] = total

    def operands(self, node: ir.Node) -> tuple[ir.Value, ...]:
        """The values that a node reads and that its bodies return."""
        return (*self.reads[node], *(result for body in self.bodies[node] for result in body.results))

    def nodes_of(self, roots: Iterable[ir.Value], available: Set[ir.Node], bound: Set[int | None]) -> list[ir.Node]:
        """The nodes that a graph computes to return `roots`, in order; those around it have computed the `available`.

        `bound` are the scopes of the regions around it, whose formals it may read.
        """
        here = self._always(roots, available)
        while True:
            outside = here | available
            more = {node for op in here if self.bodies[op] for node in self._list_invariant(op, outside, bound)}
            more |= self._find_shared(here, outside)
            if not more:
                return sorted(here, key=self.order.__getitem__)
            here |= self._always((output for node in more for output in node.outputs), available)

    def _list_invariant(self, op: ir.Node, outside: Set[ir.Node], bound: Set[int | None]) -> Iterator[ir.Node]:
        """Nodes that the body of a Loop reads and every iteration would compute anew."""
        for body in self.bodies[op]:
            if body.scope is None:
                continue
            always, rising = self._always(body.results, outside), set(outside)
            for node in sorted(self.reach(body.results, outside), key=self.order.__getitem__):
                if not self.free[node] <= bound:
                    continue
                is_ready = all(v.producer() is None or v.producer() in rising for v in self.operands(node))
                if (node in always and self.total[node] and is_ready) or self._lies_outside(node, body.scope):
                    rising.add(node)
                    yield node

    def _lies_outside(self, node: ir.Node, scope: int) -> bool:
        """Whether the source computes a node outside a body."""
        home = self._home(node)
        return home is not None and not self.flat.encloses(scope, home)

    def _find_shared(self, here: Set[ir.Node], outside: Set[ir.Node]) -> set[ir.Node]:
        """Nodes that several bodies may read, and the source computes once for all."""
        readers: dict[ir.Node, list[ir.Node]] = {}
        for op in here:
            for body in self.bodies[op]:
                for node in self.reach(body.results, outside):
                    readers.setdefault(node, []).append(op)
        return {node for node, ops in readers.items() if len(ops) > 1 and self._encloses(node, ops)}

    def _encloses(self, node: ir.Node, ops: Sequence[ir.Node]) -> bool:
        if has_body(node):
            return True  # there is only one
        home = self._home(node)
        homes = [self._home(op) for op in ops]
        return home is not None and all(h is not None and self.flat.encloses(home, h) for h in homes)

    def _home(self, node: ir.Node) -> int | None:
        """The scope in which the source computes a node, None for one that is not in the source."""
        return next((self.flat.homes[o.name] for o in node.outputs if o.name and o.name in self.flat.homes), None)

    def _always(self, roots: Iterable[ir.Value], outside: Set[ir.Node]) -> set[ir.Node]:
        """The nodes that have to run for values: also those that both branches of an If compute."""
        here = self._closure(roots, outside)
        pending = list(here)
        while pending:
            op = pending.pop()
            if not is_flat_if(op):
                continue
            computed = here | outside
            then, otherwise = (self._always(body.results, computed) for body in self.bodies[op])
            more = then & otherwise
            here |= more
            pending += more
        return here

    def _closure(self, roots: Iterable[ir.Value], outside: Set[ir.Node]) -> set[ir.Node]:
        return self._walk(roots, outside, self.reads.__getitem__)

    def reach(self, roots: Iterable[ir.Value], outside: Set[ir.Node]) -> set[ir.Node]:
        """All nodes that may run for values, those that bodies need included, apart from those outside."""
        return self._walk(roots, outside, self.operands)

    @staticmethod
    def _walk(
        roots: Iterable[ir.Value], outside: Set[ir.Node], operands: Callable[[ir.Node], Iterable[ir.Value]]
    ) -> set[ir.Node]:
        reached: set[ir.Node] = set()
        stack = list(roots)
        while stack:
            producer = stack.pop().producer()
            if producer is not None and producer not in reached and producer not in outside:
                reached.add(producer)
                stack += operands(producer)
        return reached


Group = tuple[ir.Node, ...]
"""A node, or several flat Ifs of one condition that are written as one."""


def nest(result: Model, flat: FlatModel) -> Model:
    """A new model with bodies, of a flat one that computes the same as `flat`."""
    nester = _Nester(result.ir.clone(), flat)
    nester.run()
    return Model(nester.target, result.path)


@dataclass(frozen=True)
class _Scope:
    """A graph that is being written: its values by those of the flat graph, and the values of the graphs around it."""

    values: ChainMap[ir.Value, ir.Value]
    available: Set[ir.Node]
    bound: frozenset[int | None]

    def value(self, flat: ir.Value) -> ir.Value:
        """The value for one of the flat graph."""
        return self.values.get(flat, flat)


class _Nester:
    def __init__(self, target: ir.Model, flat: FlatModel) -> None:
        self.target, self.flat, self.graph = target, flat, target.graph
        self.placement = Placement(target.graph, flat)
        self.taken = {value.name for node in self.graph for value in node.outputs}
        self.taken |= {value.name for value in (*self.graph.inputs, *self.graph.initializers.values())}
        self.given: set[str | None] = {value.name for value in self.graph.inputs}
        self.operators: dict[ir.Graph, ir.Node] = {}

    def run(self) -> None:
        self.graph.remove(self.placement.nodes)
        outputs = list(self.graph.outputs)
        scope = _Scope(ChainMap(), frozenset(), frozenset())
        nodes = self.write(outputs, scope)
        self.graph.extend(nodes)
        for index, (value, declared) in enumerate(zip(outputs, self.flat.source.graph.outputs, strict=True)):
            self.graph.outputs[index] = output = scope.value(value)
            output.shape = declared.shape if output.shape is None else output.shape
        for value in [value for value in self.graph.inputs if FORMAL_KEY in value.metadata_props]:
            self.graph.inputs.remove(value)
        for node in self.placement.nodes:
            if node.graph is None:
                for index in range(len(node.inputs)):
                    node.replace_input_with(index, None)
        for value in list(self.graph.initializers.values()):
            self.move_initializer(value)
        self.target.opset_imports.pop(BODY_DOMAIN, None)

    # --- one graph

    def write(self, roots: Sequence[ir.Value], scope: _Scope) -> list[ir.Node]:
        """The nodes of one graph that returns `roots`. Fills the values of its scope."""
        here = self.placement.nodes_of(roots, scope.available, scope.bound)
        inner = _Scope(scope.values, scope.available | set(here), scope.bound)
        nodes = [self.write_group(group, inner) for group in self.groups(here)]
        names: set[str | None] = {None, ""}
        for node in nodes:
            if node.name in names and node.name:
                node.name = next(n for i in count(2) if (n := f"{node.name}_{i}") not in names)
            names.add(node.name)
        return nodes

    def groups(self, here: Sequence[ir.Node]) -> list[Group]:
        """The nodes of one graph in order, Ifs of one condition together unless one needs the other."""
        inside = set(here)
        needs: dict[ir.Node, set[ir.Node]] = {}
        levels: dict[ir.Node, Mapping[ir.Value, int]] = {}
        members: dict[object, list[ir.Node]] = {}
        for node in here:
            needs[node] = self.needs(node, inside)
            level: dict[ir.Value, int] = {}
            for need in needs[node]:
                level |= {value: max(rank, level.get(value, 0)) for value, rank in levels[need].items()}
            key: object = node
            condition = self.placement.inputs[node][0] if is_flat_if(node) else None
            if condition is not None:
                key = (condition, level.get(condition, 0))
                level[condition] = level.get(condition, 0) + 1
            levels[node] = level
            members.setdefault(key, []).append(node)
        groups = [tuple(nodes) for nodes in members.values()]
        return self.order(groups, needs) or [(node,) for node in here]

    def needs(self, node: ir.Node, inside: Set[ir.Node]) -> set[ir.Node]:
        """The nodes of a graph that another one of it, or a body of that, reads."""
        results = [result for body in self.placement.bodies[node] for result in body.results]
        values = [*self.placement.reads[node], *results]
        for deep in self.placement.reach(results, inside):
            values += self.placement.operands(deep)
        producers = (value.producer() for value in values)
        return {producer for producer in producers if producer is not None and producer in inside} - {node}

    def order(self, groups: Sequence[Group], needs: Mapping[ir.Node, Set[ir.Node]]) -> list[Group]:
        """Groups in an order in which they can run, near their old places; [] if there is none."""
        group_of = {node: group for group in groups for node in group}
        waits = {group: {group_of[need] for node in group for need in needs[node]} - {group} for group in groups}
        users: dict[Group, list[Group]] = {}
        for group, before in waits.items():
            for other in before:
                users.setdefault(other, []).append(group)
        place = {group: max(self.placement.order[node] for node in group) for group in groups}
        ready = [(place[group], group) for group in groups if not waits[group]]
        heapq.heapify(ready)
        ordered: list[Group] = []
        while ready:
            group = heapq.heappop(ready)[1]
            ordered.append(group)
            for user in users.get(group, ()):
                waits[user].discard(group)
                if not waits[user]:
                    heapq.heappush(ready, (place[user], user))
        return ordered if len(ordered) == len(groups) else []

    # --- one node

    def write_group(self, group: Group, scope: _Scope) -> ir.Node:
        first = group[0]
        if is_flat_if(first):
            return self.write_if(group, scope)
        region = region_of(first, self.flat.regions)
        if region is not None:
            body = self.write_body(self.placement.bodies[first][0], scope)
            for output, declared in zip(body.outputs, region.declared, strict=True):
                if output.shape is None:
                    output.type, output.shape = output.type or declared.type, declared.shape
            inputs = [None if v is None else scope.value(v) for v in self.placement.inputs[first][: region.inputs]]
            return self.add(ir.Node(
                "", region.op_type, inputs, [*region.attributes, ir.AttrGraph("body", body)],
                outputs=self.new_values(first.outputs, scope), name=region.name,
            ))  # fmt: skip
        node = self.copy(first, scope) if first.outputs[0].name in self.given else first
        for index, value in enumerate(self.placement.inputs[first]):
            if value is not None:
                node.replace_input_with(index, scope.value(value))
        for graph in body_graphs(node):
            for inner in graph.all_nodes():
                for index, value in enumerate(inner.inputs):
                    if value is not None:
                        inner.replace_input_with(index, scope.value(value))
            for index, value in enumerate(graph.outputs):
                if scope.value(value) is not value:
                    graph.outputs[index] = scope.value(value)
        self.given |= {output.name for output in node.outputs}
        return node

    def write_if(self, group: Group, scope: _Scope) -> ir.Node:
        attributes = []
        for index, attribute in enumerate(("then_branch", "else_branch")):
            results = tuple(r for node in group for r in self.placement.bodies[node][index].results)
            attributes.append(ir.AttrGraph(attribute, self.write_body(Body(attribute, results), scope)))
        condition = self.placement.inputs[group[0]][0]
        assert condition is not None
        flat_outputs = [output for node in group for output in node.outputs]
        names = [self.flat.names[o.name] for o in flat_outputs if o.name and o.name in self.flat.names]
        outputs = self.new_values(flat_outputs, scope)
        name = next(iter(names), group[0].name)
        return self.add(ir.Node("", "If", [scope.value(condition)], attributes, outputs=outputs, name=name))

    def add(self, node: ir.Node) -> ir.Node:
        for graph in body_graphs(node):
            self.operators[graph] = node
        return node

    def copy(self, node: ir.Node, scope: _Scope) -> ir.Node:
        """A node that another graph computes as well."""
        return ir.Node(
            node.domain, node.op_type, node.inputs, list(node.attributes.values()), overload=node.overload,
            outputs=self.new_values(node.outputs, scope), name=node.name, doc_string=node.doc_string,
            metadata_props=dict(node.metadata_props),
        )  # fmt: skip

    def new_values(self, flat: Sequence[ir.Value], scope: _Scope) -> list[ir.Value]:
        """Values of a graph for flat ones, whose names they get unless other graphs have these too."""
        values = []
        for old in flat:
            name = self.fresh(old) if old.name in self.given else old.name
            self.given.add(name)
            values.append(ir.Value(name=name, type=old.type, shape=old.shape, doc_string=old.doc_string))
            scope.values[old] = values[-1]
        return values

    def fresh(self, value: ir.Value) -> str:
        """A new name like that of a value."""
        number = 1
        while (name := f"{value.name}.{number}") in self.taken:
            number += 1
        self.taken.add(name)
        return name

    # --- bodies

    def write_body(self, body: Body, scope: _Scope) -> ir.Graph:
        bound = scope.bound if body.scope is None else scope.bound | {body.scope}
        inner = _Scope(scope.values.new_child(), scope.available, bound)
        formals = self.new_values(body.formals, inner)
        nodes = self.write(body.results, inner)
        graph = ir.Graph(formals, [], nodes=nodes, name=body.attribute)
        for index, result in enumerate(body.results):
            graph.outputs.append(self.result(graph, inner.value(result), body.may_return_formal and not index))
        return graph

    def result(self, graph: ir.Graph, value: ir.Value, is_formal: bool) -> ir.Value:
        """The value as an output of a body: a copy of one that is computed elsewhere or is an output already."""
        is_own = value.producer() is not None and value.graph is graph
        if is_formal or (is_own and not value.is_graph_output()):
            return value
        tensor = value.const_value
        if tensor is not None and value.is_initializer() and tensor.size <= SMALL:
            copy = ir.Value(name=self.fresh(value), type=value.type, shape=value.shape, const_value=tensor)
            graph.register_initializer(copy)
            return copy
        node = ir.node("Identity", [value])
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = self.fresh(value), value.type, value.shape
        graph.append(node)
        return node.outputs[0]

    def move_initializer(self, value: ir.Value) -> None:
        """Put an initializer that only one body reads into that body."""
        graphs = [node.graph for node, _ in value.uses()]
        if not graphs or value.is_graph_output() or value in self.graph.inputs:
            return
        ways = [list(reversed(list(self.graphs_around(graph)))) for graph in graphs]
        target = None
        for level in zip(*ways, strict=False):
            if any(graph is not level[0] for graph in level):
                break
            target = level[0]
        if target is not None and target is not self.graph:
            del self.graph.initializers[value.name or ""]
            target.register_initializer(value)

    def graphs_around(self, graph: ir.Graph | ir.Function | None) -> Iterator[ir.Graph | ir.Function | None]:
        """A graph and those around it; only the main graph for a body that is not written here."""
        while graph is not self.graph and isinstance(graph, ir.Graph) and graph in self.operators:
            yield graph
            graph = self.operators[graph].graph
        yield self.graph


Captors = frozenset[int]
"""The scopes of the regions in which alone a value exists."""


def without_captive_nodes(egraph: EGraph, encoding: Encoding, flat: FlatModel, graph: ir.Graph) -> EGraph:
    """The e-graph of the encoded `graph` without e-nodes that exist in fewer scopes than others of their class.

    Rules may find that a value outside a body equals one that is computed from the arguments of the body: the value
    outside cannot be computed that way.
    """
    if not flat.regions:
        return egraph
    formals = {name: region.scope for region in flat.regions for name in region.formals}
    own: dict[object, int] = {}
    for node in graph:
        region = region_of(node, flat.regions)
        if region is not None:
            own[encoding.terms[encoding.nodes[node]].attributes[0]] = region.scope
    captors: dict[int, Captors] = {}

    def of(node: ENode) -> Captors | None:
        """The captors of an e-node; None while those of an operand are unknown."""
        if node.op == "Var":
            return frozenset({formals[str(node.attributes[0])]} if node.attributes[0] in formals else ())
        if any(child not in captors for child in node.children):
            return None
        everyone = frozenset().union(*(captors[child] for child in node.children))
        return everyone - {own[node.attributes[0]]} if node.op == "Op" and node.attributes[0] in own else everyone

    changes = True
    while changes:
        changes = False
        for owner, class_ in enumerate(egraph.classes):
            best = min((c for node in class_.nodes if (c := of(node)) is not None), key=len, default=None)
            if best is not None and (owner not in captors or len(best) < len(captors[owner])):
                captors[owner] = best
                changes = True

    def freest(owner: int, class_: EClass) -> EClass:
        nodes = tuple(n for n in class_.nodes if (c := of(n)) is not None and c <= captors[owner])
        return replace(class_, nodes=nodes or class_.nodes)

    return replace(egraph, classes=tuple(freest(owner, class_) for owner, class_ in enumerate(egraph.classes)))
