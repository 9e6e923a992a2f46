"""Quantised graphs, and what ONNX Runtime makes of them as they are written; a drawing of one, operator by operator.

Values between operators have 8 bits, a scale and a zero point, which are chosen by the range of what a graph computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from math import ceil, log2
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ..onnx_runtime import outputs_of

Array = np.ndarray[Any, Any]
OPSET = 17
CONTRIBUTED = "com.microsoft"
LEAST_VALUES = 3
"""Different elements of an output; with fewer a graph is drawn again."""


@dataclass(frozen=True)
class QuantisedGraph:
    """Nodes that compute `output` from `inputs`; `steps` is by how much elements may differ from ONNX Runtime's."""

    nodes: tuple[onnx.NodeProto, ...]
    stored: Mapping[str, Array]
    inputs: Mapping[str, Array]
    output: str
    steps: int

    @property
    def operators(self) -> str:
        """The types of its nodes, in order."""
        return " ".join(node.op_type for node in self.nodes)

    @cached_property
    def expected(self) -> Array:
        """What ONNX Runtime computes without its rewriting."""
        (found,) = outputs_of(_model([self], []), self.inputs, as_written=True)
        return found

    @property
    def depends_on_inputs(self) -> bool:
        """Whether elements of the output differ."""
        return len(np.unique(self.expected)) >= LEAST_VALUES


def model_of(graphs: Sequence[QuantisedGraph]) -> onnx.ModelProto:
    """One model with an output for each graph."""
    return _model(graphs, [_port(graph.output, graph.expected) for graph in graphs])


def _model(graphs: Sequence[QuantisedGraph], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
    """With these outputs, or if there are none with outputs whose types ONNX Runtime infers."""
    nodes = [node for graph in graphs for node in graph.nodes]
    inputs = [_port(name, array) for graph in graphs for name, array in graph.inputs.items()]
    tensors = [numpy_helper.from_array(a, name) for graph in graphs for name, a in graph.stored.items()]
    results = outputs or [onnx.ValueInfoProto(name=graph.output) for graph in graphs]
    domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIBUTED, 1)]
    graph = helper.make_graph(nodes, "quantised", inputs, results, tensors)
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def _port(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, int(helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)


def inputs_of(graphs: Sequence[QuantisedGraph]) -> dict[str, Array]:
    """The inputs of all of them."""
    return {name: array for graph in graphs for name, array in graph.inputs.items()}


def assert_within_steps(graphs: Sequence[QuantisedGraph], found: Mapping[str, Array]) -> None:
    """All results are ONNX Runtime's, up to the steps of each graph; the message has the graphs that are not."""
    wrong = []
    for graph in graphs:
        expected, result = graph.expected, found[graph.output]
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape), graph.operators
        with np.errstate(invalid="ignore"):
            off = np.nan_to_num(np.abs(result.astype(float) - expected.astype(float)), nan=np.inf)
        off[(result == expected) | ((result != result) & (expected != expected))] = 0.0
        if off.max(initial=0.0) > graph.steps:
            text = f"{graph.output} ({graph.operators}): {off.max():g} steps, {np.mean(off > graph.steps):.1%}"
            wrong.append(text)
    assert not wrong, f"{len(wrong)} of {len(graphs)} are wrong: " + "; ".join(wrong[:5])


# --- drawing


@dataclass(frozen=True)
class Value:
    """A tensor of 8 bits."""

    name: str
    array: Array
    scale: float
    zero: int

    @property
    def dtype(self) -> str:
        return str(self.array.dtype.name)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)


