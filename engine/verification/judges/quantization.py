"""How far rounding moves the outputs of a quantised model.

When a float becomes an integer (QuantizeLinear, DynamicQuantizeLinear), rounding in the last place of the float turns
some elements into the next integer: a whole step of the scale, which all later operators see. Two correct models differ
in a few such elements. To measure the effect on the outputs, the original runs again with random steps: before each
quantiser, or behind an operator on integers (QLinearConv), one element in a hundred (at least one, on average) moves by
one step of its scale, up or down. An output may
then differ by ``FACTOR`` times the largest effect on any of its elements, and by ``FACTOR`` times the root mean square.
For a dequantised output that is a step in a few elements, while a scale that is wrong by a percent changes a third of
them. Such an output may always differ by one step of its own scale in one element.

A result of the precision "fast" may leave numbers as they are that the original rounds. For it, each element before
each quantiser moves, by up to half a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper

from ....ir.operators.quantization import ROUNDED_OPERANDS, ROUNDED_RESULTS
from ...onnx.runtime_values import open_session
from ..runs.compare import distances, to_double
from ..runs.source import Source, read_source
from ..runs.structure import Structure, rounds_result
from ..runs.values import Feeds, RunError, Value, layout, leaves, one_line

FACTOR = 1.5
"""Less than two, so that an element which is two steps off does not pass if steps move it by one."""
_SHARE = 0.01
"""Rounding in single precision moves fewer than one element in a thousand, a scale that is off by 1 % one in three."""
_HALF = 0.5
"""The most that rounding to an integer moves a number, in steps."""
_DRAWS = 4
"""Runs with random steps, of which the largest effect on an output counts."""
_MOST_DRAWS, _ENOUGH = 16, 64
"""An output of few elements moves less than it may in so few runs: if steps do not explain its difference yet, there
are more, until this many elements of it have moved."""
_PREFIX = "eqfuse.step."
_WITH_STEPS = ROUNDED_OPERANDS | {"QuantizeLinear"}
"""Steps stand before these operators, and behind the others that round."""


@dataclass(frozen=True)
class Steps:
    """The effect of quantisers' steps, or of rounding, on an output: the largest on an element, and the root mean
    square over all."""

    largest: float
    rms: float

    def allow(self, expected: Value, actual: Value) -> bool:
        """Whether steps explain the difference of a result, with NaN and infinities in the same places."""
        difference = measure_distance(expected, actual)
        if difference is None:
            return False
        return difference.largest <= FACTOR * self.largest and difference.rms <= FACTOR * self.rms

    def __str__(self) -> str:
        rms = f"{FACTOR * self.rms:.3g} in the root mean square"
        return f"steps of its scales explain {FACTOR * self.largest:.3g}, {rms}"

    def worst(self, other: Steps) -> Steps:
        """Both taken together."""
        return Steps(max(self.largest, other.largest), max(self.rms, other.rms))


def measure_distance(expected: Value, actual: Value) -> Steps | None:
    """The distance of two values; None if they cannot be subtracted."""
    if layout(expected) != layout(actual):
        return None
    ones, others = leaves(expected), leaves(actual)
    if any(leaf.dtype.kind in "OUS" for leaf in ones):
        return None
    pairs = zip(ones, others, strict=True)
    distance = np.concatenate([np.zeros(0), *(distances(to_double(a), to_double(b)).reshape(-1) for a, b in pairs)])
    mean = float(np.mean(np.square(distance))) if distance.size else 0.0
    return Steps(float(distance.max(initial=0.0)), math.sqrt(mean))


def find_quantizers(structure: Structure, *, of_constants: bool = False) -> list[onnx.NodeProto]:
    """The nodes that round numbers which depend on the inputs to integers, and with `of_constants` all others, too."""
    known = structure.input_dependent
    nodes = [node for node in structure.graph.node if node.output and (of_constants or node.output[0] in known)]
    return [node for node in nodes if node.op_type in ROUNDED_OPERANDS or rounds_result(node)]


class DitheredModel:
    """The original with random steps inserted before its quantisers."""

    def __init__(self, source: Source, structure: Structure, is_fast: bool) -> None:
        """Load the model, with the steps of a result that may leave numbers unrounded if `is_fast`. Raises RunError if
        that fails."""
        try:
            model = onnx.load(source.path)
            model = inliner.inline_local_functions(model) if model.functions else model
            quantizers = find_quantizers(structure, of_constants=is_fast)
            _insert_steps(model.graph, {node.output[0] for node in quantizers}, is_fast)
            self._session = open_session(model)
        except Exception as error:  # exceptions of the runtime and of protobuf share no base class of their own
            raise RunError(one_line(error)) from error
        self._structure = structure

    def steps(self, feeds: Feeds, outputs: Mapping[str, Value], actual: Mapping[str, Value]) -> dict[str, Steps]:
        """The effect of steps on each output of the original that is a float or was quantised. `actual` are the outputs
        of the result. Raises RunError."""
        fed = {value.name: feeds[value.name] for value in self._session.get_inputs()}
        names = [name for name, value in outputs.items() if self._counts_in_steps(name, value)]
        largest = {name: self._one_step(name, outputs[name]) for name in names}

        def is_open(name: str, draws: int) -> bool:
            few = draws * sum(leaf.size for leaf in leaves(outputs[name])) < _ENOUGH
            return few and not largest[name].allow(outputs[name], actual[name])

        for draws in range(_MOST_DRAWS):
            if draws >= _DRAWS and not any(is_open(name, draws) for name in names):
                break
            try:
                results = self._session.run(names, fed)
            except Exception as error:  # as above
                raise RunError(one_line(error)) from error
            for name, result in zip(names, results, strict=True):
                distance = measure_distance(outputs[name], result)
                if distance is not None and math.isfinite(distance.largest):
                    largest[name] = distance.worst(largest[name])
        return largest

    def _one_step(self, name: str, value: Value) -> Steps:
        """One step of an output's own scale in one element; zeros if it has no scale."""
        origin = self._structure.origin(name)
        size = sum(leaf.size for leaf in leaves(value))
        is_number = origin is not None and origin.op_type == "DequantizeLinear"
        if origin is None or not size or not (is_number or rounds_result(origin)):
            return Steps(0.0, 0.0)
        scale = self._structure.constant(origin.input[1]) if is_number else np.ones(1)
        step = 0.0 if scale is None or not scale.size else float(np.max(np.abs(scale)))
        return Steps(step, step / math.sqrt(size))

    def _counts_in_steps(self, name: str, value: Value) -> bool:
        """Whether an output is a float or comes from a quantiser; other integers follow from comparisons."""
        if all(leaf.dtype.kind == "f" for leaf in leaves(value)):
            return True
        origin = self._structure.origin(name)
        return origin is not None and rounds_result(origin)


