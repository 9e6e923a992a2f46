"""Feature maps at the ends of a model and in front of views, copied so that kernels have them with their channels last.

    x -> {Conv} -> {Conv, Relu} -> y        =>    x -> {copy} -> x' -> {Conv} -> {Conv, Relu} -> y' -> {copy} -> y
    {Conv} -> y -> Reshape -> z             =>    {Conv} -> y' -> {copy} -> y -> Reshape -> z
    x -> Reshape -> y -> {Conv}             =>    x -> Reshape -> y -> {copy} -> y' -> {Conv}

The caller's maps have their channels first. A kernel whose vectors hold channels would have to load or store such
a map element by element, and a window over single channels would have no vectors at all. Transposing it block by
block (schedules/rules/transposition.py) is faster: on the device `host` for products, ten times for depthwise ones.

So have maps that a Reshape reads or gives, such as those around a group normalisation. Of these only what convolutions
by Winograd's filters give and read is copied: the filters read and write channels last alone, and take a third of the
time. Two convolutions of 64 channels, 32 x 32, each with a normalisation of groups behind it, take 0.7 ms and without
these copies 1.9 (Zen 3, AVX2). What windows over single channels gain on such maps is less than the copies take.
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
    views = [view for k in copied if (view := find_view(graph, k)) is not None]
    sources, results = {view.source for view in views}, {view.result for view in views}
    filtered = {n for n, operation in enumerate(graph.operations) if _is_filtered(operation)}
    written = {
        v: True for k in windows for m in k for v in graph.operators[m].outputs
        if v in maps and (values[v].is_output or (v in sources and not filtered.isdisjoint(k)))
    }  # fmt: skip
    read = dict.fromkeys(v for k in windows for v in _window_operands(graph, k, filtered, results) if v in maps)
    inputs = {v: False for v in read if v in results or values[v].producer is None}
    inputs = {v: False for v in inputs if not values[v].is_constant and not values[v].is_output}
    for value, is_written in sorted({**inputs, **written}.items()):
        channels = 1 if is_written else FEWEST_CHANNELS
        if _has_pixels(values, value, channels) and _is_compiled(graph, copied, value):
            make = _copy_result if is_written else _copy_operand
            graph, copied = make(graph, copied, value, results)
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


def _window_operands(
    graph: OperatorGraph, kernel: Members, filtered: Collection[int], results: Collection[int]
) -> Iterator[int]:
    """The first operands of windows over single channels, unless they are `results` of views, and of convolutions by
    filters; other products read a map in any order."""
    for member in kernel:
        operator = graph.operators[member]
        grouped = is_convolution(operator.op) and operator.attributes.get("group", 1) != 1
        is_window = operator.op in _POOLS or grouped or interpolates(operator)
        operand = operator.inputs[0]
        if operand is not None and (member in filtered or (is_window and operand not in results)):
            yield operand


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


def _has_pixels(values: Sequence[Value], number: int, channels: int) -> bool:
    type_ = values[number].type
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
    """The graph in which an operator makes a value from what its producer makes now: in front of the views that read
    it, which have these results, or behind all others. All other operators read what the producer makes."""
    producer, is_viewed = graph.values[number].producer, any(_reads(o, number, views) for o in graph.operators)
    assert producer is not None
    place = producer + 1 if is_viewed else len(graph.operators)
    inside, value = len(graph.values), graph.values[number]
    operators = [o if _reads(o, number, views) else _rename(o, number, inside) for o in graph.operators]
    copy = _make_copy(value, inside, number)
    added = replace(value, name=value.name + _COPIED, is_output=False)
    return _insert(replace(graph, operators=tuple(operators)), kernels, place, copy, added)


def _copy_operand(
    graph: OperatorGraph, kernels: Sequence[Members], number: int, views: Collection[int]
) -> tuple[OperatorGraph, list[Members]]:
    """The graph in which an operator copies a value, and all others but views read the copy."""
    inside, value = len(graph.values), graph.values[number]
    place = 0 if value.producer is None else value.producer + 1
    operators = [
        o if _reads(o, number, views) or n == value.producer else _rename(o, number, inside)
        for n, o in enumerate(graph.operators)
    ]
    copy, added = _make_copy(value, number, inside), replace(value, name=value.name + _COPIED)
    return _insert(replace(graph, operators=tuple(operators)), kernels, place, copy, added)


def _reads(operator: Operator, number: int, views: Collection[int]) -> bool:
    """Whether an operator is a view of a value."""
    return operator.inputs[:1] == (number,) and any(result in views for result in operator.outputs)


def _insert(
    graph: OperatorGraph, kernels: Sequence[Members], place: int, operator: Operator, added: Value
) -> tuple[OperatorGraph, list[Members]]:
    """The graph with an operator at a place and a value behind the others, of which one reads or makes the other; the
    operator is a kernel behind that of the operator in front of it."""

    def later(number: int) -> int:
        return number + (number >= place)

    values = [*graph.values, added]
    operators = [*graph.operators[:place], operator, *graph.operators[place:]]
    for number, maker in enumerate(operators):
        for value in maker.outputs:
            values[value] = replace(values[value], producer=number)
    moved = [tuple(map(later, kernel)) for kernel in kernels]
    front = next((n for n, kernel in enumerate(moved) if place - 1 in kernel), -1)
    behind = front + 1 if place < len(graph.operators) else len(moved)
    moved.insert(behind, (place,))
    return replace(graph, operators=tuple(operators), values=tuple(values)), moved


def _rename(operator: Operator, old: int, new: int) -> Operator:
    """The operator with another value in the place of one."""
    names: dict[int | None, int] = {old: new}
    return replace(
        operator,
        inputs=tuple(names.get(each, each) for each in operator.inputs),
        outputs=tuple(names.get(each, each) for each in operator.outputs),
    )
