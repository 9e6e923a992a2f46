"""Arguments that a model computes from sizes, in their simplest form: one that means the same for every size is a
constant.

Reshape's target gets 0 for a dimension of its operand and -1 for another dynamic one, Expand's 1 for a dimension that
stays, Slice's bounds are counted from the end of the axis, Resize gets scales instead of sizes. Values that equal an
earlier one for every size are replaced by it. So rules can look into these operators, and the nodes that computed their
arguments disappear.

A Reshape by 0 and -1 cannot tell the sizes of an empty tensor. A copied dimension that may be 0 only because nothing is
known of it counts as at least 1, unless the user says otherwise (`--dim "N>=0"`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ir.sizes import ZERO, Size, exact_quotient
from ...ir.types import TensorType
from ..onnx.model import Model
from ..onnx.nodes import is_standard
from ..shapes.bounds import Bounds
from ..shapes.evaluation import always_computed
from ..shapes.inference import Knowledge
from ..shapes.site import Contents, Shape

_END = 2**63 - 1
"""The end of a Slice that takes an axis to its last element."""
_Array = np.ndarray[Any, Any]
_Arguments = dict[int, _Array | None]
"""New inputs of a node, by position; None removes one."""


def simplify_arguments(model: Model, knowledge: Knowledge) -> tuple[Model, Knowledge]:
    """The model with computed arguments in their simplest form, and the knowledge of its values.

    Both are the given ones if nothing changes; the given model itself is never changed.
    """
    simplified = {
        position: arguments
        for position, node in enumerate(model.graph)
        if is_standard(node) and (arguments := _simplify(node, knowledge))
    }
    twins = _find_twins(model.graph, knowledge)
    if not simplified and not twins:
        return model, knowledge
    clone = model.ir.clone()
    nodes = list(clone.graph)
    types, constants = dict(knowledge.types), dict(knowledge.constants)
    values = {output.name: output for node in nodes for output in node.outputs}
    for position, arguments in simplified.items():
        nodes[position].attributes.pop("allowzero", None)  # a 0 in a new target of a Reshape copies a dimension
        if arguments is _FLATTENED:
            nodes[position].op_type = "Flatten"
        for index, array in arguments.items():
            name = f"{nodes[position].outputs[0].name}.argument{index}"
            value = None
            if array is not None:
                while name in values:
                    name += "_"
                value = values[name] = _insert_constant(clone.graph, nodes[position], name, array)
                types[name], constants[name] = TensorType(array.dtype.name, array.shape), array
            nodes[position].resize_inputs(max(index + 1, len(nodes[position].inputs)))
            nodes[position].replace_input_with(index, value)
        while nodes[position].inputs[-1] is None:
            nodes[position].resize_inputs(len(nodes[position].inputs) - 1)
    for name, twin in twins.items():
        values[name].replace_all_uses_with(values[twin])
    return replace(model, ir=clone), replace(knowledge, types=types, constants=constants)


def _insert_constant(graph: ir.Graph, before: ir.Node, name: str, array: _Array) -> ir.Value:
    node = ir.node("Constant", [], attributes={"value": ir.tensor(array, name=name)}, name=name)
    node.outputs[0].name = name
    graph.insert_before(before, node)
    return node.outputs[0]


def _find_twins(graph: ir.Graph, knowledge: Knowledge) -> dict[str, str]:
    """Values that equal an earlier one for every size, with the first such value that every run computes."""
    first: dict[tuple[object, ...], str] = {}
    twins = {}
    certain = always_computed(graph)
    for node in graph:
        for output in node.outputs:
            name = output.name or ""
            content = knowledge.symbolic.contents.get(name)
            if content is None or name in knowledge.constants or None in list(content.flat):
                continue
            key = (knowledge.types[name].dtype, content.shape, *content.flat)
            twin = first.setdefault(key, name) if node in certain else first.get(key, name)
            if twin != name and not output.is_graph_output():
                twins[name] = twin
    return twins


def _simplify(node: ir.Node, knowledge: Knowledge) -> _Arguments:
    """New arguments for a node; {} if they stay."""
    rule = _RULES.get(node.op_type)
    names = [value.name if value is not None else "" for value in node.inputs]
    if rule is None or not names or all(not name or name in knowledge.constants for name in names[1:]):
        return {}
    source = knowledge.symbolic.shapes.get(names[0] or "")
    if source is None:
        return {}
    contents = {
        index: content
        for index, name in enumerate(names)
        if name and name not in knowledge.constants
        if (content := knowledge.symbolic.contents.get(name)) is not None
    }
    return rule(_Call(node, source, contents, knowledge))


@dataclass(frozen=True)
class _Call:
    """A node with the shape of its first operand, and the computed contents of others."""

    node: ir.Node
    source: Shape
    contents: Mapping[int, Contents]
    knowledge: Knowledge

    @property
    def bounds(self) -> Bounds:
        return self.knowledge.symbolic.declared.bounds

    def result(self) -> Shape | None:
        return self.knowledge.symbolic.shapes.get(self.node.outputs[0].name or "")

    def integers(self, index: int, default: list[int]) -> list[int] | None:
        """The elements of a constant input, the default if it is absent; None if it is computed."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None:
            return default
        array = self.knowledge.constants.get(value.name or "")
        return None if array is None else [int(element) for element in array.ravel()]


