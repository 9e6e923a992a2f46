"""Nested graphs as one: ``Model -> FlatModel``, so that rules see bodies as they see the main graph.

The nodes of all bodies move into the main graph. An If becomes ``If(condition, then..., else...)`` of the domain
`BODY_DOMAIN`, an operator that computes only the operands that it returns. A Loop or Scan becomes an operator of that
domain whose further operands are the values that its body returns; the arguments of the body, its formals, are
inputs of the flat graph. `nest` is the way back: it computes each value where it is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from ...support.errors import ModelError
from ..onnx.model import Model, first_line
from ..onnx.nodes import BODY_DOMAIN, FORMAL_KEY, is_standard

_REGION = "region"
"""The attribute of a flat Loop or Scan that holds its number."""
_SCAN_OPSET = 9
"""The first opset of Scan as it is today; before, it had another meaning."""
MAIN = 0
"""The scope of the main graph. Each body has a number of its own."""


@dataclass(frozen=True)
class Region:
    """Facts about a Loop or Scan that the flat node does not have.

    `attributes` are its own without the body; `formals` the names of the inputs of its body, `inputs` the number of
    operands before those that the body returns, `scope` that of its body. `declared` are values of the types that the
    source declares for the results of the body: the runtime takes from there the shape of a result of no iterations.
    """

    op_type: str
    name: str | None
    attributes: tuple[ir.Attr, ...]
    formals: tuple[str, ...]
    inputs: int
    scope: int
    declared: tuple[ir.Value, ...] = ()

    @property
    def scan_inputs(self) -> int:
        """How many formals are slices of inputs; a Loop has none."""
        return next((a.as_int() for a in self.attributes if a.name == "num_scan_inputs"), 0)

    @property
    def states(self) -> int:
        """How many values go from one iteration to the next."""
        return self.inputs - (2 if self.op_type == "Loop" else self.scan_inputs)

    @property
    def first_state(self) -> int:
        """The place of the first state among inputs and formals; among the results of a Loop's body, it is 1 less."""
        return 2 if self.op_type == "Loop" else 0

    @property
    def first_result(self) -> int:
        """The place of the first state among the values that the body returns."""
        return 1 if self.op_type == "Loop" else 0


@dataclass
class FlatModel:
    """A model without bodies, except those of operators that are not known here.

    `source` is the model with its bodies. `parents` gives the scope around each scope, `homes` the scope in which the
    source computes a value, `names` the names of the Ifs by their outputs, `branches` the scopes of their branches.
    """

    source: Model
    model: Model
    regions: list[Region]
    parents: dict[int, int]
    homes: dict[str, int]
    names: Mapping[str, str]
    branches: Mapping[str, tuple[int, int]]
    made: int = 0

    @property
    def graph(self) -> ir.Graph:
        """The flat graph."""
        return self.model.graph

    @cached_property
    def inputs(self) -> Mapping[str, ir.Value]:
        """The inputs of the flat graph by name."""
        return {value.name or "": value for value in self.graph.inputs}

    @property
    def states(self) -> frozenset[str]:
        """The formals that one iteration hands to the next."""
        return frozenset(n for r in self.regions for n in r.formals[r.first_state : r.first_state + r.states])

    def copy(self) -> FlatModel:
        """A flat model that can be changed without this one."""
        model = Model(self.model.ir.clone(), self.model.path)
        return replace(
            self, model=model, regions=list(self.regions), parents=dict(self.parents), homes=dict(self.homes)
        )

    def open_scope(self, scope: int) -> None:
        """Make the nodes of a scope part of the one around it: its body always runs, and once."""
        outer = self.parents[scope]
        self.homes |= {name: outer for name, home in self.homes.items() if home == scope}
        self.parents |= {inner: outer for inner, parent in self.parents.items() if parent == scope}

    def fresh(self, stem: str) -> str:
        """A name that nothing in the flat graph has."""
        self.made += 1
        return f"eqfuse.body/{stem}.{self.made}"

    def encloses(self, outer: int, inner: int) -> bool:
        """Whether a scope is another one or lies around it."""
        while inner != outer and inner != MAIN:
            inner = self.parents[inner]
        return inner == outer


