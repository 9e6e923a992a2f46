"""The conditions on the sizes of a call for the operators of a graph, and sizes to optimise for that meet them.

Shape inference takes sizes for equal that a run without errors demands to be equal, and dimensions for large enough for
the windows over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..graph import Operator, OperatorGraph
from ..index_maps import Axis, Reduction, Sum, Unknown, broadcast_maps
from ..size_relations import MOST_ELEMENTS, Relation, RelationName
from ..sizes import ONE, SYMBOL, Size, dimension_as_size, dimension_size, elements, extremum, number, symbol
from ..types import TensorType
from . import CONVOLUTIONS, FILTERS, GLOBAL_POOLS, MATRIX_PRODUCTS, POOLS, RECURRENT, SCHEMAS, VIEWS
from .graph_maps import index_maps_of
from .quantization import INTEGER_PRODUCTS
from .recurrent import GATES

_USUAL_SIZES = (64, 32, 16, 256, 512, 96, 48, 224)
"""Sizes tried for a dimension, in this order, if a model does not run on the assumed one."""
_OTHER_SIZES = (*range(SYMBOL + 1, 1025), 8, 4, 2, 1)
"""Sizes tried behind these, and those of other dimensions: a model that divides a signal into frames may run on
multiples of their step alone."""

_PERMUTATIONS = frozenset({"DepthToSpace", "SpaceToDepth"})
"""Operators that put every element of their operand into another order and shape."""

_FEW = 4
"""The fewest elements of an extent once the size that is optimised for is raised: enough for a tile of rows."""
_MOST_DOUBLINGS = 7
"""The most doublings: 128 samples become 16,384, a second of sound."""


def find_relations(graph: OperatorGraph) -> Iterator[tuple[int | None, Relation]]:
    """The open relations of a graph at the call, each with the number of its operator; None for the model's own."""
    for index, operator in enumerate(graph.operators):
        for left, name, right in (*_relations_of(operator, graph), *_counts(operator, graph)):
            if (relation := Relation(left, name, right)).is_open:
                yield index, relation
    for left, right in graph.equal:
        yield None, Relation(left, "equal", right)
    for dimension, least in graph.lowest.items():
        yield None, Relation(symbol(dimension), "least", number(least))


def fit_sizes(graph: OperatorGraph, assumed: Iterable[str]) -> Mapping[str, int]:
    """The sizes that a graph is optimised for; if the model does not run on these, others of the `assumed` dimensions
    on which it does, or meets more relations: those of one dimension after the other, while that helps."""
    sizes, names = dict(graph.sizes), list(assumed)
    relations = list(dict.fromkeys(relation for _, relation in find_relations(graph.at_call)))

    def find_broken(trial: Mapping[str, int]) -> list[Relation]:
        return [relation for relation in relations if not relation.holds(trial)]

    broken = find_broken(sizes)
    while broken:
        others = dict.fromkeys((*_USUAL_SIZES, *sizes.values(), *_OTHER_SIZES, *graph.lowest.values()))
        trials = ({**sizes, name: size} for name in names for size in others)
        mending = (trial for trial in trials if any(relation.holds(trial) for relation in broken))
        sizes = min((sizes, *mending), key=lambda trial: len(find_broken(trial)))
        if len(left := find_broken(sizes)) == len(broken):
            break
        broken = left
    return sizes


def raise_sizes(graph: OperatorGraph, assumed: Iterable[str]) -> Mapping[str, int]:
    """The sizes that a graph is optimised for, the `assumed` ones doubled while an extent stays 1 because of them only.

    A network of windows over 256 samples has a single frame of 128; choices for that are not good for longer sounds.
    """
    sizes = dict(graph.sizes)
    relations = list(dict.fromkeys(relation for _, relation in find_relations(graph.at_call)))
    types = (value.type for value in graph.at_call.values)
    dimensions = {d for type_ in types if type_ is not None for d in type_.shape or () if isinstance(d, str)}
    extents = [size for d in sorted(dimensions) if (size := dimension_as_size(d)) is not None]

    def value_of(extent: Size, trial: Mapping[str, int]) -> int:
        return extent.value(lambda name: dimension_size(name, trial))

    for name in (name for name in assumed if sizes[name] > 1):
        largest = {**sizes, name: sizes[name] << _MOST_DOUBLINGS}
        own = [extent for extent in extents if name in extent.names() and value_of(extent, sizes) == 1]
        short = [extent for extent in own if value_of(extent, largest) > 1]
        raised = dict(sizes)
        while any(value_of(extent, raised) < _FEW for extent in short) and raised[name] < largest[name]:
            raised[name] *= 2
        if all(relation.holds(raised) for relation in relations if relation.holds(sizes)):
            sizes = raised
    return sizes


