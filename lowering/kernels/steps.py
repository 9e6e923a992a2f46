"""What a compiled model does, step by step: fused kernels, and views of tensors, which move nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from ...engine.summary import VIEWS
from ...extract.partition.layouts.feature_maps import FeatureMaps
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
        kept = {index for index in members if _is_moved(graph, index, set(members), maps)}
        first, rest = _leading(graph, sorted(members), kept)
        rest, last = _trailing(graph, rest, kept)
        yield from (_view(graph, index) for index in first)
        if rest:
            yield Kernel(tuple(rest))
        yield from (_view(graph, index) for index in last)


def _is_moved(graph: OperatorGraph, index: int, members: set[int], maps: Set[int]) -> bool:
    """Whether one end of a view is a feature map of several pixels, and at the other the kernel moves elements."""
    if not _is_view(graph, index):
        return False
    operator = graph.operators[index]
    source, result = operator.inputs[0], operator.outputs[0]
    assert source is not None
    producer = graph.values[source].producer
    before = [producer] if producer in members else []
    after = [user for user in graph.consumers[result] if user in members]
    moves = [graph.operators[other].op in _MOVES for other in (*before, *after)]
    ends = [v for v in (source, result) if v in maps and set(graph.values[v].extent.dimensions[2:]) != {1}]
    return bool(ends) and bool(moves) and all(moves)


def _view(graph: OperatorGraph, index: int) -> View:
    operator = graph.operators[index]
    assert operator.inputs[0] is not None
    return View(operator.inputs[0], operator.outputs[0])


def _is_view(graph: OperatorGraph, index: int) -> bool:
    operator = graph.operators[index]
    if operator.op not in VIEWS or operator.is_opaque or not operator.inputs or operator.inputs[0] is None:
        return False
    source, result = graph.values[operator.inputs[0]].type, graph.values[operator.outputs[0]].type
    return source is not None and result is not None and source.is_static and result.is_static


def _leading(graph: OperatorGraph, members: list[int], kept: Set[int]) -> tuple[list[int], list[int]]:
    """Views of what comes from outside, and the other members."""
    views: list[int] = []
    rest = set(members)
    for index in members:
        source = graph.operators[index].inputs[0] if _is_view(graph, index) and index not in kept else None
        if source is not None and graph.values[source].producer not in rest:
            views.append(index)
            rest.remove(index)
    return views, sorted(rest)


def _trailing(graph: OperatorGraph, members: list[int], kept: Set[int]) -> tuple[list[int], list[int]]:
    """The other members, and views that none of them reads, in the order they run."""
    views: list[int] = []
    rest = set(members)
    for index in reversed(members):
        if (
            _is_view(graph, index)
            and index not in kept
            and rest.isdisjoint(graph.consumers[graph.operators[index].outputs[0]])
        ):
            views.append(index)
            rest.remove(index)
    return sorted(rest), views[::-1]
