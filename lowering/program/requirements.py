"""What the sizes of a call have to fulfil for the operators of a model, so that no kernel reads beyond its tensors.

Shape inference takes sizes for equal that a run without errors demands to be equal, and dimensions for large enough for
the windows over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...engine.summary import VIEWS
from ...ir.graph import Operator, OperatorGraph
from ...ir.operators import OPERATORS
from ...ir.size_names import dimension_as_size, elements
from ...ir.sizes import ONE, Size, number, symbol
from ...ir.types import TensorType
from ..kernels.branches import Guard, operator_guards
from .plan import Relation, Requirement

_RECURRENCES = frozenset({"RNN", "GRU", "LSTM"})
_WINDOWS = frozenset({"Conv", "MaxPool", "AveragePool"})


def list_requirements(graph: OperatorGraph) -> tuple[tuple[Requirement, frozenset[Guard]], ...]:
    """Those of all operators that sizes of a call decide about, each once, and what the operators run under."""
    different: dict[tuple[Size, Relation, Size, frozenset[Guard]], Requirement] = {}
    always: frozenset[Guard] = frozenset()
    for operator, guards in zip(graph.operators, operator_guards(graph), strict=True):
        for left, relation, right in _find_relations(operator, graph):
            is_open = left != right and (left.number is None or right.number is None)
            if is_open and not (relation == "broadcast" and left == ONE):
                different.setdefault((left, relation, right, guards), Requirement(left, relation, right, operator.name))
    for left, right in graph.equal:
        different.setdefault((left, "equal", right, always), Requirement(left, "equal", right, "the model"))
    for name, least in graph.lowest.items():
        requirement = Requirement(symbol(name), "least", number(least), "the model")
        different.setdefault((requirement.left, "least", requirement.right, always), requirement)
    return tuple((requirement, key[-1]) for key, requirement in different.items())


Relations = Iterator[tuple[Size, Relation, Size]]


def _find_relations(operator: Operator, graph: OperatorGraph) -> Relations:
    types = [None if v is None else graph.values[v].type for v in operator.inputs]
    result = graph.values[operator.outputs[0]].type if operator.outputs else None
    shapes, made = [_sizes(type_) for type_ in types], _sizes(result)
    row = OPERATORS.get(operator.op)
    if operator.is_opaque or made is None or row is None:
        return
    if operator.op in _RECURRENCES:
        yield from _batches(operator, shapes)
    elif operator.op in _WINDOWS:
        yield from _windows(operator, shapes[0])
    elif operator.op in VIEWS and types[0] is not None and result is not None:
        before, after = elements(types[0]), elements(result)
        if before is not None and after is not None:
            yield before, "equal", after
    elif row.category.startswith("elementwise") or operator.op == "Expand":
        for shape in shapes[: 1 if operator.op == "Expand" else None]:
            yield from _broadcast(shape, made)
    elif operator.op == "Concat":
        axis = operator.attributes.get("axis", 0)
        for shape in shapes:
            for place, (own, whole) in enumerate(zip(shape or (), made, strict=False)):
                if place != axis:
                    yield own, "equal", whole
    elif operator.op == "MatMul" and shapes[0] and shapes[1]:
        yield shapes[0][-1], "equal", shapes[1][-2 if len(shapes[1]) > 1 else 0]
        for shape in shapes[:2]:
            yield from _broadcast((shape or ())[:-2], made[: len(made) - sum(len(s or ()) > 1 for s in shapes[:2])])


def _batches(operator: Operator, shapes: Sequence[tuple[Size, ...] | None]) -> Relations:
    """The initial states and the lengths of a recurrence are for as many sequences as there are."""
    axis = 0 if operator.attributes.get("layout", 0) else 1
    if shapes[0] is None:
        return
    for shape, place in zip(shapes[4:7], (0, axis, axis), strict=False):
        if shape is not None:
            yield shape[place], "equal", shapes[0][axis]


def _windows(operator: Operator, shape: tuple[Size, ...] | None) -> Relations:
    """A map is as large as a window without the padding. The only window of a pool may reach beyond it, by less than
    a stride."""
    names = ("kernel_shape", "pads", "dilations", "strides")
    kernel, pads, dilations, strides = (operator.attributes.get(name) for name in names)
    if shape is None or not (isinstance(kernel, tuple) and isinstance(pads, tuple)):
        return
    if not (isinstance(dilations, tuple) and isinstance(strides, tuple)):
        return
    for axis, size in enumerate(shape[2:]):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        beyond = 0 if operator.op == "Conv" else strides[axis] - 1
        yield size, "least", number(max(1, reach - pads[axis] - pads[axis + len(kernel)] - beyond))


def _broadcast(shape: Iterable[Size] | None, made: tuple[Size, ...]) -> Relations:
    own = tuple(shape or ())
    for size, whole in zip(reversed(own), reversed(made), strict=False):
        yield size, "broadcast", whole


def _sizes(type_: TensorType | None) -> tuple[Size, ...] | None:
    if type_ is None or type_.shape is None:
        return None
    sizes = [dimension_as_size(dimension) for dimension in type_.shape]
    return None if None in sizes else tuple(size for size in sizes if size is not None)
