"""Recurrent networks: RNN, GRU and LSTM.

`config` has the attributes that few models give (activations, clip, ...) as JSON; `read_cell` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..index_maps import mixing_maps
from ..operation import Operation
from . import elementwise
from .arithmetic import Arithmetic, Array, Unsupported
from .elementwise import Expression
from .schema import Family

State = tuple[Array, ...]

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Gates of each kind of cell: each has a row of weights for each hidden unit. In ONNX's order: update, reset and new
state of a GRU; input, output, forget and new cell of an LSTM."""
_SAMPLE_AXES = {0: 1, 4: 0, 5: 1, 6: 1}
"""The axis of the samples of X, sequence_lens, initial_h and initial_c, by their places, if steps are outermost."""
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_USUAL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_PARAMETERS: dict[str, tuple[float | None, ...]] = {
    "affine": (None, None), "relu": (), "leakyrelu": (0.01,), "thresholdedrelu": (None,), "tanh": (),
    "scaledtanh": (None, None), "sigmoid": (), "hardsigmoid": (0.2, 0.5), "elu": (1.0,), "softsign": (), "softplus": (),
}  # fmt: skip
"""Defaults of alpha and beta for activations that have them; None if ONNX and ONNX Runtime do not agree on one."""
_ROWS = {row.name.lower(): row.evaluate for row in elementwise.OPERATORS if row.evaluate is not None}
_SETTINGS = {"activations", "activation_alpha", "activation_beta", "clip", "input_forget", "linear_before_reset"}


@dataclass(frozen=True)
class Activation:
    """A function of one number, by ONNX's name in small letters; its alpha and beta as far as it has them."""

    name: str
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class RecurrentCell:
    """The computation of each step of a recurrent network, and the order of the steps of each direction.

    `clip` bounds the operands of the activations of gates; `activations` are those of each direction.
    """

    kind: str
    hidden: int
    reverse: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float | None = None
    input_forget: bool = False
    linear_before_reset: bool = False

    @property
    def gates(self) -> int:
        """Gates of a hidden unit."""
        return GATES[self.kind]


def read_cell(kind: str, hidden: int, direction: str, config: str) -> RecurrentCell:
    """The cell that the attributes of a node describe. Raises Unsupported if ONNX does not define it."""
    settings = json.loads(config)
    if direction not in _DIRECTIONS or not settings.keys() <= _SETTINGS:
        raise Unsupported(f"{direction} {config}")
    reverse, usual = _DIRECTIONS[direction], _USUAL[kind]
    names = settings.get("activations") or usual * len(reverse)
    if len(names) != len(usual) * len(reverse):
        raise Unsupported(f"{len(names)} activations")
    alphas, betas = iter(settings.get("activation_alpha", ())), iter(settings.get("activation_beta", ()))
    functions = [_read_activation(str(name).lower(), alphas, betas) for name in names]
    by_direction = tuple(tuple(functions[k * len(usual) :][: len(usual)]) for k in range(len(reverse)))
    clip = settings.get("clip")
    return RecurrentCell(
        kind, hidden, reverse, by_direction, None if clip is None else float(clip),
        bool(settings.get("input_forget", 0)), bool(settings.get("linear_before_reset", 0)),
    )  # fmt: skip


def _read_activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    if name not in _PARAMETERS:
        raise Unsupported(f"the activation {name}")
    values = [next(given, usual) for given, usual in zip((alphas, betas), _PARAMETERS[name], strict=False)]
    if any(value is None for value in values):
        raise Unsupported(f"{name} without its factors")
    return Activation(name, tuple(float(value) for value in values if value is not None))


def _activate(function: Activation, x: Expression) -> Expression:
    if function.name == "affine":
        return x * function.factors[0] + function.factors[1]
    if function.name == "scaledtanh":
        return (x * function.factors[1])("tanh") * function.factors[0]
    return Expression(x.arithmetic, _ROWS[function.name](x.arithmetic, x.array, *function.factors))


