"""Random ONNX graphs: valid, typed, and of values that rounding leaves alone.

Every node is run the moment it is added, so that its type is known, whatever the runtime refuses is left out, and
operands can be chosen by their values: a logarithm of positive numbers, a quotient by numbers that are not small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
OPSETS = (11, 13, 13, 17, 17, 18, 18, 20, 21, 22)
LARGEST = 1e4
"""Values beyond it are rarely kept."""
MOST_ELEMENTS = 3000
IR_VERSION = 8


class Misfit(Exception):
    """Nothing fits here, or the runtime refuses the node."""


@dataclass(frozen=True)
class Graph:
    """A model and what to feed it."""

    model: onnx.ModelProto
    feeds: dict[str, Array]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """The model in ONNX Runtime as it is written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def evaluate(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """Every output by name."""
    loaded = session(model)
    wanted = {i.name for i in loaded.get_inputs()}
    results = loaded.run(None, {n: a for n, a in feeds.items() if n in wanted})
    return {o.name: np.asarray(r) for o, r in zip(loaded.get_outputs(), results, strict=True)}


def value_info(name: str, array: Array, dimensions: Sequence[int | str | None] | None = None) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if dimensions is None else dimensions)


@dataclass
class Builder:
    """A graph in the making. `values` holds every value by name: inputs, weights, and outputs of nodes."""

    random: Random
    opset: int = 17
    dtype: str = "float32"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    wild: bool = False

    def __post_init__(self) -> None:
        self.numbers = np.random.default_rng(self.random.getrandbits(32))

    # --- chance

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, items: Sequence[Any]) -> Any:
        if not items:
            raise Misfit
        return self.random.choice(items)

    def between(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    # --- leaves

    def fresh(self, stem: str) -> str:
        return f"{stem}{len(self.values)}"

    def input(self, shape: Shape, dtype: str = "", array: Array | None = None) -> str:
        name = self.fresh("x")
        array = self.elements(shape, dtype or self.dtype) if array is None else array
        self.inputs[name] = self.values[name] = array
        return name

    def weight(self, array: Array) -> str:
        name = self.fresh("w")
        self.weights[name] = self.values[name] = array
        return name

    def constant(self, shape: Shape, dtype: str = "", positive: bool = False) -> str:
        """A new weight, of one number throughout now and then."""
        dtype = dtype or self.dtype
        if self.chance(0.35):
            number = self.pick((1.0, 2.0, 0.5, 3.0) if positive else (0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 1.0, 0.0))
            return self.weight(np.full(shape, number, dtype))
        array = self.elements(shape, dtype)
        return self.weight(np.abs(array) + np.ones((), dtype) if positive else array)

    def integers(self, numbers: Sequence[int], dtype: str = "int64") -> str:
        return self.weight(np.asarray(numbers, dtype))

    def scalar(self, number: float, dtype: str = "") -> str:
        return self.weight(np.asarray(number, dtype or self.dtype))

    def elements(self, shape: Shape, dtype: str) -> Array:
        kind = np.dtype(dtype).kind
        if kind == "f":
            return np.asarray(self.numbers.uniform(-1.5, 1.5, shape)).astype(dtype)
        if kind == "b":
            return np.asarray(self.numbers.random(shape) < 0.5)
        return np.asarray(self.numbers.integers(0 if kind == "u" else -9, 10, shape)).astype(dtype)

    # --- nodes

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node and run it. Raises Misfit if it cannot run or its values are not wanted."""
        names = [f"{self.fresh('v')}" + (f"_{i}" if outputs > 1 else "") for i in range(outputs)]
        proto = helper.make_node(op, list(inputs), names, domain=domain)
        for name, value in attributes.items():  # a list may be empty: of the axes of a scalar
            type_ = onnx.AttributeProto.INTS if isinstance(value, (list, tuple)) and not value else None
            proto.attribute.append(helper.make_attribute(name, value, attr_type=type_))
        results = self._run(proto)
        if not all(self._is_wanted(a) for a in results):
            raise Misfit
        self.nodes.append(proto)
        self.values.update(zip(names, results, strict=True))
        return names

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node of one output; attributes that are None are left out."""
        return self.node(op, inputs, **{n: v for n, v in attributes.items() if v is not None})[0]

    def _run(self, node: onnx.NodeProto) -> list[Array]:
        feeds = {i: self.values[i] for i in node.input if i}
        outputs = [onnx.ValueInfoProto(name=o) for o in node.output]
        graph = helper.make_graph([node], "one", [value_info(n, a) for n, a in feeds.items()], outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)
        try:
            return list(evaluate(model, feeds).values())
        except Exception:  # the runtime's exceptions share no base class of their own
            raise Misfit from None

    def _is_wanted(self, array: Array) -> bool:
        if array.size > MOST_ELEMENTS or (array.size == 0 and not self.wild):
            return False
        if array.dtype.kind != "f":
            return array.dtype.kind != "i" or self.wild or not array.size or int(np.abs(array).max()) < 2**31
        return self.wild or (bool(np.isfinite(array).all()) and float(np.abs(array).max(initial=0)) < LARGEST)

    # --- choosing operands

    def candidates(self, fits: Callable[[Array], bool]) -> list[str]:
        return [n for n, a in self.values.items() if n not in self.weights and fits(a)]

    def choose(self, fits: Callable[[Array], bool]) -> str:
        """A value that depends on an input, the latest ones most often."""
        fitting = self.candidates(fits)
        if not fitting:
            raise Misfit
        late = fitting[-1 - min(int(len(fitting) * self.random.random() ** 3), len(fitting) - 1)]
        return late if self.chance(0.8) else str(self.pick(fitting))

    def floats(self, rank: int | None = None, least: int = 0) -> str:
        def fits(array: Array) -> bool:
            return array.dtype.kind == "f" and array.ndim >= least and rank in (None, array.ndim)

        return self.choose(fits)

    def shape(self, name: str) -> Shape:
        return tuple(self.values[name].shape)

    def rank(self, name: str) -> int:
        return int(self.values[name].ndim)

    def kind(self, name: str) -> str:
        return str(self.values[name].dtype.name)

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        if not rank:
            raise Misfit
        axis = self.between(0, rank - 1)
        return axis - rank if self.chance(0.3) else axis

    # --- the whole

    def finish(self) -> Graph:
        """The model: what nothing uses is an output, but for a little, and so are a few others.

        Raises Misfit if nothing depends on an input.
        """
        used = {i for n in self.nodes for i in n.input}
        computed = self._dependent()
        outputs = [o for o in computed if (o not in used and self.chance(0.95)) or self.chance(0.08)] or computed[-1:]
        if not outputs:
            raise Misfit
        needed = used | set(outputs)
        feeds = {n: a for n, a in self.inputs.items() if n in needed}
        weights = {n: a for n, a in self.weights.items() if n in needed}
        symbol = self.pick((1, 2, 3)) if self.chance(0.15) else None
        stored, nodes = [], []
        for name, array in weights.items():
            tensor = numpy_helper.from_array(array, name)
            if self.chance(0.1):
                nodes.append(helper.make_node("Constant", [], [name], value=tensor))
            else:
                stored.append(tensor)
        graph = helper.make_graph(
            [*nodes, *self.nodes],
            "random",
            [value_info(n, a, _with_symbol(a.shape, symbol)) for n, a in feeds.items()],
            [value_info(o, self.values[o], None if symbol is None else [None] * self.rank(o)) for o in outputs],
            stored,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)
        return Graph(model, feeds)

    def _dependent(self) -> list[str]:
        """What depends on elements of an input, in order."""
        reached: dict[str, None] = dict.fromkeys(self.inputs)
        for node in self.nodes:
            if node.op_type not in ("Shape", "Size") and not reached.keys().isdisjoint(node.input):
                reached.update(dict.fromkeys(node.output))
        return [name for name in reached if name not in self.inputs]


def _with_symbol(shape: Shape, size: int | None) -> tuple[int | str, ...]:
    """The first dimension by name where it has a size."""
    return ("N", *shape[1:]) if shape and shape[0] == size else shape
