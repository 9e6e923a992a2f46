"""One graph as nested graphs: the way back from `flatten`.

A value is computed where it is needed: in the graph that reads it or, if several do, in the innermost one around them
that needs it whatever happens. What both branches of an If compute is thus computed before it. What no iteration of a
Loop changes is computed before the Loop if it was so in the source, or cannot fail. Of two graphs that may need a
value, but need not, each computes it by itself, unless the source computes it for both.
"""

from __future__ import annotations

import heapq
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count

import onnx_ir as ir

from ..onnx.model import Model
from ..onnx.node_order import body_graphs
from ..onnx.nodes import BODY_DOMAIN, FORMAL_KEY, is_flat_if
from ..shapes.inference import SMALL
from .flatten import FlatModel, region_of
from .placement import Body, Placement

Group = tuple[ir.Node, ...]
"""A node, or several flat Ifs of one condition that are written as one."""


def nest(result: Model, flat: FlatModel) -> Model:
    """A new model with bodies, of a flat one that computes the same as `flat`."""
    nester = _Nester(result.ir.clone(), flat)
    nester.run()
    return Model(nester.target, result.path)


@dataclass(frozen=True)
class _Scope:
    """A graph that is being written: its values by those of the flat graph, and what the graphs around it have."""

    values: ChainMap[ir.Value, ir.Value]
    available: Set[ir.Node]
    bound: frozenset[int | None]

    def value(self, flat: ir.Value) -> ir.Value:
        """The value in the place of one of the flat graph."""
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
        """Groups in an order in which they can run, near their old places; [] where there is none."""
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
        """Values of a graph in the place of flat ones, whose names they have unless other graphs have these too."""
        values = []
        for old in flat:
            name = self.fresh(old) if old.name in self.given else old.name
            self.given.add(name)
            values.append(ir.Value(name=name, type=old.type, shape=old.shape, doc_string=old.doc_string))
            scope.values[old] = values[-1]
        return values

    def fresh(self, value: ir.Value) -> str:
        """A name that nothing has, like that of a value."""
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
        """A graph and those around it; nothing but the main graph for a body that is not written here."""
        while graph is not self.graph and isinstance(graph, ir.Graph) and graph in self.operators:
            yield graph
            graph = self.operators[graph].graph
        yield self.graph