def largest_steps(
    path: Path, feeds: Feeds, expected: Mapping[str, Value], actual: Mapping[str, Value]
) -> dict[str, float]:
    """By how much each output of a quantised model in a file may be from `expected` on these inputs, since single steps
    of its quantisers move it as far; {} for a model that rounds nothing, and if that cannot be measured.

    If `expected` is of a runtime that rewrites the model, its distance from the model as written counts, too.
    """
    source = read_source(path, "original")
    structure = Structure(source.structure)
    if not find_quantizers(structure):
        return {}
    try:
        steps = DitheredModel(source, structure, is_fast=False).steps(feeds, expected, actual)
    except RunError:
        return {}
    return {name: FACTOR * each.largest for name, each in steps.items()}


def _insert_steps(graph: onnx.GraphProto, quantized: set[str], is_fast: bool) -> None:
    """Insert nodes, in place, that move some elements by a step where these values are rounded; if `is_fast`, all of
    them by up to half a step."""
    for name, number in (("share", 1.0 if is_fast else _SHARE), ("farthest", _HALF if is_fast else 1.0)):
        graph.initializer.append(numpy_helper.from_array(np.asarray(number, np.float32), _PREFIX + name))
    nodes = list(graph.node)
    del graph.node[:]
    for number, node in enumerate(nodes):
        prefix = f"{_PREFIX}{number}."
        is_rounded = bool(node.output) and node.output[0] in quantized
        if is_rounded and node.op_type in _WITH_STEPS:
            graph.node.extend(_step_nodes(node, prefix, number, is_fast))
            node.input[0] = f"{prefix}x"
        has_steps_behind = is_rounded and node.op_type not in _WITH_STEPS
        behind = list(_round_again(node, prefix, number, is_fast)) if has_steps_behind else []
        graph.node.extend([node, *behind])


