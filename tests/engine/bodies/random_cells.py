"""Random models of a Loop or Scan whose body is the cell of an RNN, GRU or LSTM in some spelling, or nearly is."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
FLAWS = ("activation", "added", "squared", "row", "direction")
"""What makes a body one that is no cell."""
_ACTIVATIONS = (
    ("Sigmoid", "Tanh", "Tanh"), ("HardSigmoid", "Tanh", "Tanh"), ("Sigmoid", "Relu", "Tanh"),
    ("Sigmoid", "Tanh", "Relu"),
)  # fmt: skip


class CellModel:
    """Draws a model by a seed; with a flaw no recurrent operator computes the same."""

    def __init__(self, seed: int, flaw: str = "") -> None:
        self.random, self.weights, self.flaw = Random(seed), np.random.default_rng(seed), flaw
        draw = self.random
        self.kind = draw.choice(("LSTM", "GRU", "RNN"))
        self.inputs, self.hidden = draw.randint(1, 5), draw.randint(1, 6)
        self.is_loop = draw.random() < 0.4 and flaw != "direction"
        self.is_reverse = not self.is_loop and draw.random() < 0.4
        self.axis, self.row_axis = draw.choice((0, 1)), 0 if self.is_loop else draw.choice((0, 1))
        self.style = draw.choice(("joined", "product", "gemm"))
        self.has_bias, self.is_separate = draw.random() < 0.8, draw.random() < 0.3
        self.opset = draw.choice((11, 13, 17))
        self.gate, self.squash, self.last = draw.choice(_ACTIVATIONS)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {}
        self.names = 0

    @property
    def states(self) -> tuple[str, ...]:
        return ("h", "c") if self.kind == "LSTM" else ("h",)

    def model(self) -> onnx.ModelProto:
        def matrix(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", self.hidden])

        x = self._add("Gather", "X", "i", axis=self.axis) if self.is_loop else "x"
        new = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.kind](x)
        if self.flaw == "added":
            new[-1] = self._add("Add", new[-1], self.states[-1])
        if self.flaw == "squared":
            new[0] = self._add("Mul", new[0], new[0])
        row = self._add("Neg" if self.flaw == "row" else "Identity", new[0])
        results = [self._add("Identity", value) for value in new]
        initial, finals = [f"{state}0" for state in self.states], [f"{state}1" for state in self.states]
        value, outer = helper.make_tensor_value_info, []
        states = [matrix(state) for state in self.states]
        if self.is_loop:
            heads = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, [])]
            self.nodes.append(helper.make_node("Identity", ["go"], ["on"]))
            returned = [value("on", TensorProto.BOOL, []), *map(matrix, (*results, row))]
            body = helper.make_graph(self.nodes, "body", [*heads, *states], returned)
            axis, always = self._store(np.int64(self.axis)), self._store(np.array(True))
            outer = [helper.make_node("Shape", ["X"], ["sizes"])]
            outer.append(helper.make_node("Gather", ["sizes", axis], ["steps"]))
            outer.append(helper.make_node("Loop", ["steps", always, *initial], [*finals, "rows"], body=body))
        else:
            x_port = value("x", TensorProto.FLOAT, ["B", self.inputs])
            body = helper.make_graph(self.nodes, "body", [*states, x_port], [*map(matrix, (*results, row))])
            ways: dict[str, Any] = {"scan_input_directions": [int(self.is_reverse)],
                    "scan_output_directions": [int(self.is_reverse != (self.flaw == "direction"))]}  # fmt: skip
            ways |= {"scan_input_axes": [self.axis], "scan_output_axes": [self.row_axis], "num_scan_inputs": 1}
            outer.append(helper.make_node("Scan", [*initial, "X"], [*finals, "rows"], body=body, **ways))
        sizes = ["T", "B", self.inputs] if self.axis == 0 else ["B", "T", self.inputs]
        rows = ["T", "B", self.hidden] if self.row_axis == 0 else ["B", "T", self.hidden]
        graph = helper.make_graph(
            outer, "recurrent", [value("X", TensorProto.FLOAT, sizes), *map(matrix, initial)],
            [*map(matrix, finals), value("rows", TensorProto.FLOAT, rows)],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in self.stored.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def feed(self, steps: int, batch: int) -> dict[str, Array]:
        """Inputs of that many steps and sequences."""
        x = (steps, batch, self.inputs) if self.axis == 0 else (batch, steps, self.inputs)
        shapes = {"X": x, **{f"{state}0": (batch, self.hidden) for state in self.states}}
        return {name: self.weights.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    def _add(self, operator: str, *inputs: str, **attributes: object) -> str:
        self.names += 1
        self.nodes.append(helper.make_node(operator, inputs, [f"v{self.names}"], **attributes))
        return f"v{self.names}"

    def _commute(self, operator: str, *inputs: str) -> str:
        return self._add(operator, *(inputs if self.random.random() < 0.5 else reversed(inputs)))

    def _store(self, array: object) -> str:
        self.names += 1
        self.stored[f"w{self.names}"] = np.asarray(array)
        return f"w{self.names}"

    def _draw(self, *shape: int) -> Array:
        return (0.6 * self.weights.standard_normal(shape)).astype(np.float32)

    def _multiply(self, x: str, rows: int, columns: int, has_bias: bool) -> str:
        matrix, bias = self._draw(rows, columns), [self._store(self._draw(columns))] if has_bias else []
        if self.style == "gemm":
            return self._add("Gemm", x, self._store(matrix.T.copy()), *bias, transB=1)
        product = self._add("MatMul", x, self._store(matrix))
        return self._commute("Add", product, *bias) if bias else product

    def _sum(self, x: str, columns: int) -> str:
        """The weighted input and state."""
        if self.style == "joined":
            pair = ("h", x) if self.random.random() < 0.5 else (x, "h")
            return self._multiply(self._add("Concat", *pair, axis=1), self.inputs + self.hidden, columns, self.has_bias)
        recurrent = self._multiply("h", self.hidden, columns, self.has_bias and self.random.random() < 0.6)
        return self._commute("Add", self._multiply(x, self.inputs, columns, self.has_bias), recurrent)

    def _sums(self, x: str, count: int) -> list[str]:
        """The weighted inputs and states of several gates, in any order."""
        if self.is_separate:
            return [self._sum(x, self.hidden) for _ in range(count)]
        whole = self._sum(x, count * self.hidden)
        if self.random.random() < 0.5:
            parts = []
            for place in range(count):
                bounds = (place * self.hidden, 2**31 if place == count - 1 else (place + 1) * self.hidden, 1)
                parts.append(self._add("Slice", whole, *(self._store(np.array([bound])) for bound in bounds)))
        else:
            sizes = [self.hidden] * count
            parts = [f"{whole}.{place}" for place in range(count)]
            old, new = {"split": sizes}, [self._store(np.array(sizes))]
            given, attributes = ([], old) if self.opset < 13 else (new, {})
            self.nodes.append(helper.make_node("Split", [whole, *given], parts, axis=-1, **attributes))
        self.random.shuffle(parts)
        return parts

    def _lstm(self, x: str) -> list[str]:
        *gates, candidate = self._sums(x, 4)
        functions = [self.gate] * 3 if self.flaw != "activation" else [self.gate, self.gate, "Tanh"]
        enter, forget, leave = (self._add(function, gate) for function, gate in zip(functions, gates, strict=True))
        entering = self._commute("Mul", enter, self._add(self.squash, candidate))
        cell = self._commute("Add", self._commute("Mul", forget, "c"), entering)
        return [self._commute("Mul", leave, self._add(self.last, cell)), cell]

    def _gru(self, x: str) -> list[str]:
        update, reset = (self._add(self.gate, gate) for gate in self._sums(x, 2))
        if self.flaw == "activation":
            reset = self._add("Tanh", reset)
        inputs = self._multiply(x, self.inputs, self.hidden, self.has_bias)
        if self.random.random() < 0.5:
            recurrent = self._commute("Mul", reset, self._multiply("h", self.hidden, self.hidden, self.has_bias))
        else:
            recurrent = self._multiply(self._commute("Mul", reset, "h"), self.hidden, self.hidden, False)
        new = self._add(self.squash, self._commute("Add", inputs, recurrent))
        form = self.random.choice(("mean", "step", "sum", *(["inverse"] if self.gate == "Sigmoid" else [])))
        if form == "step":
            return [self._commute("Add", new, self._commute("Mul", update, self._add("Sub", "h", new)))]
        kept, replaced = ("h", new) if form != "inverse" else (new, "h")
        if form == "sum":
            rest = self._add("Sub", replaced, self._commute("Mul", update, replaced))
        else:
            one = self._store(self.random.choice((np.float32(1), np.ones(1, np.float32))))
            rest = self._commute("Mul", self._add("Sub", one, update), replaced)
        return [self._commute("Add", rest, self._commute("Mul", update, kept))]

    def _rnn(self, x: str) -> list[str]:
        whole = self._sum(x, self.hidden)
        return [self._add(self.squash, self._add("Mul", whole, whole) if self.flaw == "activation" else whole)]
