"""The steps of a compiled model: fused kernels, and views of tensors, which move nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from ...engine.summary import VIEWS
from ...extract.partition.feature_maps import FeatureMaps
from ...ir.graph import OperatorGraph

_MOVES = VIEWS | {"Transpose", "Slice", "Split", "Concat"}


@dataclass(frozen=True)
class View:
    """The elements of value `source`, read in the shape of value `result`."""

    source: int
    result: int


@dataclass(frozen=True)
class Kernel:
    """Operators that run as one, ascending."""

    members: tuple[int, ...]


Step = View | Kernel


def steps(graph: OperatorGraph, kernels: Iterable[Sequence[int]]) -> Iterator[Step]:
    """The steps of kernels that are given in the order they run.

    Views at the border of a kernel are steps of their own: in the kernel they would copy, between kernels they do not.
    But a view of a feature map that the kernel moves anyway stays in it, for the map has its channels last then.
    """
    maps = FeatureMaps(graph).values
    for members in kernels:
        views = {i: v for i in members if (v := _find_view(graph, i)) and not _moves_map(graph, v, set(members), maps)}
        rest, first, last = set(members), [], []
        for index in sorted(members):  # views of values from outside
            if index in views and graph.values[views[index].source].producer not in rest:
                first.append(index)
                rest.remove(index)
        for index in sorted(rest, reverse=True):  # views that no other member reads
            if index in views and rest.isdisjoint(graph.consumers[views[index].result]):
                last.append(index)
                rest.remove(index)
        yield from (views[index] for index in first)
        if rest:
            yield Kernel(tuple(sorted(rest)))
        yield from (views[index] for index in reversed(last))


def _moves_map(graph: OperatorGraph, view: View, members: set[int], maps: Set[int]) -> bool:
    """Whether one end of a view is a feature map of several pixels, and at the other the kernel moves elements."""
    producer = graph.values[view.source].producer
    before = [producer] if producer in members else []
    after = [user for user in graph.consumers[view.result] if user in members]
    moves = [graph.operators[other].op in _MOVES for other in (*before, *after)]
    ends = (v for v in (view.source, view.result) if v in maps)
    return bool(moves) and all(moves) and any(set(graph.values[v].extent.dimensions[2:]) != {1} for v in ends)


def _find_view(graph: OperatorGraph, index: int) -> View | None:
    """The operator as a view between values of static shapes; None where it is none."""
    operator = graph.operators[index]
    if operator.op not in VIEWS or operator.is_opaque or not operator.inputs or operator.inputs[0] is None:
        return None
    view = View(operator.inputs[0], operator.outputs[0])
    types = [graph.values[value].type for value in (view.source, view.result)]
    return view if all(type_ is not None and type_.is_static for type_ in types) else None
