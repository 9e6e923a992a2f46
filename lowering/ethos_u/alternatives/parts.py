"""Integers of 32 bits by parts of their rows, so that fewer of them are in memory at a time.

Vela computes whole maps of a Softmax or a LayerNormalization, one operator after the other: its cascades end at
reductions. Each row has its own reductions, so a few rows can go through all the operators before the next ones do.
A product of two maps, too, is by rows of the first: U55 and U65 keep the sums of all the rows that one product has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod

from ..tosa.graph import Graph, Operator
from .edit import Alternative, Chain, Edit, chain_of, data_of
from .orders import COPIES

_BY_ELEMENT = frozenset({
    "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "RESCALE", "TABLE", "CLAMP", "CLZ", "ARITHMETIC_RIGHT_SHIFT",
    "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT",
})  # fmt: skip
_REDUCTIONS = frozenset({"REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN"})
_PRODUCT_PARTS = (2, 4)
_HALVINGS = (3, 2, 4, 1, 5)
"""How often the largest tensor of 32 bits is halved; what helped two encoders most comes first."""


@dataclass(frozen=True)
class _Region:
    """Operators that share integers of more than 8 bits, and compute each of `extent` places along an axis alone."""

    operators: tuple[Operator, ...]
    axis: int
    extent: int
    bytes: int
    """Those of its largest tensor."""


def rows_in_parts(graph: Graph) -> Iterator[Alternative]:
    """Every reduction with what is around it in parts, none of whose tensors takes more than some bytes.

    Of a map of 8 bits that parts read, Vela widens the whole for each part, unless the part is copied first.
    """
    regions = [*_regions(graph)]
    most = max((each.bytes for each in regions), default=0)
    for halving in _HALVINGS:
        limit = max(1, most >> halving)
        if any(min(each.extent, -(-each.bytes // limit)) > 1 for each in regions):
            label = f"sums of 32 bits in parts of {limit} bytes"
            for copies in (True, False):
                make = partial(_split_all, graph, regions, limit, copies=copies)
                yield Alternative(f"{label}, copied" if copies else label, "sums of 32 bits", make)


def _regions(graph: Graph) -> Iterator[_Region]:
    """The groups that have a reduction and an axis to be split along."""
    seen: set[str] = set()
    for start in graph.operators:
        if start.op not in _REDUCTIONS or not _is_wide(graph, start.inputs[0]) or start.output in seen:
            continue
        waiting, found = [start], {start.output: start}
        while waiting:
            operator = waiting.pop()
            near = [graph.producers[name] for name in operator.inputs if _is_wide(graph, name)]
            near += graph.readers[operator.output] if _is_wide(graph, operator.output) else ()
            fresh = [each for each in near if each.output not in found]
            found |= {each.output: each for each in fresh}
            waiting += fresh
        seen |= {*found}
        region = _region_of(graph, [each for each in graph.operators if each.output in found])
        if region is not None:
            yield region


def _is_wide(graph: Graph, name: str) -> bool:
    tensor = graph.tensors[name]
    return tensor.data is None and tensor.dtype in ("int16", "int32") and name in graph.producers


def _region_of(graph: Graph, operators: Sequence[Operator]) -> _Region | None:
    if any(each.op not in _BY_ELEMENT | _REDUCTIONS for each in operators):
        return None
    names = {name for each in operators for name in (*_maps(graph, each), each.output)}
    shapes = [graph.tensors[name].shape for name in names]
    rank = len(shapes[0])
    if any(len(shape) != rank for shape in shapes):
        return None
    extents = [max(shape[axis] for shape in shapes) for axis in range(rank)]
    reduced = {each.attributes["axis"] for each in operators if each.op in _REDUCTIONS}
    axes = [
        axis for axis in range(rank - 1)
        if axis not in reduced and all(shape[axis] in (1, extents[axis]) for shape in shapes)
    ]  # fmt: skip
    if not axes:
        return None
    axis = max(axes, key=lambda each: extents[each])
    if extents[axis] == 1:
        return None
    return _Region(tuple(operators), axis, extents[axis], max(4 * prod(shape) for shape in shapes))


def _maps(graph: Graph, operator: Operator) -> Iterator[str]:
    """The operands that are computed; a RESCALE and a TABLE have one."""
    return (name for name in operator.inputs if graph.tensors[name].data is None)


def _split_all(graph: Graph, regions: Sequence[_Region], limit: int, *, copies: bool) -> Graph | None:
    edit = Edit(graph)
    for region in regions:
        count = min(region.extent, -(-region.bytes // limit))
        if count > 1 and not _split(graph, edit, region, count, copies=copies):
            return None
    return edit.finish()


def _split(graph: Graph, edit: Edit, region: _Region, count: int, *, copies: bool) -> bool:
    """Parts one after the other in the place of the last operator; False if something reads them before."""
    inside = {each.output: each for each in region.operators}
    last = region.operators[-1].output
    results = [
        name for name in inside
        if name in graph.outputs or any(each.output not in inside for each in graph.readers[name])
    ]  # fmt: skip
    order = {each.output: place for place, each in enumerate(graph.operators)}
    outside = (each for name in results for each in graph.readers[name] if each.output not in inside)
    if any(order[each.output] < order[last] for each in outside):
        return False
    if any(graph.tensors[name].shape[region.axis] == 1 for name in results):
        return False
    made: list[Operator] = []
    parts: dict[str, list[str]] = {name: [] for name in results}
    for start, end in pairwise(region.extent * number // count for number in range(count + 1)):
        names: dict[str, str] = {}
        for operator in region.operators:
            for name in operator.inputs:
                if name not in inside and name not in names:
                    names[name] = _part(graph, edit, made, name, region, (start, end), copies=copies)
            shape = list(graph.tensors[operator.output].shape)
            if shape[region.axis] > 1:
                shape[region.axis] = end - start
            names[operator.output] = edit.tensor(operator.output, shape)
            inputs = tuple(names[name] for name in operator.inputs)
            made.append(replace(operator, inputs=inputs, output=names[operator.output]))
        for name in results:
            parts[name].append(names[name])
    for name in inside:
        edit.put(name)
    joined = (Operator("CONCAT", tuple(parts[name]), name, {"axis": region.axis}) for name in results)
    edit.put(last, *made, *joined)
    return True


def _part(
    graph: Graph, edit: Edit, made: list[Operator], name: str, region: _Region, bounds: tuple[int, int], *, copies: bool
) -> str:
    """What a part reads of a tensor from outside: all of it if it is the same for each place."""
    tensor, (start, end) = graph.tensors[name], bounds
    if len(tensor.shape) <= region.axis or tensor.shape[region.axis] == 1 or tensor.dtype == "shape":
        return name
    if tensor.data is not None:
        return edit.constant(name, data_of(graph, name).take(range(start, end), region.axis))
    begin, size = [0] * len(tensor.shape), list(tensor.shape)
    begin[region.axis], size[region.axis] = start, end - start
    part = edit.tensor(name, size)
    made.append(Operator("SLICE", (name, edit.sizes(*begin), edit.sizes(*size)), part))
    if not copies or tensor.dtype != "int8" or size[-1] == 1:
        return part
    copied = edit.tensor(name, size)
    made.append(Operator("CLAMP", (part,), copied, COPIES["CLAMP"]))
    return copied


def products_in_parts(graph: Graph) -> Iterator[Alternative]:
    """All products of two feature maps in parts; each alternative has another number of parts."""
    products = [operator for operator in graph.operators if operator.op == "MATMUL"]
    chains = [chain for chain in (chain_of(graph, each) for each in products) if chain is not None]
    for count in _PRODUCT_PARTS:
        if fitting := [chain for chain in chains if graph.tensors[chain.product.output].shape[1] >= count]:
            label = f"{len(fitting)} products of feature maps in {count} parts"
            yield Alternative(label, "products of feature maps", partial(_split_products, graph, fitting, count))


def _split_products(graph: Graph, chains: Sequence[Chain], count: int) -> Graph:
    edit = Edit(graph)
    for chain in chains:
        left, *others = chain.product.inputs
        batch, rows, depth = graph.tensors[left].shape
        operators = [each for each in (chain.product, chain.rescale, chain.clamp) if each is not None]
        made, parts = [], []
        for start, end in pairwise(rows * number // count for number in range(count + 1)):
            part = edit.tensor(left, (batch, end - start, depth))
            sizes = (edit.sizes(0, start, 0), edit.sizes(batch, end - start, depth))
            made.append(Operator("SLICE", (left, *sizes), part))
            for operator in operators:
                inputs = (part, *(others if operator is chain.product else operator.inputs[1:]))
                part = edit.tensor(operator.output, (batch, end - start, graph.tensors[operator.output].shape[2]))
                made.append(replace(operator, inputs=inputs, output=part))
            parts.append(part)
        for operator in operators:
            edit.put(operator.output)
        edit.put(chain.result, *made, Operator("CONCAT", tuple(parts), chain.result, {"axis": 1}))
    return edit.finish()
