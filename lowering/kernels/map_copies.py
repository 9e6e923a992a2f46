"""Feature maps at the ends of a model, copied so that kernels have them with their channels last.

    x -> {Conv} -> {Conv, Relu} -> y        =>    x -> {copy} -> x' -> {Conv} -> {Conv, Relu} -> y' -> {copy} -> y

The caller's maps have their channels first. A kernel whose vectors hold channels would have to load or store such
a map element by element, and a window over single channels would have no vectors at all. Transposing it block by
block (schedules/rules/transposition.py) is faster: on the device `host` for products, ten times for depthwise ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...extract.partition.feature_maps import FEWEST_CHANNELS, FeatureMaps, interpolates
from ...extract.partition.templates.operator_set import Members
from ...ir.graph import Operator, OperatorGraph, Value
from ...ir.operators import CONVOLUTIONS, POOLS
from ...ir.operators.linear import is_convolution

_POOLS = POOLS | {"LpPool"}
_WINDOWS = _POOLS | CONVOLUTIONS - {"ConvTranspose"}
_RANKS = range(3, 6)
_AXIS = 1
"""The axis of the channels, as ONNX has them."""

_COPY = "eqfuse.copy"
"""The attribute of a copy, an operator that no model has."""
_COPIED = " (channels last)"
"""The end of the name of a value that no model has."""


def copy_maps(graph: OperatorGraph, kernels: Iterable[Sequence[int]]) -> tuple[OperatorGraph, tuple[Members, ...]]:
    """The graph and its kernels, in running order, with a copy of each such input and output."""
    copied = [tuple(kernel) for kernel in kernels]
    values, maps = graph.values, FeatureMaps(graph).values
    windows = [k for k in copied if any(_has_windows(graph.operators[member]) for member in k)]
    written = [v for k in windows for m in k for v in graph.operators[m].outputs if v in maps and values[v].is_output]
    read = dict.fromkeys(v for k in windows for v in _window_operands(graph, k) if v in maps)
    inputs = [v for v in read if values[v].producer is None and not values[v].is_constant and not values[v].is_output]
    written, inputs = ([v for v in each if _is_compiled(graph, copied, v)] for each in (written, inputs))
    for value in inputs:
        if _has_pixels(graph, value, FEWEST_CHANNELS):
            graph = _copy_input(graph, value)
            copied = [(0,), *(tuple(member + 1 for member in kernel) for kernel in copied)]
    for value in written:
        if _has_pixels(graph, value, 1):
            graph = _copy_output(graph, value)
            copied.append((len(graph) - 1,))
    return graph, tuple(copied)


def is_copy(operator: Operator) -> bool:
    """Whether the operator was put in here."""
    return _COPY in operator.attributes


def name_in_model(value: Value) -> str:
    """The model's name for a value of the graph; a copy and its source have one name there."""
    return value.name.removesuffix(_COPIED)


def _has_windows(operator: Operator) -> bool:
    """Whether each element of the result is a sum or an extreme of neighbours."""
    return operator.op in _WINDOWS or interpolates(operator)


def _window_operands(graph: OperatorGraph, kernel: Members) -> Iterator[int]:
    """The first operands of windows over single channels; a product reads a map in any order."""
    for operator in (graph.operators[member] for member in kernel):
        grouped = is_convolution(operator.op) and operator.attributes.get("group", 1) != 1
        if (operator.op in _POOLS or grouped or interpolates(operator)) and operator.inputs[0] is not None:
            yield operator.inputs[0]


def _is_compiled(graph: OperatorGraph, kernels: Iterable[Members], number: int) -> bool:
    """Whether all kernels that make or read a value have a lowering, for ONNX Runtime knows values by their names, and
    a copy has one, too."""
    from ..compute import has_lowering, lowerable  # which import TVM

    if not has_lowering(_make_copy(graph.values[number], number, number), graph):
        return False
    producer = graph.values[number].producer
    touching = {*graph.consumers[number], *(() if producer is None else (producer,))}
    members = (member for kernel in kernels if not touching.isdisjoint(kernel) for member in kernel)
    return all(lowerable(graph.operators[member], graph) is None for member in members)


def _has_pixels(graph: OperatorGraph, number: int, channels: int) -> bool:
    type_ = graph.values[number].type
    shape = type_.shape if type_ is not None else None
    if shape is None or len(shape) not in _RANKS or isinstance(shape[_AXIS], str):
        return False
    return int(shape[_AXIS]) >= channels and any(extent != 1 for extent in shape[_AXIS + 1 :])


def _make_copy(value: Value, source: int, result: int) -> Operator:
    """An operator of one operand that changes nothing."""
    return Operator(f"copy of {value.name}", "Concat", {"axis": _AXIS, _COPY: 1}, (source,), (result,))


def _copy_output(graph: OperatorGraph, number: int) -> OperatorGraph:
    """The graph in which an operator behind all others makes the output, from the output of before."""
    value, inside = graph.values[number], len(graph.values)
    values = [*graph.values, replace(value, name=value.name + _COPIED, is_output=False)]
    values[number] = replace(value, producer=len(graph.operators))
    operators = (_rename(operator, number, inside) for operator in graph.operators)
    return replace(graph, operators=(*operators, _make_copy(value, inside, number)), values=tuple(values))


def _copy_input(graph: OperatorGraph, number: int) -> OperatorGraph:
    """The graph in which an operator in front of all others reads the input, and all others read its copy."""
    value, inside = graph.values[number], len(graph.values)
    later = (replace(v, producer=None if v.producer is None else v.producer + 1) for v in graph.values)
    operators = (_rename(operator, number, inside) for operator in graph.operators)
    values = (*later, replace(value, name=value.name + _COPIED, producer=0))
    return replace(graph, operators=(_make_copy(value, number, inside), *operators), values=values)


def _rename(operator: Operator, old: int, new: int) -> Operator:
    """The operator with another value in the place of one."""
    names: dict[int | None, int] = {old: new}
    return replace(
        operator,
        inputs=tuple(names.get(each, each) for each in operator.inputs),
        outputs=tuple(names.get(each, each) for each in operator.outputs),
    )