Pairs = Iterator[tuple[Size, RelationName, Size]]


def _counts(operator: Operator, graph: OperatorGraph) -> Pairs:
    """A result that stays inside of a kernel has no more elements than a tensor may have."""
    for value in operator.outputs:
        type_ = graph.values[value].type
        count = None if type_ is None or type_.is_static else elements(type_)
        if count is not None:
            yield count, "most", number(MOST_ELEMENTS)


def _relations_of(operator: Operator, graph: OperatorGraph) -> Pairs:
    types = [None if v is None else graph.values[v].type for v in operator.inputs]
    result = graph.values[operator.outputs[0]].type if operator.outputs else None
    shapes, output = [_sizes(type_) for type_ in types], _sizes(result)
    row = SCHEMAS.get(operator.op)
    if operator.is_opaque or output is None or row is None:
        return
    if operator.op in RECURRENT:
        yield from _sequences(operator, shapes)
    elif operator.op in FILTERS or operator.op in POOLS:
        yield from _windows(operator, shapes[0])
        yield from _parameters(operator, graph, shapes, output)
    elif row.category == "normalization" or operator.op in CONVOLUTIONS:
        yield from _parameters(operator, graph, shapes, output)
    elif operator.op in VIEWS | _PERMUTATIONS and types[0] is not None and result is not None:
        before, after = elements(types[0]), elements(result)
        if before is not None and after is not None:
            yield before, "equal", after
    elif row.index_maps is broadcast_maps:
        for shape in shapes[: 1 if operator.op == "Expand" else None]:
            yield from _broadcast(shape, output)
    elif operator.op == "Resize" and shapes[0] is not None:
        for own, whole in zip(shapes[0], output, strict=True):
            if own != whole:
                yield own, "least", number(1)
    elif operator.op == "Concat":
        for shape in shapes:
            for place, (own, whole) in enumerate(zip(shape or (), output, strict=False)):
                if place != _axis_of(operator):
                    yield own, "equal", whole
    elif operator.op in MATRIX_PRODUCTS and shapes[0] and shapes[1]:
        left, right = shapes[0], shapes[1]
        depth = left[-2 if operator.attributes.get("transA", 0) else -1]
        yield depth, "equal", right[-2 if len(right) > 1 and not operator.attributes.get("transB", 0) else -1]
        for shape in (left, right):
            yield from _broadcast(shape[:-2], output[: len(output) - (len(left) > 1) - (len(right) > 1)])
        for shape in shapes[2:] if operator.op not in INTEGER_PRODUCTS else ():
            yield from _broadcast(shape, output)
    elif operator.op in GLOBAL_POOLS and shapes[0] is not None:
        for size in shapes[0][2:]:
            yield size, "least", ONE
    elif "select_last_index" in operator.attributes and shapes[0] is not None:
        yield shapes[0][_axis_of(operator)], "least", ONE
    elif operator.op == "Split" and shapes[0] is not None:
        parts = operator.attributes.get("split")
        if isinstance(parts, tuple):
            yield shapes[0][_axis_of(operator)], "equal", number(sum(parts))
    elif operator.op != "Pad":  # whose result is longer than what it reads along an axis
        if operator.op == "GridSample" and shapes[1] is not None:
            yield shapes[1][-1], "equal", number(len(output) - 2)
        yield from _read_axes(operator, graph, shapes, output)


def _axis_of(operator: Operator) -> int:
    axis = operator.attributes.get("axis", 0)
    return axis if isinstance(axis, int) else 0


def _read_axes(
    operator: Operator, graph: OperatorGraph, shapes: Sequence[tuple[Size, ...] | None], output: tuple[Size, ...]
) -> Pairs:
    """Operands that are read together are as long as the axes of the result along which they are read. An axis along
    which an index chooses elements has one, unless the result has none."""
    maps, result = index_maps_of(graph, operator), graph.values[operator.outputs[0]].type
    whole = None if result is None else elements(result)
    for operand, shape in zip(maps.operands if maps is not None else (), shapes, strict=False):
        for index, size in zip(operand or (), shape or (), strict=False):
            match index:
                case Axis(axis):
                    if len(shapes) > 1:
                        yield size, "equal", output[axis]
                case Sum(0, ((1, Axis(axis)),)):
                    if len(shapes) > 1:
                        yield size, "least", output[axis]
                case Unknown():
                    if whole is not None:
                        yield size, "least", extremum("min", (ONE, whole))