def region_of(node: ir.Node, regions: Sequence[Region]) -> Region | None:
    """The region of a flat Loop or Scan; None for other nodes."""
    if node.domain != BODY_DOMAIN or _REGION not in node.attributes:
        return None
    return regions[node.attributes.get_int(_REGION, 0)]


def make_region(number: int, region: Region, inputs: Sequence[ir.Value | None], outputs: Sequence[ir.Value]) -> ir.Node:
    """A flat Loop or Scan."""
    attributes = [ir.AttrInt64(_REGION, number)]
    return ir.Node(BODY_DOMAIN, region.op_type, inputs, attributes, outputs=outputs, name=region.name)


def drop_unused(flat: FlatModel) -> None:
    """Remove nodes that no output needs, and formals of regions that are gone."""
    RemoveUnusedNodesPass()(flat.model.ir)
    regions = [region_of(node, flat.regions) for node in flat.graph]
    formals = {name for region in regions if region is not None for name in region.formals}
    for value in list(flat.graph.inputs):
        if FORMAL_KEY in value.metadata_props and value.name not in formals:
            flat.graph.inputs.remove(value)


def flatten(model: Model, regions: bool = True, kept: Collection[str] = ()) -> FlatModel:
    """The model without its bodies, or with those of Loops and Scans if `regions` is false, and of the Ifs of which
    an output is `kept`.

    Raises ModelError if these are nested too deep, or read unknown values.
    """
    try:
        copy = model.ir.clone()
        _rename_values(copy.graph)
        flattener = _Flattener(copy, regions, kept)
        flattener.run()
    except RuntimeError as error:  # onnx-ir's own for values out of scope; too deep a recursion is one as well
        raise ModelError(f"{model.label}: bodies cannot be read: {first_line(error)}") from None
    copy.opset_imports[BODY_DOMAIN] = 1
    return FlatModel(
        model,
        Model(copy, model.path, lowest=model.lowest),
        flattener.regions,
        flattener.parents,
        flattener.homes,
        flattener.names,
        flattener.branches,
    )


