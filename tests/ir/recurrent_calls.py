"""Calls of RNN, GRU and LSTM with all attributes and operands, drawn at random, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from hypothesis import assume
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from eqfuse.ir.operators import OPERATORS
from eqfuse.ir.operators.recurrent import GATES

Array = np.ndarray[Any, Any]
LARGE = 100.0
"""States beyond this are of networks that explode, and their rounding with them."""
_FUNCTIONS = {
    "Sigmoid": 0, "Tanh": 0, "Relu": 0, "LeakyRelu": 1, "HardSigmoid": 2, "Elu": 1, "Softsign": 0, "Softplus": 0,
    "ThresholdedRelu": 1, "ScaledTanh": 2, "Affine": 2,
}  # fmt: skip
"""Activations, with as many factors as they take."""


@dataclass(frozen=True)
class RecurrentCall:
    """One node; its operands in order, None if absent; `weights` are those that are constants of the model.

    Operands and answers have the steps in front of the batch, whatever the `layout` of the model, for ONNX Runtime has
    no other.
    """

    op: str
    hidden: int
    direction: str
    config: Mapping[str, Any]
    operands: Mapping[str, Array | None]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    layout: int = 0
    is_free: bool = False
    """Whether the numbers of steps and sequences are dynamic dimensions of the model."""

    @property
    def model(self) -> onnx.ModelProto:
        """The node as a model, whose outputs are those that are asked for."""
        present = {name: self.swap(name, array) for name, array in self.operands.items() if array is not None}
        inputs = [name if name in present else "" for name in self.operands]
        node = helper.make_node(
            self.op, inputs, list(self.outputs), name="cell", hidden_size=self.hidden, direction=self.direction,
            **self.config, **({"layout": 1} if self.layout else {}),
        )  # fmt: skip
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), self._shape(name, array))
            for name, array in present.items() if name not in self.weights
        ]  # fmt: skip
        constants = [numpy_helper.from_array(present[name], name) for name in self.weights if name in present]
        kind = ports[0].type.tensor_type.elem_type
        results = [helper.make_tensor_value_info(name, kind, self._shape(name)) for name in self.outputs if name]
        graph = helper.make_graph([node], "recurrent", ports, results, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _shape(self, name: str, array: Array | None = None) -> tuple[int | str, ...]:
        """The shape of an operand or result in the layout of the model, with names for dynamic dimensions."""
        x, r = self.operands["x"], self.operands["r"]
        assert x is not None
        assert r is not None
        steps, batch = ("t", "n") if self.is_free else x.shape[:2]
        state = (len(r), batch, self.hidden)
        shapes = {"x": (steps, batch, x.shape[2]), "lengths": (batch,), "y": (steps, *state)}
        shapes |= dict.fromkeys(("h", "c", "last", "cell"), state)
        if name not in shapes:
            return np.shape(array)
        first, *rest = shapes[name]
        if not self.layout or name == "lengths":
            return shapes[name]
        return (rest[1], first, rest[0], rest[2]) if name == "y" else (rest[0], first, *rest[1:])

    def swap(self, name: str, array: Array) -> Array:
        """An operand or result in the layout of the model."""
        if not self.layout or name not in ("x", "h", "c", "y", "last", "cell"):
            return array
        return array.transpose(2, 0, 1, 3) if name == "y" else array.swapaxes(0, 1)

    @property
    def feeds(self) -> dict[str, Array]:
        """What the model is called with."""
        given = {n: array for n, array in self.operands.items() if array is not None and n not in self.weights}
        swapped = {name: self.swap(name, array) for name, array in given.items()}
        return {name: array.flatten().reshape(array.shape) for name, array in swapped.items()}

    def in_onnx_runtime(self) -> list[Array]:
        """The outputs that are asked for, in the layout of the model."""
        steps_first = replace(self, layout=0)
        model = steps_first.model.SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        names = [name for name in self.outputs if name]
        results = zip(names, session.run(None, steps_first.feeds), strict=True)
        return [self.swap(name, np.asarray(array)) for name, array in results]


@st.composite
def recurrent_calls(draw: st.DrawFn, largest: int = 5, dtype: str = "float32") -> RecurrentCall:
    """Calls whose sizes are at most `largest`; all outputs are asked for."""
    op = draw(st.sampled_from(sorted(GATES)))
    steps, batch, inputs, hidden = (draw(st.integers(1, largest)) for _ in range(4))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions, rows = 2 if direction == "bidirectional" else 1, GATES[op] * hidden
    random = np.random.default_rng(draw(st.integers(0, 1000)))

    def tensor(*shape: int) -> Array:
        return random.standard_normal(shape).astype(dtype)

    def maybe(*shape: int) -> Array | None:
        return tensor(*shape) if draw(st.booleans()) else None

    state = (directions, batch, hidden)
    least = 1 if op == "RNN" else 0  # ONNX Runtime's RNN reads in front of its outputs for an empty sequence
    lengths = draw(st.none() | st.lists(st.integers(least, steps), min_size=batch, max_size=batch))
    operands = {
        "x": tensor(steps, batch, inputs), "w": tensor(directions, rows, inputs),
        "r": tensor(directions, rows, hidden) / np.sqrt(hidden, dtype=dtype),  # larger ones make chaos of rounding
        "b": maybe(directions, 2 * rows), "lengths": None if lengths is None else np.array(lengths, np.int32),
        "h": maybe(*state),
    }  # fmt: skip
    operands |= {"c": maybe(*state), "p": maybe(directions, 3 * hidden)} if op == "LSTM" else {}
    outputs = ("y", "last", "cell")[: OPERATORS[op].outputs]
    config, layout = draw(configs(op, directions)), draw(st.sampled_from([0, 0, 1]))
    return RecurrentCall(op, hidden, direction, config, operands, outputs, layout=layout)


@st.composite
def configs(draw: st.DrawFn, op: str, directions: int) -> dict[str, Any]:
    """The attributes that few models give. ONNX Runtime's RNN takes one alpha and one beta for each direction."""
    config: dict[str, Any] = {}
    if draw(st.booleans()):
        config["clip"] = draw(st.sampled_from([0.125, 0.5, 2.0]))
    if op == "LSTM" and draw(st.booleans()):
        config["input_forget"] = 1
    if op == "GRU" and draw(st.booleans()):
        config["linear_before_reset"] = 1
    if draw(st.booleans()):
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op] * directions
        usual = sorted(_FUNCTIONS) if op != "RNN" else sorted(name for name in _FUNCTIONS if not _FUNCTIONS[name])
        names = draw(st.lists(st.sampled_from(usual), min_size=count, max_size=count))
        factors = st.sampled_from([0.25, 0.5, 0.875])
        config["activations"] = names
        for attribute, place in (("activation_alpha", 1), ("activation_beta", 2)):
            takers = sum(_FUNCTIONS[name] >= place for name in names)
            if takers:
                config[attribute] = draw(st.lists(factors, min_size=takers, max_size=takers))
    return config


def assert_close(values: Sequence[Array], answers: Sequence[Array]) -> None:
    """Equal to 1e-4 of the largest element: without bounds states grow, and their rounding with them. Draws whose
    states explode are given up."""
    assume(all(np.abs(answer).max() < LARGE for answer in answers))
    for value, answer in zip(values, answers, strict=True):
        np.testing.assert_allclose(value, answer, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(answer).max())))