def _round_again(node: onnx.NodeProto, prefix: str, seed: int, is_fast: bool) -> Iterator[onnx.NodeProto]:
    """Rename, in place, the result of an operator on integers; nodes that make numbers of it, move them by steps and
    round them under its own name."""
    place = ROUNDED_RESULTS[node.op_type]
    parameters = node.input[place : place + 2]
    result, node.output[0] = node.output[0], f"{prefix}integers"
    yield helper.make_node("DequantizeLinear", [f"{prefix}integers", *parameters], [f"{prefix}numbers"])
    quantizer = helper.make_node("QuantizeLinear", [f"{prefix}numbers", *parameters], [result])
    yield from _step_nodes(quantizer, prefix, seed, is_fast)
    quantizer.input[0] = f"{prefix}x"
    yield quantizer


def _step_nodes(node: onnx.NodeProto, prefix: str, seed: int, is_fast: bool) -> Iterator[onnx.NodeProto]:
    """Nodes that compute ``x``: the operand of the quantiser, with some elements moved by a step up or down, or
    all of them by a part of half a step if `is_fast`.

    If channels have scales of their own, the step is their mean; a dynamic quantiser keeps its range.
    """

    def make(operator: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(operator, inputs, [prefix + output], **attributes)

    x = node.input[0]
    if node.op_type in ROUNDED_OPERANDS:
        names = [prefix + name for name in ("q", "scale", "zero")]
        yield helper.make_node("DynamicQuantizeLinear", [x], names)
        scale = prefix + "scale"
    else:
        scale = node.input[1]
    yield make("ReduceMean", [scale], "step", keepdims=0)
    yield make("RandomUniformLike", [x], "chance", low=0.0, high=1.0, seed=float(2 * seed + 1))
    yield make("RandomUniformLike", [x], "way", low=-1.0, high=1.0, seed=float(2 * seed + 2))
    yield make("Identity" if is_fast else "Sign", [prefix + "way"], "sign")
    yield make("Size", [x], "size")
    yield make("Cast", [prefix + "size"], "count", to=TensorProto.FLOAT)
    yield make("Reciprocal", [prefix + "count"], "one")
    yield make("Max", [prefix + "one", f"{_PREFIX}share"], "share")
    yield make("Less", [prefix + "chance", prefix + "share"], "hit")
    yield make("Cast", [prefix + "hit"], "chosen", to=TensorProto.FLOAT)
    yield make("Mul", [prefix + "step", f"{_PREFIX}farthest"], "far")
    yield make("Mul", [prefix + "sign", prefix + "far"], "move")
    yield make("Mul", [prefix + "chosen", prefix + "move"], "moved")
    yield make("Add", [x, prefix + "moved"], "free")
    yield make("ReduceMin", [x], "least", keepdims=0)
    yield make("ReduceMax", [x], "most", keepdims=0)
    yield make("Max", [prefix + "free", prefix + "least"], "above")
    yield make("Min", [prefix + "above", prefix + "most"], "x")
