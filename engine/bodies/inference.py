"""Types of a flat model's values, on which all iterations agree, and branches that can never run.

The values that a Loop hands from one iteration to the next are assumed to keep the shape that they begin with, until
its body returns another one: then the sizes that differ are unknown.

Exporters write an If for an axis that a framework drops only if it has one element. The branches of this If have
different ranks, and the operators behind it take only one of them. A run that takes the other branch ends with an
error. So does one that takes a branch with an operator for other sizes than the model has, such as a branch for another
sampling rate. If one branch of an If cannot run, the other branch is always taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from onnx_ir import serde

from ...ir.sizes import Size, number, parse_size
from ...ir.types import TensorType
from ...support.errors import ModelError
from ..onnx.model import Model
from ..onnx.nodes import BODY_DOMAIN, branches, has_body, is_flat_if, is_standard
from ..onnx.typing import NAMELESS, dtype_of, infer_outputs, type_proto
from ..shapes.inference import Knowledge, infer
from .flatten import FlatModel, Region, drop_unused, flatten, region_of, replace_outputs
from .insertion import Insertion
from .loops import origin, simplify_loops


def resolve_constants(flat: FlatModel, knowledge: Knowledge) -> bool:
    """Replace Ifs of a constant condition by the branch, and Loops that run once by the iteration.

    Changes the flat model. Returns whether there were any.
    """
    changes = False
    for node in list(flat.graph):
        region = region_of(node, flat.regions)
        if is_flat_if(node):
            condition = _element(node.inputs[0], knowledge)
            if condition is not None:
                replace_by_branch(flat, node, 0 if condition else 1)
                changes = True
        elif region is not None and region.op_type == "Loop":
            changes |= _resolve_loop(flat, node, region, knowledge)
    if changes:
        drop_unused(flat)
    return changes


def replace_by_branch(flat: FlatModel, node: ir.Node, branch: int) -> None:
    """Replace an If by its first or second branch; that of a model which was flat before has no scopes."""
    scopes = flat.branches.get(node.outputs[0].name or "")
    if scopes is not None:
        flat.open_scope(scopes[branch])
    _replace(flat, node, branches(node)[branch])


def make_ranges_scalar(flat: FlatModel, knowledge: Knowledge) -> bool:
    """Give every Range scalars: ONNX Runtime takes vectors of one element, too, but only if an If hides their rank.

    Changes the flat model. Returns whether there were any.
    """
    changes = False
    for node in list(flat.graph):
        for index, value in enumerate(node.inputs if node.op_type == "Range" and is_standard(node) else ()):
            type_ = knowledge.types.get(value.name or "") if value is not None else None
            if value is not None and type_ is not None and type_.shape == (1,):
                insertion = Insertion(flat, node)
                node.replace_input_with(index, insertion.reshape(value, insertion.store(np.asarray([], np.int64))))
                changes = True
    return changes


def _element(value: ir.Value | None, knowledge: Knowledge) -> int | None:
    array = None if value is None else knowledge.constants.get(value.name or "")
    return int(array.item()) if array is not None and array.size == 1 else None


def _resolve_loop(flat: FlatModel, node: ir.Node, region: Region, knowledge: Knowledge) -> bool:
    limit, condition = (_element(value, knowledge) for value in node.inputs[:2])
    begins = node.inputs[1] is None or bool(condition)
    states = [value for value in node.inputs[2 : region.inputs] if value is not None]
    results = [value for value in node.inputs[region.inputs :] if value is not None]
    stops = _element(results[0], knowledge) == 0
    never = (condition is not None and not condition) or (limit is not None and limit <= 0)
    if never and len(node.outputs) == region.states:
        _replace(flat, node, states)
        return True
    if never or not begins or not (limit == 1 or (stops and (node.inputs[0] is None or limit is not None))):
        return False
    iteration, going = (Insertion(flat, flat.graph[0]).store(np.asarray(each)) for each in (0, True))
    for formal, value in zip(region.formals, (iteration, going, *states), strict=True):
        flat.inputs[formal].replace_all_uses_with(value, replace_graph_outputs=True)
    flat.open_scope(region.scope)
    rows = [value for value in node.inputs[region.inputs :] if value is not None]  # formals among them are replaced
    scanned = [Insertion(flat, node).add("Unsqueeze", [value], axes=[0]) for value in rows[1 + region.states :]]
    _replace(flat, node, [*rows[1 : 1 + region.states], *scanned])
    return True


def _replace(flat: FlatModel, node: ir.Node, values: Sequence[ir.Value]) -> None:
    """Make values the outputs of a node, which keep their names."""
    for output, value in zip(replace_outputs(node), values, strict=True):
        Insertion(flat, node).replace(output, value)
    flat.graph.remove(node)


Inference = Callable[[FlatModel], Knowledge]


def refute_branches(flat: FlatModel, knowledge: Knowledge, infer: Inference) -> bool:
    """Replace an If by the other branch if one leads to an operator that cannot run.

    Changes the flat model. Returns whether there were any. `infer` infers the types of a flat model that it may change.
    """
    if _refute_invalid_branch(flat, knowledge):
        return True
    candidates = list(_candidates(flat, knowledge))
    for branch in (1, 0) if candidates else ():
        assumed = flat.copy()
        copies = dict(zip(flat.graph, assumed.graph, strict=True))
        for node in candidates:
            replace_by_branch(assumed, copies[node], branch)
        try:
            consequences = infer(assumed)
        except ModelError:
            continue
        refuted = [node for node in candidates if _fails(flat, node, candidates, knowledge, consequences)]
        for node in refuted:
            replace_by_branch(flat, node, 1 - branch)
        if refuted:
            return True
    return False


def _refute_invalid_branch(flat: FlatModel, knowledge: Knowledge) -> bool:
    """Replace an If one of whose branches has an operator that cannot run, if there is any, by the other branch."""
    ifs = ((node, flat.branches.get(node.outputs[0].name or "")) for node in filter(is_flat_if, flat.graph))
    choices = [(node, pair) for node, pair in ifs if pair is not None]
    scopes = {scope for _, pair in choices for scope in pair}
    homes = ((_home(flat, node), node) for node in flat.graph)
    failing = {home for home, node in homes if home in scopes and _is_invalid(node, knowledge, flat.model.opset)}
    for node, pair in choices:
        fails = [scope in failing for scope in pair]
        if fails.count(True) == 1:
            replace_by_branch(flat, node, fails.index(False))
            return True
    return False


def _candidates(flat: FlatModel, knowledge: Knowledge) -> Iterator[ir.Node]:
    """Ifs whose branches have different ranks, none of them computed from another."""
    dependent: set[ir.Value] = set()
    for node in flat.graph:
        is_dependent = any(value in dependent for value in node.inputs)
        if is_flat_if(node) and not is_dependent and _has_two_ranks(node, knowledge):
            is_dependent = True
            yield node
        if is_dependent:
            dependent.update(node.outputs)


def _has_two_ranks(node: ir.Node, knowledge: Knowledge) -> bool:
    for pair in zip(*branches(node), strict=True):
        types = [knowledge.types.get(value.name or "") for value in pair]
        if len({len(t.shape) for t in types if t is not None and t.shape is not None}) == 2:
            return True
    return False


def _fails(
    flat: FlatModel, branch: ir.Node, candidates: list[ir.Node], knowledge: Knowledge, consequences: Knowledge
) -> bool:
    """Whether an operator that runs whenever an If does, and reads no other candidate, cannot run."""
    home = _home(flat, branch)
    others = {output for node in candidates if node is not branch for output in node.outputs}
    dependent = set(branch.outputs)
    for node in flat.graph:
        if any(value in others for value in node.inputs):
            others.update(node.outputs)
        elif any(value in dependent for value in node.inputs):
            dependent.update(node.outputs)
            here = _home(flat, node)
            runs = home is not None and here is not None and flat.encloses(here, home)
            if runs and _is_invalid(node, consequences, flat.model.opset):
                return not _is_invalid(node, knowledge, flat.model.opset)
    return False


def _home(flat: FlatModel, node: ir.Node) -> int | None:
    return next((flat.homes[o.name] for o in node.outputs if o.name and o.name in flat.homes), None)


def _is_invalid(node: ir.Node, knowledge: Knowledge, opset: int) -> bool:
    """Whether ONNX refuses the types of the operands of a node, all of known rank."""
    names = [value.name for value in node.inputs if value is not None and value.name]
    types = [knowledge.types.get(name) for name in names]
    protos = {n: type_proto(t) for n, t in zip(names, types, strict=True) if t is not None and t.shape is not None}
    if not is_standard(node) or len(protos) < len(set(names)):
        return False
    return infer_outputs(serde.serialize_node(node), protos, knowledge.constants, opset) is None


Sizes = tuple[int | str | None, ...] | None
"""A shape with None for unknown sizes; None for an unknown rank."""


def infer_flat(flat: FlatModel) -> Knowledge:
    """Infer types and constants, and remove all that they decide: Ifs of a constant condition, Loops that run at most
    once, and branches with which no run ends well. The flat model is still under construction, and changed in place.

    Raises ModelError if the ONNX checker refuses the model.
    """
    types = _infer_resolved(flat)
    while refute_branches(flat, types.knowledge, lambda assumed: _infer_resolved(assumed).knowledge):
        types = _infer_resolved(flat)
    if make_ranges_scalar(flat, types.knowledge):
        types = _infer_resolved(flat)
    types.annotate()
    return types.knowledge


def _infer_resolved(flat: FlatModel) -> _Types:
    simplify_loops(flat)
    types = _Types(flat)
    while resolve_constants(flat, types.infer()):
        simplify_loops(flat)
        types = _Types(flat)
    return types


def infer_form(model: Model) -> tuple[Model, Knowledge]:
    """The model itself, or the flat form of one with bodies, with the types of its values.

    A flat model may hold bodies, too: those that `flatten` does not change.
    """
    is_flat = any(node.domain == BODY_DOMAIN for node in model.graph)
    if not is_flat and any(has_body(node) for node in model.graph):
        with suppress(ModelError):
            return flatten(model).model, infer_flat(flatten(model))
    return model, infer(model)


@dataclass
class _Types:
    flat: FlatModel
    states: dict[str, Sizes] = field(default_factory=dict)
    is_complete: bool = False
    """Whether ranks that are still unknown will stay so."""

    def infer(self) -> Knowledge:
        """Repeat the inference until its results for bodies agree with its assumptions.

        A rank may be unknown only because the states of a region around it, or within, have not been declared yet.
        """
        for value in self.flat.graph.inputs:
            if value.name in self.flat.states:
                value.shape = None
        self.type_formals()
        while True:
            knowledge = infer(self.flat.model)
            self.knowledge = knowledge
            if self.update():
                continue
            if self.is_complete:
                return knowledge
            self.is_complete = True
            if not self.update():
                return knowledge

    def type_formals(self) -> None:
        """Give a value that a body declares without a type, as ONNX allows, the type that its state begins with."""
        for node in self.flat.graph:
            region = region_of(node, self.flat.regions)
            if region is not None:
                first, formals = region.first_state, [self.flat.inputs[name] for name in region.formals]
                counters = (ir.TensorType(ir.DataType.INT64), ir.TensorType(ir.DataType.BOOL))  # of a Loop
                begins = (None if begin is None else begin.type for begin in node.inputs[first:])
                for type_, formal in zip((*counters[:first], *begins), formals, strict=False):
                    formal.type = formal.type or type_

    def annotate(self) -> None:
        """Write known types to values, for `nest` asks which operators can fail."""
        for value in (output for node in self.flat.graph for output in node.outputs):
            type_ = self.type_of(value)
            if type_ is not None and type_.is_static:
                self.declare(value, type_.dtype, type_.shape)

    def update(self) -> bool:
        """Declare the types of the values that enter and leave bodies. Returns whether any was not declared before."""
        changes = False
        for node in self.flat.graph:
            region = region_of(node, self.flat.regions)
            if region is not None:
                changes |= self.update_region(node, region)
        return changes

    def update_region(self, node: ir.Node, region: Region) -> bool:
        first, count = region.first_state, region.states
        initial = node.inputs[first : first + count]
        results = node.inputs[region.inputs :]
        returned = results[region.first_result : region.first_result + count]
        formals = [self.flat.inputs[name] for name in region.formals]
        changes = False
        for begin, end, formal, output in zip(
            initial, returned, formals[first:], node.outputs[:count], strict=False
        ):
            if begin is None or self.dtype([begin]) is None:
                continue
            name = formal.name or ""
            candidates = [self.sizes(begin)]
            candidates += [self.states[name], self.sizes(end, without=region)] if name in self.states else []
            if None in candidates and not self.is_complete:
                continue
            self.states[name] = _merge(candidates)
            changes |= self.declare(formal, self.dtype([begin]), self.states[name])
            changes |= self.declare(output, self.dtype([begin]), self.states[name])
        axes = _axes(region, "scan_input_axes", region.scan_inputs)
        length = self.length(node, region)
        for value, formal, axis in zip(node.inputs[count : region.inputs], formals[count:], axes, strict=False):
            sizes = self.sizes(value) if region.scan_inputs else None
            if sizes is not None:
                length = sizes[axis]
                sizes = tuple(s for place, s in enumerate(sizes) if place != axis % len(sizes))
                changes |= self.declare(formal, self.dtype([value]), sizes)
        scanned = results[region.first_result + count :]
        axes = _axes(region, "scan_output_axes", len(scanned))
        for output, value, axis in zip(node.outputs[count:], scanned, axes, strict=True):
            sizes = self.sizes(value, without=region)
            if sizes is not None:
                place = axis % (len(sizes) + 1)
                sizes = (*sizes[:place], length, *sizes[place:])
            changes |= self.declare(output, self.dtype([value]), sizes)
        return changes

    def length(self, node: ir.Node, region: Region) -> int | str | None:
        """How often a Loop runs, if its condition never changes and its trips follow from sizes; else None."""
        if region.op_type != "Loop" or not self.always_goes_on(node, region) or node.inputs[0] is None:
            return None
        trips = find_trips(self.knowledge, node.inputs[0].name or "")
        length = None if trips is None else self.knowledge.symbolic.dimension(trips)
        return None if length == NAMELESS or (isinstance(length, str) and _depends_on(length, self.formals)) else length

    def always_goes_on(self, node: ir.Node, region: Region) -> bool:
        """Whether the condition of a Loop is true before it and after each iteration."""
        before, after = node.inputs[1], node.inputs[region.inputs]
        kept = after is not None and origin(after).name == region.formals[1]
        return (before is None or self.is_true(before)) and (kept or self.is_true(after))

    def is_true(self, value: ir.Value | None) -> bool:
        """Whether a value is known to be true."""
        constant = None if value is None else self.knowledge.constants.get(value.name or "")
        return constant is not None and bool(constant.all())

    @property
    def formals(self) -> tuple[str, ...]:
        """The operands of all iterations."""
        return tuple(name for region in self.flat.regions for name in region.formals)

    def type_of(self, value: ir.Value | None) -> TensorType | None:
        return None if value is None else self.knowledge.types.get(value.name or "")

    def dtype(self, values: Iterable[ir.Value | None]) -> str | None:
        """The element type of values; None if it is unknown or they differ."""
        dtypes = {None if type_ is None else type_.dtype for type_ in map(self.type_of, values)}
        return dtypes.pop() if len(dtypes) == 1 else None

    def sizes(self, value: ir.Value | None, without: Region | None = None) -> Sizes:
        """The shape of a value; the sizes of an iteration's operands mean nothing outside its region."""
        type_ = self.type_of(value)
        if type_ is None or type_.shape is None:
            return None
        inner = without.formals if without is not None else ()
        return tuple(
            d if isinstance(d, int) or (d in self.knowledge.symbols and not _depends_on(d, inner)) else None
            for d in type_.shape
        )

    def declare(self, value: ir.Value, dtype: str | None, sizes: Sizes) -> bool:
        """Give a value a type. Returns whether it had another one."""
        if dtype is None:
            return False
        shape = None if sizes is None else ir.Shape(sizes)
        if value.dtype == dtype_of(dtype) and value.shape == shape:
            return False
        value.type, value.shape = ir.TensorType(dtype_of(dtype)), shape
        return True


