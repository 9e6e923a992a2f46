"""Feature maps at the ends of a model, copied so that kernels have them with their channels last.

    x -> {Conv} -> {Conv, Relu} -> y        =>    x -> {copy} -> x' -> {Conv} -> {Conv, Relu} -> y' -> {copy} -> y

What the caller gives and gets has its channels first. A kernel whose vectors hold channels would have to load or store
such a map element by element, and a window over single channels would have no vectors at all. Transposing it block by
block (schedules/transposition.py) is faster: on the device `host` for products, ten times for depthwise convolutions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...extract.partition.layouts.feature_maps import FeatureMaps
from ...ir.graph import Operator, OperatorGraph, Value

_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_WINDOWS = _POOLS | {"Conv"}
_RANKS = range(3, 6)
_FEWEST_CHANNELS = 8
"""Of an input that is copied."""
_AXIS = 1

_COPY = "eqfuse.copy"
"""The attribute of an operator that no model has."""
_COPIED = " (channels last)"
"""What is behind the name of a value that no model has."""

Members = tuple[int, ...]


def with_copied_maps(
    graph: OperatorGraph, kernels: Iterable[Sequence[int]]
) -> tuple[OperatorGraph, tuple[Members, ...]]:
    """The graph and its kernels, in running order, with a copy of each such input and output."""
    found = [tuple(kernel) for kernel in kernels]
    maps = FeatureMaps(graph).values
    windows = [k for k in found if any(graph.operators[member].op in _WINDOWS for member in k)]
    made = [v for k in windows for v in _made(graph, k) if v in maps and graph.values[v].is_output]
    read = dict.fromkeys(v for k in windows for v in _read(graph, k) if v in maps)
    outputs = [v for v in made if _is_compiled(graph, found, v)]
    inputs = [v for v in read if _is_given(graph.values[v]) and _is_compiled(graph, found, v)]
    for value in inputs:
        if _has_pixels(graph, value, _FEWEST_CHANNELS):
            graph = _with_copied_input(graph, value)
            found = [(0,), *(tuple(member + 1 for member in kernel) for kernel in found)]
    for value in outputs:
        if _has_pixels(graph, value, 1):
            graph = _with_copied_output(graph, value)
            found.append((len(graph) - 1,))
    return graph, tuple(found)


def is_copy(operator: Operator) -> bool:
    """Whether the operator was put in here."""
    return _COPY in operator.attributes


def name_in_model(value: Value) -> str:
    """What the model calls a value of the graph; a copy and what it is of have one name there."""
    return value.name.removesuffix(_COPIED)


def _made(graph: OperatorGraph, kernel: Members) -> Iterable[int]:
    return (value for member in kernel for value in graph.operators[member].outputs)


def _read(graph: OperatorGraph, kernel: Members) -> Iterable[int]:
    """The first operands of windows over single channels; a product reads a map in any order."""
    operators = (graph.operators[member] for member in kernel)
    found = (o for o in operators if o.op in _POOLS or (o.op == "Conv" and o.attributes.get("group", 1) != 1))
    return (operator.inputs[0] for operator in found if operator.inputs[0] is not None)


def _is_given(value: Value) -> bool:
    return value.producer is None and not value.is_constant and not value.is_output


def _is_compiled(graph: OperatorGraph, kernels: Iterable[Members], number: int) -> bool:
    """Whether all kernels that make or read a value have a lowering: ONNX Runtime knows values by their names."""
    from ..compute import lowerable  # which imports TVM

    producer = graph.values[number].producer
    touching = {*graph.consumers[number], *(() if producer is None else (producer,))}
    members = (member for kernel in kernels if not touching.isdisjoint(kernel) for member in kernel)
    return all(lowerable(graph.operators[member], graph) is None for member in members)


def _has_pixels(graph: OperatorGraph, number: int, channels: int) -> bool:
    type_ = graph.values[number].type
    shape = type_.shape if type_ is not None and type_.is_static else None
    if shape is None or len(shape) not in _RANKS:
        return False
    return int(shape[_AXIS]) >= channels and any(extent != 1 for extent in shape[_AXIS + 1 :])


def _copy(value: Value, source: int, result: int) -> Operator:
    """An operator of one operand that changes nothing."""
    return Operator(f"copy of {value.name}", "Concat", {"axis": _AXIS, _COPY: 1}, (source,), (result,))


def _with_copied_output(graph: OperatorGraph, number: int) -> OperatorGraph:
    """The graph in which an operator behind all others makes the output, from what was the output before."""
    value, inside = graph.values[number], len(graph.values)
    made = replace(value, name=value.name + _COPIED, is_output=False)
    values = [*graph.values, made]
    values[number] = replace(value, producer=len(graph.operators))
    operators = (_renamed(operator, number, inside) for operator in graph.operators)
    return OperatorGraph((*operators, _copy(value, inside, number)), tuple(values))


def _with_copied_input(graph: OperatorGraph, number: int) -> OperatorGraph:
    """The graph in which an operator in front of all others reads the input, and all others read what it makes."""
    value, inside = graph.values[number], len(graph.values)
    later = (replace(v, producer=None if v.producer is None else v.producer + 1) for v in graph.values)
    made = replace(value, name=value.name + _COPIED, producer=0)
    operators = (_renamed(operator, number, inside) for operator in graph.operators)
    return OperatorGraph((_copy(value, number, inside), *operators), (*later, made))


def _renamed(operator: Operator, old: int, new: int) -> Operator:
    """The operator with another value in the place of one."""
    names = {old: new}
    return replace(
        operator,
        inputs=tuple(None if each is None else names.get(each, each) for each in operator.inputs),
        outputs=tuple(names.get(each, each) for each in operator.outputs),
    )
