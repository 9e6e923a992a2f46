"""The index maps of the operators of a graph."""

from __future__ import annotations

from ..graph import Operator, OperatorGraph
from ..index_maps import IndexMaps, OperatorCall, Shape, index_maps
from . import SCHEMAS

_PRIMES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093, 10099, 10103)
"""The sizes for symbolic dimensions: equal names get equal sizes, and no size is a product of others."""


def index_maps_of(graph: OperatorGraph, operator: Operator, number: int = 0) -> IndexMaps | None:
    """The index maps of result `number` of an operator; None if they or the shapes are not known."""
    schema = SCHEMAS.get(operator.op)
    if schema is None or schema.index_maps is None or operator.is_opaque:
        return None
    sizes: dict[str, int] = {}
    operands: list[Shape | None] = []
    for value in operator.inputs:
        operands.append(None if value is None else _shape(graph, value, sizes))
        if value is not None and operands[-1] is None:
            return None
    results = tuple(shape for v in operator.outputs if (shape := _shape(graph, v, sizes)) is not None)
    if not results or len(results) < len(operator.outputs):
        return None
    return index_maps(schema.index_maps, OperatorCall(operator.attributes, tuple(operands), results, number))


def _shape(graph: OperatorGraph, value: int, sizes: dict[str, int]) -> Shape | None:
    type_ = graph.values[value].type
    if type_ is None or type_.shape is None:
        return None
    return tuple(
        d if isinstance(d, int) else sizes.setdefault(d, _PRIMES[len(sizes) % len(_PRIMES)]) for d in type_.shape
    )
