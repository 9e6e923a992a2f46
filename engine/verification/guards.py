"""Operators that choose between values, and the sides that no run reached.

Probes, which are additional outputs, give the least and the largest of the numbers by which each such operator decides.
A side that no run reaches was not compared: a Where whose condition always holds, or a Clip that never clips.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from .runs.run import OnnxRuntime
from .runs.source import Source
from .runs.structure import Structure
from .runs.values import Feeds, RunError, Value

_PREFIX = "eqfuse.probe."
_MOST_GUARDS = 256
_LARGEST_FILE = 512 << 20
"""Larger models, in bytes, get no probes, since adding them reads the whole model into memory."""
_BY_SIGN = frozenset({"Relu", "LeakyRelu", "PRelu"})


@dataclass(frozen=True)
class Side:
    """A choice of an operator. It is reached if a probed number is below (or above) the `limit`.

    `unseen` is the message for a side that was never reached.
    """

    unseen: str
    is_below: bool
    limit: float


@dataclass(frozen=True)
class Guard:
    """An operator that chooses by the value `probed`, or by the difference of two values."""

    label: str
    probed: tuple[str, ...]
    sides: tuple[Side, ...]


def guards_of(source: Source, structure: Structure) -> list[Guard]:
    """The operators of the main graph that choose by values which depend on the inputs."""
    guards = []
    for node in source.graph.node:
        guard = _guard(node, structure) if node.domain in ("", "ai.onnx") else None
        if guard is not None and not structure.input_dependent.isdisjoint(guard.probed):
            guards.append(guard)
    return guards[:_MOST_GUARDS]


def _guard(node: onnx.NodeProto, structure: Structure) -> Guard | None:
    label = f"{node.op_type} {next((name for name in node.output if name), node.name)!r}"
    if node.op_type in ("Where", "If"):
        sides = Side("its condition never held", False, 0.5), Side("its condition always held", True, 0.5)
        return Guard(label, (node.input[0],), sides)
    if node.op_type in _BY_SIGN:
        sides = Side("nothing below zero", True, 0.0), Side("nothing above zero", False, 0.0)
        return Guard(label, (node.input[0],), sides)
    if node.op_type in ("Max", "Min") and len(set(node.input)) == len(node.input) == 2:
        sides = Side("its first operand was never the smaller", True, 0.0), Side("never the larger", False, 0.0)
        return Guard(label, tuple(node.input), sides)
    if node.op_type == "Clip":
        limits = tuple(_clip_sides(node, structure))
        return Guard(label, (node.input[0],), limits) if limits else None
    return None


def _clip_sides(node: onnx.NodeProto, structure: Structure) -> Iterator[Side]:
    """The known bounds: attributes before opset 11, operands since then."""
    attributes = {item.name: item.f for item in node.attribute}
    for index, name, words in ((1, "min", "nothing below its minimum"), (2, "max", "nothing above its maximum")):
        operand = node.input[index] if len(node.input) > index else ""
        constant = structure.constant(operand) if operand else None
        limit = attributes.get(name) if constant is None else float(constant.reshape(-1)[0])
        if limit is not None:
            yield Side(words, name == "min", limit)


def _probes(index: int, guard: Guard) -> tuple[list[onnx.NodeProto], tuple[str, str]]:
    """Nodes that compute the least and the largest probed value of any type, and the names of both."""
    names = [f"{_PREFIX}{index}.{number}" for number in range(len(guard.probed))]
    nodes = [
        helper.make_node("Cast", [probed], [name], to=TensorProto.FLOAT)
        for probed, name in zip(guard.probed, names, strict=True)
    ]
    value = names[0]
    if len(names) == 2:
        value = f"{_PREFIX}{index}.difference"
        nodes.append(helper.make_node("Sub", names, [value]))
    ends = f"{_PREFIX}{index}.least", f"{_PREFIX}{index}.largest"
    for operator, end in zip(("ReduceMin", "ReduceMax"), ends, strict=True):
        nodes.append(helper.make_node(operator, [value], [end], keepdims=0))
    return nodes, ends


class ProbedRuntime:
    """The original in ONNX Runtime, with a record of the sides that its guards have not reached."""

    def __init__(self, source: Source, structure: Structure) -> None:
        """Load the model, with probes if it accepts them. Raises RunError."""
        self._source = source
        self._plain: OnnxRuntime | None = None
        guards = guards_of(source, structure) if source.path.stat().st_size <= _LARGEST_FILE else []
        probes = [_probes(index, guard) for index, guard in enumerate(guards)]
        self._guards = dict(zip((ends for _, ends in probes), guards, strict=True))
        self._unseen = {guard.label: guard.sides for guard in guards}
        outputs = [end for ends in self._guards for end in ends]
        try:
            self._runtime = OnnxRuntime(source, outputs, [node for nodes, _ in probes for node in nodes])
        except RunError:
            if not probes:
                raise
            self._drop_probes()

    def run(self, feeds: Feeds) -> dict[str, Value]:
        """The model's own outputs. Raises RunError."""
        try:
            outputs = self._runtime.run(feeds)
        except RunError:
            if not self._guards:
                raise
            self._plain = self._plain or OnnxRuntime(self._source)
            outputs = self._plain.run(feeds)  # raises unless the error is due to a probe, such as one of no elements
            self._drop_probes()
            return outputs
        for (least, largest), guard in self._guards.items():
            low, high = float(np.asarray(outputs.pop(least))), float(np.asarray(outputs.pop(largest)))
            self._unseen[guard.label] = tuple(
                side
                for side in self._unseen[guard.label]
                if not (low < side.limit if side.is_below else high > side.limit)
            )
        return outputs

    def _drop_probes(self) -> None:
        self._runtime = self._plain = self._plain or OnnxRuntime(self._source)
        self._guards, self._unseen = {}, {}

    @property
    def missing(self) -> int:
        """The number of sides that no run has reached yet."""
        return sum(map(len, self._unseen.values()))

    def describe_unreached(self) -> tuple[str, ...]:
        """A line for each operator with sides that no run reached."""
        return tuple(f"{label}: {', '.join(s.unseen for s in sides)}" for label, sides in self._unseen.items() if sides)