def _parameters(
    operator: Operator, graph: OperatorGraph, shapes: Sequence[tuple[Size, ...] | None], output: tuple[Size, ...]
) -> Pairs:
    """Weights, scales and biases are as long as the axes of the result, and of the data, along which they are read.

    A scale of which that is not certain has no index map: it is aligned with the last axes. The length of data with
    windows is asked elsewhere (`_windows`): padding may stand for some of them, also if there is one window.
    """
    maps = index_maps_of(graph, operator)
    if maps is None:
        for shape in shapes[1:]:
            for size, whole in zip(reversed(shape or ()), reversed(output), strict=False):
                if size != ONE:
                    yield size, "equal", whole
        return
    summed: dict[int, Size] = {}
    has_windows = operator.op in CONVOLUTIONS | POOLS
    for place, (operand, shape) in enumerate(zip(maps.operands, shapes, strict=False)):
        for axis, (index, size) in enumerate(zip(operand or (), shape or (), strict=False)):
            if isinstance(index, Axis) and place:
                yield size, "equal", output[index.number]
            elif isinstance(index, Reduction) and not (has_windows and place == 0 and axis > 1):
                yield size, "equal", summed.setdefault(index.number, size)
    if operator.op in CONVOLUTIONS and operator.attributes.get("group", 1) != 1:
        yield from _grouped_channels(operator, shapes, output)


def _grouped_channels(operator: Operator, shapes: Sequence[tuple[Size, ...] | None], output: tuple[Size, ...]) -> Pairs:
    """Each filter of a convolution is for the channels of one group, of the data or of a transposed one's result."""
    data, filters, group = shapes[0], shapes[1], operator.attributes["group"]
    if data is None or filters is None or not isinstance(group, int):
        return
    if operator.op not in FILTERS:
        yield filters[0], "equal", data[1]
    yield filters[1] * number(group), "equal", (data if operator.op in FILTERS else output)[1]


def _sequences(operator: Operator, shapes: Sequence[tuple[Size, ...] | None]) -> Pairs:
    """A recurrence has at least one step and one sequence: ONNX does not define its result otherwise. Its weights are
    for all gates, its initial states and the lengths for as many sequences as there are."""
    hidden_size, is_batch_first = operator.attributes.get("hidden_size"), bool(operator.attributes.get("layout", 0))
    if shapes[0] is None or not isinstance(hidden_size, int):
        return
    for size in shapes[0][:2]:
        yield size, "least", ONE
    directions = number(2 if operator.attributes.get("direction") == "bidirectional" else 1)
    hidden, rows = number(hidden_size), number(hidden_size * GATES[operator.op])
    batch, inputs = shapes[0][0 if is_batch_first else 1], shapes[0][2]
    state = (batch, directions, hidden) if is_batch_first else (directions, batch, hidden)
    weights = ((directions, rows, inputs), (directions, rows, hidden), (directions, rows.scale(2)))
    demanded = (*weights, (batch,), state, state, (directions, hidden.scale(3)))
    for shape, wanted in zip(shapes[1:], demanded, strict=False):
        for size, other in zip(shape or (), wanted, strict=False):
            yield size, "equal", other


def _windows(operator: Operator, shape: tuple[Size, ...] | None) -> Pairs:
    """A feature map is as large as a window without the padding. The only window of a pool may reach beyond it, by less
    than a stride."""
    names = ("kernel_shape", "pads", "dilations", "strides")
    kernel, pads, dilations, strides = (operator.attributes.get(name) for name in names)
    if shape is None or not (isinstance(kernel, tuple) and isinstance(pads, tuple)):
        return
    if not (isinstance(dilations, tuple) and isinstance(strides, tuple)):
        return
    for axis, size in enumerate(shape[2:]):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        beyond = 0 if operator.op in FILTERS else strides[axis] - 1
        yield size, "least", number(max(1, reach - pads[axis] - pads[axis + len(kernel)] - beyond))


def _broadcast(shape: Iterable[Size] | None, output: tuple[Size, ...]) -> Pairs:
    own = tuple(shape or ())
    for size, whole in zip(reversed(own), reversed(output), strict=False):
        yield size, "broadcast", whole


def _sizes(type_: TensorType | None) -> tuple[Size, ...] | None:
    if type_ is None or type_.shape is None:
        return None
    sizes = [dimension_as_size(dimension) for dimension in type_.shape]
    return None if None in sizes else tuple(size for size in sizes if size is not None)
