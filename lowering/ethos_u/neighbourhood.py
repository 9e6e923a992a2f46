"""The part of a graph that an alternative changes, with the operators that share its feature maps.

Vela estimates it in milliseconds. Feature maps that come from outside are copied first, and those that are read outside
are copied last, so that they lie where Vela keeps feature maps; copies cost the same before and after the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .tosa.graph import Attribute, Graph, Operator, Tensor

_COPY: dict[str, Attribute] = {"min_val": -128, "max_val": 127, "nan_mode": "PROPAGATE"}


def around(graph: Graph, other: Graph) -> tuple[Graph, Graph]:
    """The neighbourhoods, in a graph and in another one, of the operators that only one of them has."""
    old, new = ({id(each): each for each in which.operators} for which in (graph, other))
    shared = {number for number in old if number in new}
    near = {
        id(each)
        for which, operators in ((graph, old), (other, new))
        for each in _near(which, [operator for number, operator in operators.items() if number not in shared])
    }
    parts = (
        [each for each in which.operators if id(each) not in shared or id(each) in near] for which in (graph, other)
    )
    before, after = (_cut(which, part) for which, part in zip((graph, other), parts, strict=True))
    return before, after


def alone(graph: Graph, operator: Operator) -> Graph:
    """An operator with all that it shares sums of 32 bits with."""
    near = {id(each) for each in _fused(graph, [operator])}
    return _cut(graph, [each for each in graph.operators if id(each) in near])


def _near(graph: Graph, changed: Iterable[Operator]) -> Iterator[Operator]:
    """The operators, what else reads their maps, and all that these share sums of 32 bits with."""
    near = [*changed]
    for operator in [*near]:
        for name in operator.inputs:
            if graph.tensors[name].data is None and name not in graph.inputs:
                near += graph.readers[name]
    return _fused(graph, near)


def _fused(graph: Graph, operators: Iterable[Operator]) -> Iterator[Operator]:
    waiting = [*operators]
    seen: set[int] = set()
    while waiting:
        operator = waiting.pop()
        if id(operator) in seen:
            continue
        seen.add(id(operator))
        yield operator
        for name in operator.inputs:
            if name in graph.producers and graph.tensors[name].dtype != "int8":
                waiting.append(graph.producers[name])
        if graph.tensors[operator.output].dtype != "int8":
            waiting += graph.readers[operator.output]


def _cut(graph: Graph, operators: list[Operator]) -> Graph:
    made = {each.output for each in operators}
    inside = {id(each) for each in operators}
    tensors, copies, inputs = dict(graph.tensors), [], []
    for name in dict.fromkeys(name for each in operators for name in each.inputs):
        tensor = graph.tensors[name]
        if name in made or tensor.data is not None:
            continue
        source = name
        if name not in graph.inputs and tensor.dtype == "int8":
            source = f"{name} from outside"
            tensors[source] = Tensor(source, tensor.dtype, tensor.shape)
            copies.append(Operator("CLAMP", (source,), name, _COPY))
        inputs.append(source)
    outputs, last = [], []
    for each in operators:
        name, tensor = each.output, graph.tensors[each.output]
        if name in graph.outputs or tensor.dtype != "int8":
            if name in graph.outputs or any(id(reader) not in inside for reader in graph.readers[name]):
                outputs.append(name)
        elif any(id(reader) not in inside for reader in graph.readers[name]):
            copied = f"{name} for others"
            tensors[copied] = Tensor(copied, tensor.dtype, tensor.shape)
            last.append(Operator("CLAMP", (name,), copied, _COPY))
            outputs.append(copied)
    return Graph((*copies, *operators, *last), tensors, tuple(inputs), tuple(outputs)).without_unread()