def find_trips(knowledge: Knowledge, name: str) -> Size | None:
    """How often a Loop runs at most whose limit has this name; None if that depends on more than sizes."""
    constant = knowledge.constants.get(name)
    if constant is not None:
        return number(max(0, int(constant.item()))) if constant.size == 1 else None
    content = knowledge.symbolic.contents.get(name)
    trips = content.item() if content is not None and content.size == 1 else None
    is_count = isinstance(trips, Size) and knowledge.symbolic.declared.bounds.is_at_least(trips, 0)
    return trips if is_count else None


def _depends_on(dimension: str, formals: Sequence[str]) -> bool:
    """Whether a size follows from one of an iteration's operands: these are called FORMAL.AXIS."""
    size = parse_size(dimension)
    names = {dimension} if size is None else {dimension, *size.names()}
    return any(name.rpartition(".")[0] in formals for name in names)


def _axes(region: Region, name: str, count: int) -> Sequence[int]:
    given = next((a.as_ints() for a in region.attributes if a.name == name), ())
    return given or (0,) * count


def _merge(shapes: Sequence[Sizes]) -> Sizes:
    """The dimensions that shapes have in common."""
    ranked = [shape for shape in shapes if shape is not None]
    if len(ranked) < len(shapes) or len({len(shape) for shape in ranked}) != 1:
        return None
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*ranked, strict=True))