def _reshape(call: _Call) -> _Arguments:
    target = reshape_target(call.source, call.result(), call.bounds)
    result = call.result() or ()
    joins_all_but_first = len(result) == 2 < len(call.source) and result[0] is not None and result[0] == call.source[0]
    if joins_all_but_first and target in (None, [0, -1]) and not call.bounds.is_at_least(result[0] or ZERO, 1):
        return _FLATTENED
    return {} if target is None else {1: np.asarray(target, np.int64)}


_FLATTENED: _Arguments = {1: None}
"""The arguments of a Reshape that becomes a Flatten, which knows the sizes of a tensor without elements, too."""


def reshape_target(source: Shape, result: Shape | None, bounds: Bounds) -> list[int] | None:
    """The constant that gives a Reshape this result; None if no constant does."""
    if result is None:
        return None
    target = []
    for axis, size in enumerate(result):
        if size is None or size.number == 0:
            return None
        is_copied = size.number is None and axis < len(source) and source[axis] == size
        target.append(0 if is_copied else -1 if size.number is None else size.number)
    copied = [size for size, place in zip(result, target, strict=True) if place == 0 and size is not None]
    if target.count(-1) > 1 or (-1 in target and any(map(bounds.may_be_empty, copied))):
        return None
    return target


def _expand(call: _Call) -> _Arguments:
    sizes = []
    result = call.result() or ()
    for axis, size in enumerate(result):
        place = axis - len(result) + len(call.source)
        stays = size is not None and size.number is None and place >= 0 and call.source[place] == size
        if size is None or (size.number is None and not stays):
            return {}
        sizes.append(1 if stays else size.number)
    return {1: np.asarray(sizes, np.int64)} if result else {}


def _slice(call: _Call) -> _Arguments:
    computed = {index: content for index, content in call.contents.items() if index in (1, 2)}
    count = max((content.size for content in computed.values()), default=0)
    axes, steps = call.integers(3, list(range(count))), call.integers(4, [1] * count)
    if axes is None or steps is None or any(step < 0 for step in steps):
        return {}
    arguments: _Arguments = {}
    for index, content in computed.items():
        bounds = [_bound(call, call.source[axis], size) for axis, size in zip(axes, content.flat, strict=True)]
        if None not in bounds:
            arguments[index] = np.asarray(bounds, np.int64)
    return arguments


def _bound(call: _Call, size: Size | None, bound: Size | None) -> int | None:
    """A number that bounds a slice along an axis of `size` as `bound` does; None if there is none."""
    if bound is None or bound.number is not None or size is None:
        return None if bound is None else bound.number
    if call.bounds.is_ordered(size, bound):
        return _END
    distance = (size - bound).number  # the bound counts from the end, if it is never before the begin
    if distance is not None and distance > 0 and call.bounds.is_at_least(bound, 0):
        return -distance
    return None


def _resize(call: _Call) -> _Arguments:
    """Scales instead of sizes that are multiples of the operand's."""
    content = call.contents.get(3)
    policy = call.node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if content is None or "axes" in call.node.attributes or policy != "stretch":
        return {}
    scales = []
    for size, result in zip(call.source, content.flat, strict=True):
        factor = None if size is None or not isinstance(result, Size) else exact_quotient(result, size)
        if factor is None or factor.number is None or not 0 < factor.number < _LARGEST_SCALE:
            return {}
        scales.append(factor.number)
    return {2: np.asarray(scales, np.float32), 3: None}


_LARGEST_SCALE = 64
"""Sizes times such a scale are exact in float32 up to 2^18, and for every size if it is a power of two."""
_RULES = {"Reshape": _reshape, "Expand": _expand, "Slice": _slice, "Resize": _resize}