class _Flattener:
    def __init__(self, model: ir.Model, takes_regions: bool, kept: Collection[str]) -> None:
        self.graph, self.takes_regions, self.kept = model.graph, takes_regions, kept
        self.opset = Model(model).opset
        self.regions: list[Region] = []
        self.parents: dict[int, int] = {}
        self.homes: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.branches: dict[str, tuple[int, int]] = {}

    def run(self) -> None:
        nodes = list(self.graph)
        self.graph.remove(nodes)
        self.graph.extend(list(self.flat_nodes(nodes, MAIN)))

    def flat_nodes(self, nodes: Sequence[ir.Node], scope: int) -> Iterator[ir.Node]:
        """The nodes of a graph, those of bodies before the operator that runs them."""
        for node in nodes:
            if not is_standard(node) or not self.fits_bodies(node):
                yield self.at_home(node, scope)
            elif node.op_type == "If":
                yield from self.flat_if(node, scope)
            else:
                yield from self.flat_region(node, scope)

    def fits_bodies(self, node: ir.Node) -> bool:
        """Whether an If, Loop or Scan has as many operands and outputs as its bodies take and return."""
        if node.op_type != "If" and not self.takes_regions:
            return False
        if any(output.name in self.kept for output in node.outputs):
            return False
        names = ("then_branch", "else_branch") if node.op_type == "If" else ("body",)
        graphs = [node.attributes[name] for name in names if name in node.attributes]
        if len(graphs) < len(names) or any(graph.type != ir.AttributeType.GRAPH for graph in graphs):
            return False
        bodies, outputs = [graph.as_graph() for graph in graphs], len(node.outputs)
        if node.op_type == "If":
            return len(node.inputs) == 1 and all(len(b.outputs) == outputs and not b.inputs for b in bodies)
        takes, returns = len(bodies[0].inputs), len(bodies[0].outputs)
        if node.op_type == "Loop":
            return takes == max(2, len(node.inputs)) and takes - 2 <= outputs == returns - 1
        count = node.attributes.get("num_scan_inputs")
        scanned = count.as_int() if count is not None and count.type == ir.AttributeType.INT else takes + 1
        is_scan = node.op_type == "Scan" and self.opset >= _SCAN_OPSET
        return is_scan and takes == len(node.inputs) and 0 <= takes - scanned <= outputs == returns

    def flat_if(self, node: ir.Node, scope: int) -> Iterator[ir.Node]:
        results: list[ir.Value | None] = [node.inputs[0]]
        scopes = (self.enter(scope), self.enter(scope))
        for name, inner in zip(("then_branch", "else_branch"), scopes, strict=True):
            results += yield from self.take_body(node.attributes[name].as_graph(), inner)
        outputs = replace_outputs(node)
        self.branches |= {output.name: scopes for output in outputs if output.name}
        if node.name:
            self.names |= {output.name: node.name for output in outputs if output.name}
        yield self.at_home(ir.Node(BODY_DOMAIN, "If", results, outputs=outputs, name=node.name), scope)

    def flat_region(self, node: ir.Node, scope: int) -> Iterator[ir.Node]:
        body = node.attributes["body"].as_graph()
        inner = self.enter(scope)
        formals = [self.formal(value, inner) for value in list(body.inputs)]
        results = yield from self.take_body(body, inner)
        self.graph.inputs.extend(formals)
        missing = max(0, 2 - len(node.inputs)) if node.op_type == "Loop" else 0
        inputs = [*node.inputs, *[None] * missing]
        attributes = tuple(a for a in node.attributes.values() if a.name != "body")
        names = tuple(formal.name or "" for formal in formals)
        declared = tuple(ir.Value(type=value.type, shape=value.shape) for value in results)
        region = Region(node.op_type, node.name, attributes, names, len(inputs), inner, declared)
        self.regions.append(region)
        flat = make_region(len(self.regions) - 1, region, [*inputs, *results], replace_outputs(node))
        yield self.at_home(flat, scope)

    def formal(self, value: ir.Value, scope: int) -> ir.Value:
        """An input of the flat graph in the place of an input of a body."""
        formal = ir.Value(name=value.name, type=value.type, shape=value.shape)
        formal.metadata_props[FORMAL_KEY] = ""
        value.replace_all_uses_with(formal, replace_graph_outputs=True)
        self.homes[formal.name or ""] = scope
        return formal

    def take_body(self, body: ir.Graph, scope: int) -> Generator[ir.Node, None, list[ir.Value]]:
        """The nodes of a body; returns the values that it returns."""
        nodes = list(body)
        body.remove(nodes)
        yield from self.flat_nodes(nodes, scope)
        results = list(body.outputs)
        body.outputs.clear()
        for name, value in list(body.initializers.items()):
            del body.initializers[name]
            self.graph.register_initializer(value)
            self.homes[name] = scope
        return results

    def enter(self, scope: int) -> int:
        """A new scope within another."""
        inner = len(self.parents) + 1
        self.parents[inner] = scope
        return inner

    def at_home(self, node: ir.Node, scope: int) -> ir.Node:
        self.homes |= {output.name: scope for output in node.outputs if output.name}
        return node


def _rename_values(graph: ir.Graph) -> None:
    """Give values of bodies names that no other value has: branches may use the same ones."""
    taken = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    taken |= {output.name for node in graph for output in node.outputs}
    for body in graph.subgraphs():
        outputs = (output for node in body for output in node.outputs)
        for value in (*body.inputs, *list(body.initializers.values()), *outputs):
            if value.name in taken and value.name:
                value.name = next(name for i in count(2) if (name := f"{value.name}_{i}") not in taken)
            taken.add(value.name)


def replace_outputs(node: ir.Node) -> list[ir.Value]:
    """New values in the places of the outputs of a node, which reads nothing from then on."""
    outputs = []
    for old in node.outputs:
        new = ir.Value(name=old.name, type=old.type, shape=old.shape, doc_string=old.doc_string)
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        outputs.append(new)
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)
    return outputs
