"""Feature maps at the ends of a model and in front of views, copied so that kernels have them with their channels last.

    x -> {Conv} -> {Conv, Relu} -> y        =>    x -> {copy} -> x' -> {Conv} -> {Conv, Relu} -> y' -> {copy} -> y
    {Conv} -> y -> Reshape -> z             =>    {Conv} -> y' -> {copy} -> y -> Reshape -> z

The caller's maps have their channels first. A kernel whose vectors hold channels would have to load or store such
a map element by element, and a window over single channels would have no vectors at all. Transposing it block by
block (schedules/rules/transposition.py) is faster: on the device `host` for products, ten times for depthwise ones.

So have maps that a Reshape reads, such as one in front of a group normalisation. Of these only the results of
convolutions that Winograd's filters compute are copied: the filters read and write channels last alone, and take a
third of the time. Two convolutions of 64 channels, 32 x 32, each with a normalisation of groups behind it, take 0.7 ms
and without these copies 1.9 (Zen 3, AVX2). What windows over single channels gain on such maps is less than the copies
take.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ...costmodels.scheduled import may_be_filtered
from ...extract.partition.feature_maps import FEWEST_CHANNELS, FeatureMaps, interpolates
from ...extract.partition.templates.operator_set import Members
from ...ir.graph import Operator, OperatorGraph, Value
from ...ir.operation import Operation
from ...ir.operators import CONVOLUTIONS, POOLS
from ...ir.operators.linear import is_convolution
from .steps import find_view

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
    """The graph and its kernels, in running order, with a copy of each such map."""
    copied = [tuple(kernel) for kernel in kernels]
    values, maps = graph.values, FeatureMaps(graph).values
    windows = [k for k in copied if any(_has_windows(graph.operators[member]) for member in k)]
    views = {k[0]: view.source for k in copied if (view := find_view(graph, k)) is not None}
    filtered = {n for n, operation in enumerate(graph.operations) if _is_filtered(operation)}
    written = [
        v for k in windows for m in k for v in graph.operators[m].outputs
        if v in maps and (values[v].is_output or (v in views.values() and not filtered.isdisjoint(k)))
    ]
    read = dict.fromkeys(v for k in windows for v in _window_operands(graph, k, filtered) if v in maps)
    inputs = [v for v in read if values[v].producer is None and not values[v].is_constant and not values[v].is_output]
    written, inputs = ([v for v in each if _is_compiled(graph, copied, v)] for each in (written, inputs))
    for value in sorted(written, key=lambda v: values[v].producer or 0, reverse=True):  # what is behind moves
        if _has_pixels(graph, value, 1):
            readers = frozenset(view for view, source in views.items() if source == value)
            graph, copied = _copy_result(graph, copied, value, readers)
    for value in inputs:
        if _has_pixels(graph, value, FEWEST_CHANNELS):
            graph = _copy_input(graph, value)
            copied = [(0,), *(tuple(member + 1 for member in kernel) for kernel in copied)]
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


def _is_filtered(operation: Operation) -> bool:
    """Whether Winograd's filters may compute a convolution of enough channels."""
    channels = operation.operand(1).dimensions[1:2] if operation.op == "Conv" else ()
    return bool(channels) and channels[0] >= FEWEST_CHANNELS and may_be_filtered(operation)


def _window_operands(graph: OperatorGraph, kernel: Members, filtered: Collection[int]) -> Iterator[int]:
    """The first operands of windows over single channels, and of convolutions by filters; other products read a map in
    any order."""
    for member in kernel:
        operator = graph.operators[member]
        grouped = is_convolution(operator.op) and operator.attributes.get("group", 1) != 1
        is_window = operator.op in _POOLS or grouped or interpolates(operator) or member in filtered
        if is_window and operator.inputs[0] is not None:
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


def _copy_result(
    graph: OperatorGraph, kernels: Sequence[Members], number: int, views: Collection[int]
) -> tuple[OperatorGraph, list[Members]]:
    """The graph in which an operator makes a value from what its producer makes now: in front of the `views` that read
    it, or behind all others. All other operators read what the producer makes."""
    value, inside = graph.values[number], len(graph.values)
    assert value.producer is not None
    place = value.producer + 1 if views else len(graph.operators)

    def later(operator: int) -> int:
        return operator + (operator >= place)

    values = [v if v.producer is None else replace(v, producer=later(v.producer)) for v in graph.values]
    values.append(replace(value, name=value.name + _COPIED, is_output=False))
    values[number] = replace(value, producer=place)
    operators = [o if n in views else _rename(o, number, inside) for n, o in enumerate(graph.operators)]
    operators.insert(place, _make_copy(value, inside, number))
    moved = [tuple(map(later, kernel)) for kernel in kernels]
    behind = next(n for n, kernel in enumerate(moved) if value.producer in kernel) + 1 if views else len(moved)
    moved.insert(behind, (place,))
    return replace(graph, operators=tuple(operators), values=tuple(values)), moved


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
