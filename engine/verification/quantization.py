"""How far rounding moves the outputs of a quantised model.

Where a float becomes an integer (QuantizeLinear, DynamicQuantizeLinear), rounding in the last place of the float turns
some elements into the next integer: a whole step of the scale, which everything behind sees. Two right models differ in
a few such elements. What that does to the outputs is measured: the original runs again with steps thrown in, each
quantiser seeing one element in a hundred (one at least, on average) moved by one step of its scale, up or down. An
output may then differ by ``FACTOR`` times the most that this does to any of its elements, and in the root mean square
by as much as this does. At a dequantised output that is a step in a few elements, where a scale that is wrong by a
percent changes a third of them. One step of its own scale in one element is always granted to such an output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, inliner, numpy_helper

from .compare import distances, to_double
from .run import session_options
from .source import Source
from .structure import Structure
from .values import Feeds, RunError, Value, leaves, one_line

FACTOR = 1.5
"""Below two: where one step is all that an element sees, one that is two steps off does not pass."""
_SHARE = 0.01
"""Rounding in single precision moves fewer than one element in a thousand, a scale that is off by 1 % one in three."""
_DRAWS = 4
_PREFIX = "eqfuse.step."
_QUANTIZERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})


@dataclass(frozen=True)
class Steps:
    """What steps of the quantisers do to an output: the most to an element, and the root mean square over all."""

    largest: float
    rms: float

    def allow(self, expected: Value, found: Value) -> bool:
        """Whether a result is as near as that, with NaN and infinities in the same places."""
        seen = _moved(expected, found)
        return seen is not None and seen.largest <= FACTOR * self.largest and seen.rms <= FACTOR * self.rms

    def worst(self, other: Steps) -> Steps:
        """Both taken together."""
        return Steps(max(self.largest, other.largest), max(self.rms, other.rms))


def _moved(expected: Value, found: Value) -> Steps | None:
    """How far two values are apart; None where they cannot be subtracted."""
    ones, others = leaves(expected), leaves(found)
    if [(leaf.shape, leaf.dtype) for leaf in ones] != [(leaf.shape, leaf.dtype) for leaf in others]:
        return None
    if any(leaf.dtype.kind in "OUS" for leaf in ones):
        return None
    pairs = zip(ones, others, strict=True)
    distance = np.concatenate([np.zeros(0), *(distances(to_double(a), to_double(b)).reshape(-1) for a, b in pairs)])
    mean = float(np.mean(np.square(distance))) if distance.size else 0.0
    return Steps(float(distance.max(initial=0.0)), math.sqrt(mean))


def quantizers(structure: Structure) -> list[onnx.NodeProto]:
    """The nodes that turn floats which depend on the inputs into integers."""
    nodes = structure.graph.node
    return [node for node in nodes if node.op_type in _QUANTIZERS and node.input[0] in structure.input_dependent]


class Dithered:
    """The original with steps thrown in at its quantisers."""

    def __init__(self, source: Source, structure: Structure) -> None:
        """Load the model. Raises RunError where it cannot be had."""
        try:
            model = onnx.load(source.path)
            model = inliner.inline_local_functions(model) if model.functions else model
            _throw_in(model.graph, {node.output[0] for node in quantizers(structure)})
            content = model.SerializeToString()
            self._session = onnxruntime.InferenceSession(content, session_options(), providers=["CPUExecutionProvider"])
        except Exception as error:  # exceptions of the runtime and of protobuf share no base class of their own
            raise RunError(one_line(error)) from error
        self._structure = structure

    def steps(self, feeds: Feeds, outputs: Mapping[str, Value]) -> dict[str, Steps]:
        """What steps do to each of the original's outputs that is a float or was quantised. Raises RunError."""
        fed = {value.name: feeds[value.name] for value in self._session.get_inputs()}
        names = [name for name, value in outputs.items() if self._counts_in_steps(name, value)]
        found = {name: self._one_step(name, outputs[name]) for name in names}
        for _ in range(_DRAWS):
            try:
                results = self._session.run(names, fed)
            except Exception as error:  # as above
                raise RunError(one_line(error)) from error
            for name, result in zip(names, results, strict=True):
                seen = _moved(outputs[name], result)
                if seen is not None and math.isfinite(seen.largest):
                    found[name] = seen.worst(found[name])
        return found

    def _one_step(self, name: str, value: Value) -> Steps:
        """One step of an output's own scale in one element; nothing where it has none."""
        origin = self._structure.origin(name)
        size = sum(leaf.size for leaf in leaves(value))
        if origin is None or not size or origin.op_type not in _QUANTIZERS | {"DequantizeLinear"}:
            return Steps(0.0, 0.0)
        scale = self._structure.constant(origin.input[1]) if origin.op_type == "DequantizeLinear" else np.ones(1)
        step = 0.0 if scale is None or not scale.size else float(np.max(np.abs(scale)))
        return Steps(step, step / math.sqrt(size))

    def _counts_in_steps(self, name: str, value: Value) -> bool:
        """Floats do, and integers that a quantiser gave; others follow from comparisons."""
        if all(leaf.dtype.kind == "f" for leaf in leaves(value)):
            return True
        origin = self._structure.origin(name)
        return origin is not None and origin.op_type in _QUANTIZERS