@dataclass
class Drawing:
    """A graph while it is drawn; `exact`: its scales are powers of two."""

    generator: np.random.Generator
    prefix: str
    exact: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: dict[str, Array] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)

    # --- choices

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.generator.random() < share)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.generator.integers(len(choices)))]

    def scale(self, near: float) -> float:
        """A scale that is at least this one."""
        return float(np.float32(2.0 ** ceil(log2(near)) if self.exact else near * self.generator.uniform(1, 1.3)))

    # --- parts of the model

    def name(self) -> str:
        return f"{self.prefix}_{next(self.numbers)}"

    def constant(self, array: Array) -> str:
        name = self.name()
        self.stored[name] = np.asarray(array)
        return name

    def add(self, operator: str, *operands: str, **attributes: Any) -> str:
        """A node with one result."""
        domain = attributes.pop("domain", "")
        name = self.name()
        self.nodes.append(helper.make_node(operator, list(operands), [name], name, domain=domain, **attributes))
        return name

    def compute(self, name: str) -> Array:
        """The elements of a value, by ONNX Runtime."""
        return QuantisedGraph(tuple(self.nodes), self.stored, self.inputs, name, 0).expected

    def integers(self, shape: Sequence[int], dtype: str, low: int | None = None, high: int | None = None) -> Array:
        limits = np.iinfo(dtype)
        low, high = (limits.min if low is None else low), (limits.max if high is None else high)
        return self.generator.integers(low, high, tuple(shape), dtype=dtype, endpoint=True)

    def input(self, shape: Sequence[int], dtype: str = "") -> Value:
        """An input of 8 bits that uses the whole range of its type."""
        dtype = dtype or self.pick("uint8", "int8")
        name = self.name()
        self.inputs[name] = self.integers(shape, dtype)
        return Value(name, self.inputs[name], self.scale(self.generator.uniform(0.004, 0.06)), self.zero(dtype))

    def zero(self, dtype: str) -> int:
        """A zero point, often at one of the usual places."""
        limits = np.iinfo(dtype)
        return int(self.pick(0, limits.min, (limits.min + limits.max + 1) // 2, self.integers((), dtype)))

    def parameters(self, value: Value) -> list[str]:
        """The scale and the zero point, which is left out now and then if it is 0."""
        scale = self.constant(np.float32(value.scale))
        if value.zero == 0 and self.chance():
            return [scale]
        return [scale, self.constant(np.array(value.zero, value.dtype))]

    def dequantise(self, value: Value) -> str:
        return self.add("DequantizeLinear", value.name, *self.parameters(value))

    def quantise(self, name: str, dtype: str = "") -> Value:
        """A float value as 8 bits, with the scale and zero point of its range, or a part of it that saturates."""
        dtype = dtype or self.pick("uint8", "int8")
        values, limits = self.compute(name), np.iinfo(dtype)
        low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        scale = self.scale(max((high - low) / 255, 1e-6) * self.pick(1.0, 1.0, 0.5))
        zero = int(np.clip(round(limits.min - low / scale), limits.min, limits.max))
        if dtype == "int8" and self.chance(0.3):
            zero = 0
        value = Value("", np.zeros(values.shape, dtype), scale, zero)
        found = self.add("QuantizeLinear", name, *self.parameters(value)[: 1 if dtype == "uint8" and not zero else 2])
        if self.nodes[-1].input[2:] == [] and dtype == "int8":
            self.nodes[-1].input.append(self.constant(np.array(0, dtype)))
        return Value(found, self.compute(found), scale, zero)

    def weight(self, shape: Sequence[int], axis: int, scale: float) -> tuple[str, Array]:
        """A dequantised weight, signed or unsigned, with one scale or one for each place of the axis, and the scales of
        its products with values of the other scale."""
        dtype = self.pick("int8", "int8", "uint8")
        channels = shape[axis] if self.chance() else None
        near = 0.02 * self.generator.uniform(0.5, 2, channels)
        scales = np.vectorize(self.scale)(near).astype(np.float32)
        zero = 0 if dtype == "int8" else self.pick(128, 0, int(self.integers((), "uint8")))
        operands = [self.constant(self.integers(shape, dtype)), self.constant(scales)]
        if zero or self.chance():
            operands.append(self.constant(np.full(np.shape(scales), zero, dtype)))
        attributes = {"axis": axis} if np.ndim(scales) else {}
        name = self.add("DequantizeLinear", *operands, **attributes)
        return name, np.asarray(scales * np.float32(scale), np.float32)

    def bias(self, channels: int, scales: Array) -> str:
        """32 bits at the scales of products."""
        values = self.constant(self.integers((channels,), "int32", -3000, 3000))
        zeros = [self.constant(np.zeros(scales.shape, "int32"))] * self.chance()
        return self.add("DequantizeLinear", values, self.constant(scales), *zeros, **{"axis": 0} if scales.ndim else {})

    def finish(self, output: str, steps: int = 0) -> QuantisedGraph:
        return QuantisedGraph(tuple(self.nodes), dict(self.stored), dict(self.inputs), output, steps)
