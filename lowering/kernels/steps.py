"""The steps of a compiled model: fused kernels, and views of tensors, which move nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...ir.graph import OperatorGraph
from ...ir.operators import VIEWS
from ...ir.sizes import elements


@dataclass(frozen=True)
class View:
    """The elements of value `source`, read in the shape of value `result`."""

    source: int
    result: int


@dataclass(frozen=True)
class Kernel:
    """Operators that run as one, ascending."""

    members: tuple[int, ...]


@dataclass(frozen=True)
class InPlace:
    """A Concat, Split or Slice whose parts kernels make or read in place."""

    members: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


Step = View | Kernel


def steps(graph: OperatorGraph, groups: Iterable[Sequence[int]]) -> Iterator[Step]:
    """The steps of groups that are given in the order they run: a view by itself moves nothing, others are kernels."""
    return (find_view(graph, members) or Kernel(tuple(sorted(members))) for members in groups)


def find_view(graph: OperatorGraph, members: Sequence[int]) -> View | None:
    """The view between values of as many elements that one operator is; None if there are several, or it is none."""
    operator = graph.operators[members[0]]
    is_view = len(members) == 1 and operator.op in VIEWS and not operator.is_opaque
    if not is_view or not operator.inputs or operator.inputs[0] is None:
        return None
    view = View(operator.inputs[0], operator.outputs[0])
    types = [graph.values[value].type for value in (view.source, view.result)]
    sizes = [None if type_ is None else elements(type_) for type_ in types]
    return view if sizes[0] is not None and sizes[0] == sizes[1] else None