def _throw_in(graph: onnx.GraphProto, quantized: set[str]) -> None:
    """Put a step into some elements before each quantiser that gives one of the values; in place."""
    one_percent = numpy_helper.from_array(np.asarray(_SHARE, np.float32), f"{_PREFIX}share")
    graph.initializer.append(one_percent)
    nodes = list(graph.node)
    del graph.node[:]
    for number, node in enumerate(nodes):
        if node.op_type in _QUANTIZERS and node.output[0] in quantized:
            graph.node.extend(_step_nodes(node, f"{_PREFIX}{number}.", number))
            node.input[0] = f"{_PREFIX}{number}.x"
        graph.node.append(node)


def _step_nodes(node: onnx.NodeProto, prefix: str, seed: int) -> Iterator[onnx.NodeProto]:
    """Nodes that give ``x``: what the quantiser reads, a step up or down added to some elements.

    Where channels have scales of their own, the step is the mean of these; a dynamic quantiser keeps its range.
    """

    def make(operator: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(operator, inputs, [prefix + output], **attributes)

    x = node.input[0]
    if node.op_type == "DynamicQuantizeLinear":
        names = [prefix + name for name in ("q", "scale", "zero")]
        yield helper.make_node("DynamicQuantizeLinear", [x], names)
        scale = prefix + "scale"
    else:
        scale = node.input[1]
    yield make("ReduceMean", [scale], "step", keepdims=0)
    yield make("RandomUniformLike", [x], "chance", low=0.0, high=1.0, seed=float(2 * seed + 1))
    yield make("RandomUniformLike", [x], "way", low=-1.0, high=1.0, seed=float(2 * seed + 2))
    yield make("Sign", [prefix + "way"], "sign")
    yield make("Size", [x], "size")
    yield make("Cast", [prefix + "size"], "count", to=TensorProto.FLOAT)
    yield make("Reciprocal", [prefix + "count"], "one")
    yield make("Max", [prefix + "one", f"{_PREFIX}share"], "share")
    yield make("Less", [prefix + "chance", prefix + "share"], "hit")
    yield make("Cast", [prefix + "hit"], "chosen", to=TensorProto.FLOAT)
    yield make("Mul", [prefix + "sign", prefix + "step"], "move")
    yield make("Mul", [prefix + "chosen", prefix + "move"], "moved")
    yield make("Add", [x, prefix + "moved"], "free")
    yield make("ReduceMin", [x], "least", keepdims=0)
    yield make("ReduceMax", [x], "most", keepdims=0)
    yield make("Max", [prefix + "free", prefix + "least"], "above")
    yield make("Min", [prefix + "above", prefix + "most"], "x")


def note_on(steps: Steps) -> str:
    """What a message says of a difference that steps do not explain."""
    return f"steps of its scales explain {FACTOR * steps.largest:.3g}, {FACTOR * steps.rms:.3g} in the root mean square"