class _Weights:
    """The weights of one direction, transposed: [inputs, gates * hidden], [hidden, gates * hidden], two biases."""

    def __init__(self, arithmetic: Arithmetic, w: Array, r: Array, bias: Array | None, peepholes: Array | None) -> None:
        zero = np.full((2 * len(w),), arithmetic.constant(0.0, w)[()], w.dtype)
        self.w, self.r, self.hidden = w.T, r.T, r.shape[1]
        self.w_bias, self.r_bias = np.split(zero if bias is None else bias, 2)
        self.peepholes = None if peepholes is None else np.split(peepholes, 3)

    def gates(self, x: Array) -> list[Array]:
        """A sum for all gates, split into that of each."""
        return np.split(x, x.shape[-1] // self.hidden, axis=-1)


@dataclass(frozen=True)
class _Direction:
    """One direction of a network: its cell, its activations and weights."""

    arithmetic: Arithmetic
    cell: RecurrentCell
    activations: tuple[Activation, ...]
    weights: _Weights

    def step(self, x: Array, state: State) -> State:
        """The state after a step."""
        return {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.cell.kind](x, state)

    def _sums(self, x: Array, h: Array) -> tuple[list[Expression], list[Expression]]:
        """The operands of each gate from the input and from the state."""
        weights = self.weights
        inputs = self.arithmetic.apply("add", self.arithmetic.matmul(x, weights.w), weights.w_bias)
        states = self.arithmetic.apply("add", self.arithmetic.matmul(h, weights.r), weights.r_bias)
        return self._expressions(weights.gates(inputs)), self._expressions(weights.gates(states))

    def _expressions(self, arrays: Sequence[Array]) -> list[Expression]:
        return [Expression(self.arithmetic, array) for array in arrays]

    def _gate(self, position: int, x: Expression) -> Expression:
        """An activation of `x`, which the cell's clip bounds first."""
        clip = self.cell.clip
        return _activate(self.activations[position], x if clip is None else x.clipped(-clip, clip))

    def _rnn(self, x: Array, state: State) -> State:
        (inputs,), (states,) = self._sums(x, state[0])
        return (self._gate(0, inputs + states).array,)

    def _gru(self, x: Array, state: State) -> State:
        inputs, states = self._sums(x, state[0])
        (h,) = self._expressions(state)
        update, reset = (self._gate(0, inputs[gate] + states[gate]) for gate in (0, 1))
        if self.cell.linear_before_reset:
            hidden = reset * states[2]
        else:
            product = self.arithmetic.matmul((reset * h).array, self.weights.gates(self.weights.r)[2])
            both = self._expressions([product, self.weights.gates(self.weights.r_bias)[2]])
            hidden = both[0] + both[1]
        new = self._gate(1, inputs[2] + hidden)
        return ((new - update * new + update * h).array,)

    def _lstm(self, x: Array, state: State) -> State:
        enter, leave, forget, new = (a + b for a, b in zip(*self._sums(x, state[0]), strict=True))
        _, cell = self._expressions(state)
        peepholes = self._expressions(self.weights.peepholes or ())
        if peepholes:
            enter, forget = enter + peepholes[0] * cell, forget + peepholes[2] * cell
        entering, kept = self._gate(0, enter), self._gate(0, forget)
        kept = -entering + 1.0 if self.cell.input_forget else kept
        cell = kept * cell + entering * self._gate(1, new)
        leave = leave + peepholes[1] * cell if peepholes else leave
        return (self._gate(0, leave) * _activate(self.activations[2], cell)).array, cell.array


def _run(
    kind: str, arithmetic: Arithmetic, x: Array, w: Array, r: Array, bias: Array | None,
    lengths: Array | None, first: Sequence[Array | None], peepholes: Array | None, attributes: tuple[Any, ...],
) -> tuple[Array, ...]:  # fmt: skip
    """All states [steps, directions, batch, hidden], and the last of each kind [directions, batch, hidden].

    With the batch in front in layout 1.
    """
    hidden, way, layout, config = attributes
    cell = read_cell(kind, hidden, way, config)
    if layout:
        x, first = x.swapaxes(0, 1), [None if each is None else each.swapaxes(0, 1) for each in first]
    directions, states = len(cell.reverse), len(first)
    if x.ndim != 3 or not len(x) or not len(w) == len(r) == directions or r.shape[2] != cell.hidden:
        raise Unsupported("no steps, or weights that do not fit")
    if x.dtype == object:
        raise Unsupported("what a few steps compute has too many terms to be written out")
    steps, batch = x.shape[:2]
    zero = np.full((batch, cell.hidden), arithmetic.constant(0.0, x)[()], x.dtype)
    given = tuple(zero[None].repeat(directions, 0) if each is None else each for each in first)
    counts = np.full(batch, steps) if lengths is None else lengths
    if any(each.shape != (directions, *zero.shape) for each in given) or counts.shape != (batch,):
        raise Unsupported("an initial state or lengths of another shape")
    if np.any((counts < 0) | (counts > steps)):
        raise Unsupported("a sequence that is longer than there are steps")
    outputs = np.zeros((steps, directions, batch, cell.hidden), x.dtype)
    outputs[:] = zero
    last = []
    for k, is_reverse in enumerate(cell.reverse):
        weights = _Weights(arithmetic, w[k], r[k], *(None if each is None else each[k] for each in (bias, peepholes)))
        direction = _Direction(arithmetic, cell, cell.activations[k], weights)
        state: State = tuple(each[k] for each in given)
        for step in range(steps):
            runs = step < counts
            place = np.where(runs & is_reverse, counts - 1 - step, step)
            new = direction.step(x[place, np.arange(batch)], state)
            state = tuple(np.where(runs[:, None], after, before) for after, before in zip(new, state, strict=True))
            outputs[place[runs], k, runs] = state[0][runs]
        last.append(tuple(np.where(counts[:, None] > 0, each, zero) for each in state))
    finals = [np.stack([each[i] for each in last]) for i in range(states)]
    if layout:
        return outputs.transpose(2, 0, 1, 3), *(each.swapaxes(0, 1) for each in finals)
    return outputs, *finals


def sample_axis_of_operand(place: int, samples_first: bool) -> int | None:
    """The axis along which an operand of a recurrent network has its samples, by its place; None for weights."""
    axis = _SAMPLE_AXES.get(place)
    return 0 if samples_first and axis is not None else axis


def sample_axis_of_result(place: int, samples_first: bool) -> int:
    """The same of a result: of all steps, or the state after the last."""
    if samples_first:
        return 0
    return 1 if place else 2


def _rnn(
    arithmetic: Arithmetic, x: Array, w: Array, r: Array, bias: Array | None, lengths: Array | None,
    h: Array | None, *attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    return _run("RNN", arithmetic, x, w, r, bias, lengths, (h,), None, attributes)


def _gru(
    arithmetic: Arithmetic, x: Array, w: Array, r: Array, bias: Array | None, lengths: Array | None,
    h: Array | None, *attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    return _run("GRU", arithmetic, x, w, r, bias, lengths, (h,), None, attributes)


def _lstm(
    arithmetic: Arithmetic, x: Array, w: Array, r: Array, bias: Array | None, lengths: Array | None,
    h: Array | None, c: Array | None, peepholes: Array | None, *attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    return _run("LSTM", arithmetic, x, w, r, bias, lengths, (h, c), peepholes, attributes)


def _products(operation: Operation) -> float:
    """Each step multiplies an input and a state with the weights of all directions."""
    x, weights = operation.operand(0), operation.operand(1).elements + operation.operand(2).elements
    steps = x.elements // max(1, x.dimensions[-1]) if x.dimensions else x.elements
    return 2.0 * steps * weights


_recurrent = Family("recurrent", mixing_maps, _products)
_SEQUENCE = "X W R B? sequence_lens? initial_h?"
_ATTRIBUTES = "hidden_size:i64 direction:String=forward layout:i64=0 config:String"

OPERATORS = (
    _recurrent("RNN", f"{_SEQUENCE} | {_ATTRIBUTES}", _rnn, outputs=2),
    _recurrent("GRU", f"{_SEQUENCE} | {_ATTRIBUTES}", _gru, outputs=2),
    _recurrent("LSTM", f"{_SEQUENCE} initial_c? P? | {_ATTRIBUTES}", _lstm, outputs=3),
)
