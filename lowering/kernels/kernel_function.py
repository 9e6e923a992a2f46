"""One kernel, operators that run together, as one function of TVM's tensor IR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from ...ir.graph import OperatorGraph
from ..compute import Immediate, Source, compute


@dataclass(frozen=True)
class KernelFunction:
    """A function of buffers: first those of the values `inputs`, then those of `outputs`.

    Both are indices of the graph's values. Inputs are what members read from outside, constants too; outputs are what
    others read, or whoever runs the graph.
    """

    prim_func: tirx.PrimFunc
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def kernel_function(
    graph: OperatorGraph,
    members: Iterable[int],
    name: str,
    constants: Mapping[int, np.ndarray[Any, Any]] | None = None,
) -> KernelFunction:
    """The members (operators of `graph`) as one unscheduled function with the symbol `name`.

    `constants` are values known by now; those of one element are written into the code and are no inputs.
    Blocks are named after operator and node, and carry the attributes that `lowering.compute` describes.
    Raises NotLowered where a member has no lowering.
    """
    ordered = sorted(members)
    outside, leaving = outer_values(graph, ordered), results(graph, ordered)
    immediates = {v: Immediate.of(a) for v, a in (constants or {}).items() if v in outside and a.size == 1}
    inputs = tuple(v for v in outside if v not in immediates)
    known: dict[int, Source] = {**immediates, **{v: _placeholder(graph, v) for v in inputs}}
    for index in ordered:
        operator = graph.operators[index]
        sources = [None if v is None else known[v] for v in operator.inputs]
        known.update(zip(operator.outputs, compute(operator, graph, sources), strict=False))
    function = te.create_prim_func([known[v] for v in (*inputs, *leaving)])
    return KernelFunction(function.with_attr("global_symbol", name), inputs, leaving)


def outer_values(graph: OperatorGraph, members: Iterable[int]) -> tuple[int, ...]:
    """Values that members read and none of them makes, in the order they are read first."""
    operators = [graph.operators[m] for m in members]
    made = {v for operator in operators for v in operator.outputs}
    read = (v for operator in operators for v in operator.inputs if v is not None and v not in made)
    return tuple(dict.fromkeys(read))


def results(graph: OperatorGraph, members: Iterable[int]) -> tuple[int, ...]:
    """Values that members make and others read, or whoever runs the graph."""
    inside = set(members)
    made = (v for m in sorted(inside) for v in graph.operators[m].outputs)
    return tuple(v for v in made if graph.values[v].is_output or not inside.issuperset(graph.consumers[v]))


def _placeholder(graph: OperatorGraph, value: int) -> te.Tensor:
    """A value from outside. Raises NotLowered (by `compute`, which reads it) where its type is not static."""
    type_ = graph.values[value].type
    shape = type_.shape if type_ is not None and type_.is_static else ()
    return te.placeholder(shape or (), type_.dtype if type_ is not None else "float32", f"v{value}")
