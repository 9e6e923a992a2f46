"""Which values of a flat graph each graph computes, and which are left to the bodies within."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

import onnx_ir as ir

from ..onnx.node_order import body_graphs
from ..onnx.nodes import branches, has_body, is_flat_if
from .flatten import FlatModel, region_of
from .totality import is_total


@dataclass(frozen=True)
class Body:
    """A body to be written: the attribute that holds it and the values that it returns.

    `scope` is that of the region in the source, None for a branch of an If; `formals` are what it is called with.
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
        """What a node depends on, and whether it can run anywhere."""
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
        """What a node reads, and what its bodies return."""
        return (*self.reads[node], *(result for body in self.bodies[node] for result in body.results))

    def nodes_of(self, roots: Iterable[ir.Value], available: Set[ir.Node], bound: Set[int | None]) -> list[ir.Node]:
        """The nodes that a graph computes to return `roots`, in order; those around it have computed the `available`.

        `bound` are the scopes of the regions around it, in whose formals it may be.
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
        """What the body of a Loop reads and every iteration would compute anew."""
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
        """What several bodies may read, and the source computes once for all."""
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
        """The nodes that have to run for values: also what both branches of an If compute."""
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
