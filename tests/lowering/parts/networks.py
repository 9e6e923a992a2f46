"""Models of parts, drawn by a seed: Concat, Split and Slice in any order between operators of many kinds.

A network has several trees, which share the model's inputs. All values of a tree have the same shape but along one
axis, so any of them can be joined with any other, cut, and read by several operators; some of these are outputs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ..small_models import Array, model

Shape = tuple[int, ...]
CHANNELS, COLUMNS = 8, 12
"""Channels of the input maps, columns of the input rows."""
SIZES: Sequence[Mapping[str, int]] = ({"N": 1, "H": 6, "W": 8, "L": 7}, {"N": 2, "H": 9, "W": 5, "L": 4})
"""Sizes of the dimensions if they are dynamic; the first ones also if they are static."""
MOST_EXTENT = 40
"""The most elements of an axis along which values are joined."""
_STEPS = 8
"""Operators that are drawn for a tree, beside those that a step needs several of."""


@dataclass(frozen=True)
class Value:
    """A tensor of a tree, by its name, and its shape at the first sizes."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Network:
    """A model, and the sizes that its dynamic dimensions are to have in turn."""

    proto: onnx.ModelProto
    sizes: Sequence[Mapping[str, int]]

    def feeds(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        """Normal numbers for the inputs at these sizes."""
        generator = np.random.default_rng(1)
        shapes = {
            port.name: [d.dim_value or sizes[d.dim_param] for d in port.type.tensor_type.shape.dim]
            for port in self.proto.graph.input
        }
        return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def draw_network(seed: int, trees: int) -> Network:
    """A network with that many trees. The dimensions of every third seed's are dynamic."""
    builder = Builder(np.random.default_rng(seed), is_dynamic=seed % 3 == 2)
    for number in range(trees):
        builder.add_tree(number)
    return builder.network()


@dataclass
class Builder:
    """The nodes and constants of a network so far."""

    generator: np.random.Generator
    is_dynamic: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    """The ranks of the outputs, by name."""
    prefix: str = ""

    def network(self) -> Network:
        """The model of all trees that were added."""
        first = SIZES[0]
        ports: dict[str, Sequence[int | str]] = {
            "maps": ("N", CHANNELS, "H", "W"), "rows": ("N", "L", COLUMNS), "table": ("L", COLUMNS)
        }  # fmt: skip
        used = {name for node in self.nodes for name in node.input}
        inputs = {
            name: shape if self.is_dynamic else [first[each] if isinstance(each, str) else each for each in shape]
            for name, shape in ports.items() if name in used
        }  # fmt: skip
        outputs = {name: [None] * rank for name, rank in self.outputs.items()}
        return Network(model(self.nodes, inputs, outputs, **self.constants), SIZES if self.is_dynamic else SIZES[:1])

    def add_tree(self, number: int) -> None:
        """Draw the values of a tree from one of the inputs, and from a stored tensor if sizes are fixed. What nothing
        reads is an output, and some of the others."""
        self.prefix = f"t{number}_"
        sizes = SIZES[0]
        sources = {
            "maps": (sizes["N"], CHANNELS, sizes["H"], sizes["W"]), "rows": (sizes["N"], sizes["L"], COLUMNS),
            "table": (sizes["L"], COLUMNS),
        }  # fmt: skip
        source = ("maps", "rows", "maps", "table")[number % 4]
        shape = sources[source]
        last = 1 if source == "maps" else len(shape) - 1
        axis = last if self.is_dynamic or self.draw(0, 3) else self.draw(0, len(shape) - 1)
        given = [Value(source, shape)]
        if not self.is_dynamic:
            given.append(Value(self.weight(*shape), shape))
        tree = Tree(self, axis, list(given))
        for _ in range(_STEPS):
            tree.grow()
        read = {name for node in self.nodes for name in node.input}
        for value in tree.values[len(given) :]:
            if value.name not in read or not self.draw(0, 5):
                self.outputs[value.name] = len(shape)

    def draw(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self.generator.integers(low, high + 1))

    def pick(self, among: Sequence[Any]) -> Any:
        return among[self.draw(0, len(among) - 1)]

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        """The names of the results of a new node."""
        names = [f"{self.prefix}{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names

    def weight(self, *shape: int) -> str:
        """A constant for products along all axes but the first, whose results are as large as the operands."""
        scale = prod(shape[1:]) ** -0.5
        return self.constant((self.generator.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, array: Array) -> str:
        name = f"{self.prefix}constant_{len(self.constants)}"
        self.constants[name] = array
        return name

    def indices(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))


@dataclass
class Tree:
    """Values that are alike but along an axis."""

    builder: Builder
    axis: int
    values: list[Value]

    def grow(self) -> None:
        """Add what one step makes: a result, a join, or parts."""
        steps = (self._make, self._join, self._make, self._join, self._make, self._split, self._slice)
        self.builder.pick(steps)()

    def _take(self) -> Value:
        """A value, more often one of the last."""
        return self.values[-1 - min(self.builder.draw(0, 3), self.builder.draw(0, 8), len(self.values) - 1)]

    def _written_axis(self, value: Value) -> int:
        """The axis as a node may name it: counted from the front, or from behind."""
        return self.axis - len(value.shape) * self.builder.draw(0, 1)

    def _add(self, name: str, shape: Sequence[int]) -> None:
        self.values.append(Value(name, tuple(shape)))

    def _add_part(self, name: str, like: Value, extent: int) -> None:
        self._add(name, (*like.shape[: self.axis], extent, *like.shape[self.axis + 1 :]))

    def _make(self) -> None:
        value = self._take()
        functions = MAPS if len(value.shape) == 4 else ROWS
        result = self.builder.pick(functions)(self.builder, value, self.axis)
        if result is not None:
            self.values.append(result)

    def _join(self) -> None:
        values = [self._take() for _ in range(self.builder.draw(2, 4))]
        extent = sum(value.shape[self.axis] for value in values)
        if extent > MOST_EXTENT:
            return
        names = [value.name for value in values]
        (name,) = self.builder.node("Concat", names, axis=self._written_axis(values[0]))
        self._add_part(name, values[0], extent)

    def _split(self) -> None:
        value = self._take()
        extent, parts = value.shape[self.axis], self.builder.draw(2, 3)
        if extent < parts:
            return
        ends = sorted(self.builder.generator.choice(np.arange(1, extent), parts - 1, replace=False))
        sizes = [int(size) for size in np.diff([0, *ends, extent])]
        names = self.builder.node(
            "Split", [value.name, self.builder.indices(*sizes)], parts, axis=self._written_axis(value)
        )
        for name, size in zip(names, sizes, strict=True):
            self._add_part(name, value, size)

    def _slice(self) -> None:
        value, builder = self._take(), self.builder
        extent = value.shape[self.axis]
        first = builder.draw(0, extent - 1)
        end = builder.draw(first + 1, extent)
        starts = builder.indices(first - extent * builder.draw(0, 1))
        ends = builder.indices(int(np.iinfo(np.int64).max) if end == extent and builder.draw(0, 1) else end)
        (name,) = builder.node(
            "Slice", [value.name, starts, ends, builder.indices(self._written_axis(value)), builder.indices(1)]
        )
        self._add_part(name, value, end - first)


Function = Callable[[Builder, Value, int], Value | None]
"""Adds the nodes of a function of a value, which may change its extent along the axis; None if it does not fit."""


def _elementwise(op: str) -> Function:
    def add(builder: Builder, value: Value, _: int) -> Value:
        return Value(builder.node(op, [value.name])[0], value.shape)

    return add


def _with_constant(op: str) -> Function:
    """A constant along the last axis, or of the channels."""

    def add(builder: Builder, value: Value, axis: int) -> Value:
        along = 1 if len(value.shape) == 4 else len(value.shape) - 1
        along = along if not builder.is_dynamic or along == axis else axis
        shape = [extent if place == along else 1 for place, extent in enumerate(value.shape)]
        return Value(builder.node(op, [value.name, builder.weight(*shape)])[0], value.shape)

    return add


def _gather(builder: Builder, value: Value, axis: int) -> Value:
    extent = value.shape[axis]
    numbers = [builder.draw(-extent, extent - 1) for _ in range(builder.draw(1, 2 * CHANNELS))]
    (name,) = builder.node("Gather", [value.name, builder.indices(*numbers)], axis=axis)
    return Value(name, (*value.shape[:axis], len(numbers), *value.shape[axis + 1 :]))


def _pad(builder: Builder, value: Value, axis: int) -> Value:
    rank, (before, behind) = len(value.shape), (builder.draw(0, 3), builder.draw(0, 3))
    pads = [0] * (2 * rank)
    pads[axis], pads[axis + rank] = before, behind
    (name,) = builder.node("Pad", [value.name, builder.indices(*pads)], mode="constant")
    return Value(name, (*value.shape[:axis], value.shape[axis] + before + behind, *value.shape[axis + 1 :]))


def _gate(builder: Builder, value: Value, _: int) -> Value:
    (gate,) = builder.node("Sigmoid", [value.name])
    return Value(builder.node("Mul", [value.name, gate])[0], value.shape)


def _softmax(builder: Builder, value: Value, axis: int) -> Value:
    chosen = axis if builder.draw(0, 1) else len(value.shape) - 1
    return Value(builder.node("Softmax", [value.name], axis=chosen)[0], value.shape)


def _centred(builder: Builder, value: Value, axis: int) -> Value:
    """Without the mean over the axis, or the last one."""
    chosen = axis if builder.draw(0, 1) else len(value.shape) - 1
    (mean,) = builder.node("ReduceMean", [value.name], axes=[chosen], keepdims=1)
    return Value(builder.node("Sub", [value.name, mean])[0], value.shape)


def _convolution(kernel: int, kind: str = "") -> Function:
    def add(builder: Builder, value: Value, axis: int) -> Value | None:
        batch, channels, *image = value.shape
        group = {"depthwise": channels, "grouped": 2 if channels % 2 == 0 else 1}.get(kind, 1)
        results = group * builder.draw(1, 8) if axis == 1 and kind != "depthwise" else channels
        weight = builder.weight(results, channels // group, kernel, kernel)
        (name,) = builder.node("Conv", [value.name, weight], pads=[kernel // 2] * 4, group=group)
        return Value(name, (batch, results, *image))

    return add


def _pool(op: str) -> Function:
    def add(builder: Builder, value: Value, _: int) -> Value:
        return Value(builder.node(op, [value.name], kernel_shape=[3, 3], pads=[1] * 4)[0], value.shape)

    return add


def _scaled_by_mean(builder: Builder, value: Value, axis: int) -> Value:
    """Squeeze and excitation: maps times what a product makes of their means."""
    channels = value.shape[1]
    (mean,) = builder.node("GlobalAveragePool", [value.name])
    (gate,) = builder.node("Conv", [mean, builder.weight(channels, channels, 1, 1)])
    return Value(builder.node("Mul", [value.name, gate])[0], value.shape)


def _down_and_up(builder: Builder, value: Value, _: int) -> Value | None:
    """Of half the height and width, and as large again, by Resize or ConvTranspose."""
    channels = value.shape[1]
    if builder.is_dynamic or any(extent % 2 for extent in value.shape[2:]):
        return None
    (half,) = builder.node("Conv", [value.name, builder.weight(channels, channels, 3, 3)], strides=[2, 2], pads=[1] * 4)
    if builder.draw(0, 1):
        weight = builder.weight(channels, channels, 2, 2)
        (name,) = builder.node("ConvTranspose", [half, weight], strides=[2, 2])
    else:
        scales = builder.constant(np.array([1, 1, 2, 2], np.float32))
        mode = builder.pick(["nearest", "linear"])
        (name,) = builder.node("Resize", [half, "", scales], mode=mode)
    return Value(name, value.shape)


def _product_of_last(builder: Builder, value: Value, axis: int) -> Value | None:
    """A product along the channels of maps, which are transposed for it."""
    channels = value.shape[1]
    results = builder.draw(1, 20) if axis == 1 else channels
    (last,) = builder.node("Transpose", [value.name], perm=[0, 2, 3, 1])
    (product,) = builder.node("MatMul", [last, builder.weight(channels, results)])
    (name,) = builder.node("Transpose", [product], perm=[0, 3, 1, 2])
    return Value(name, (value.shape[0], results, *value.shape[2:]))


def _product(builder: Builder, value: Value, axis: int) -> Value:
    columns = value.shape[-1]
    results = builder.draw(1, 24) if axis == len(value.shape) - 1 else columns
    weight = builder.weight(columns, results)
    if len(value.shape) == 2 and builder.draw(0, 1):
        (name,) = builder.node("Gemm", [value.name, weight, builder.weight(results)])
    else:
        (name,) = builder.node("MatMul", [value.name, weight])
    return Value(name, (*value.shape[:-1], results))


def _attention(builder: Builder, value: Value, _: int) -> Value:
    """Rows weighted by how alike they are."""
    perm = [*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2]
    (turned,) = builder.node("Transpose", [value.name], perm=perm)
    (scores,) = builder.node("MatMul", [value.name, turned])
    (weights,) = builder.node("Softmax", [scores], axis=-1)
    return Value(builder.node("MatMul", [weights, value.name])[0], value.shape)


def _layer_norm(builder: Builder, value: Value, axis: int) -> Value:
    gain = builder.constant(builder.generator.random(value.shape[-1]).astype(np.float32))
    return Value(builder.node("LayerNormalization", [value.name, gain], axis=-1)[0], value.shape)


def _recurrence(op: str) -> Function:
    def add(builder: Builder, value: Value, axis: int) -> Value | None:
        if len(value.shape) != 3:
            return None
        columns, gates = value.shape[-1], {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
        results = builder.draw(1, 9) if axis == 2 else columns
        weights = [builder.weight(1, gates * results, width) for width in (columns, results)]
        (all_steps,) = builder.node(op, [value.name, *weights], hidden_size=results)
        (name,) = builder.node("Squeeze", [all_steps, builder.indices(1)])
        return Value(name, (*value.shape[:-1], results))

    return add


def _running_sum(builder: Builder, value: Value, axis: int) -> Value:
    (half,) = builder.node("Mul", [value.name, builder.constant(np.array(0.5, np.float32))])
    return Value(builder.node("CumSum", [half, builder.constant(np.array(axis))])[0], value.shape)


BOTH: Sequence[Function] = (
    *map(_elementwise, ("Relu", "Tanh", "Neg", "Abs")), _with_constant("Add"), _with_constant("Mul"), _gather, _pad,
    _gate, _softmax, _centred,
)  # fmt: skip
MAPS: Sequence[Function] = (
    *BOTH, _convolution(1), _convolution(1), _convolution(3), _convolution(3), _convolution(3, "depthwise"),
    _convolution(3, "grouped"), _pool("MaxPool"), _pool("AveragePool"), _scaled_by_mean, _down_and_up, _product_of_last,
)  # fmt: skip
ROWS: Sequence[Function] = (
    *BOTH, _product, _product, _attention, _layer_norm, *map(_recurrence, ("LSTM", "GRU", "RNN")), _running_sum,
)  # fmt: skip
