"""Recurrent networks: RNN, GRU and LSTM.

`config` has the attributes that few models give (activations, clip, ...) as JSON; of these, only GRU's
`linear_before_reset` is looked into. Nor are sequences of several lengths, or the layout with the batch first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..index_maps import mixing_maps
from ..operation import Operation
from .arithmetic import Arithmetic, Array, Unsupported
from .elementwise import Expression
from .schema import Family

State = tuple[Array, ...]
Step = Callable[[Arithmetic, Array, State, "_Weights"], State]


class _Weights:
    """The weights of one direction, transposed: [inputs, gates * hidden], [hidden, gates * hidden], two biases."""

    def __init__(self, arithmetic: Arithmetic, w: Array, r: Array, bias: Array | None, peepholes: Array | None) -> None:
        zero = np.full((2 * len(w),), arithmetic.constant(0.0, w)[()], w.dtype)
        self.w, self.r, self.hidden = w.T, r.T, r.shape[1]
        self.w_bias, self.r_bias = np.split(zero if bias is None else bias, 2)
        self.peepholes = None if peepholes is None else np.split(peepholes, 3)

    def gates(self, x: Array) -> list[Array]:
        """A sum for all gates, cut into that of each."""
        return np.split(x, x.shape[-1] // self.hidden, axis=-1)


def _sums(arithmetic: Arithmetic, x: Array, h: Array, weights: _Weights) -> tuple[list[Array], list[Array]]:
    """What each gate gets from the input and from the state."""
    inputs = arithmetic.apply("add", arithmetic.matmul(x, weights.w), weights.w_bias)
    states = arithmetic.apply("add", arithmetic.matmul(h, weights.r), weights.r_bias)
    return weights.gates(inputs), weights.gates(states)


def _rnn_step(arithmetic: Arithmetic, x: Array, state: State, weights: _Weights) -> State:
    (inputs,), (states,) = _sums(arithmetic, x, state[0], weights)
    return (arithmetic.apply("tanh", arithmetic.apply("add", inputs, states)),)


def _gru_step(linear_before_reset: bool) -> Step:
    def step(arithmetic: Arithmetic, x: Array, state: State, weights: _Weights) -> State:
        inputs, states = ([Expression(arithmetic, g) for g in s] for s in _sums(arithmetic, x, state[0], weights))
        h = Expression(arithmetic, state[0])
        update, reset = ((inputs[gate] + states[gate])("sigmoid") for gate in (0, 1))
        if linear_before_reset:
            hidden = reset * states[2]
        else:
            product = arithmetic.matmul((reset * h).array, weights.gates(weights.r)[2])
            hidden = Expression(arithmetic, product) + Expression(arithmetic, weights.gates(weights.r_bias)[2])
        new = (inputs[2] + hidden)("tanh")
        return ((new - update * new + update * h).array,)

    return step


def _lstm_step(arithmetic: Arithmetic, x: Array, state: State, weights: _Weights) -> State:
    sums = zip(*_sums(arithmetic, x, state[0], weights), strict=True)
    enter, leave, forget, new = (Expression(arithmetic, a) + Expression(arithmetic, b) for a, b in sums)
    cell = Expression(arithmetic, state[1])
    peepholes = [Expression(arithmetic, p) for p in weights.peepholes or ()]
    if peepholes:
        enter, forget = enter + peepholes[0] * cell, forget + peepholes[2] * cell
    cell = forget("sigmoid") * cell + enter("sigmoid") * new("tanh")
    leave = leave + peepholes[1] * cell if peepholes else leave
    return (leave("sigmoid") * cell("tanh")).array, cell.array


def _run(
    arithmetic: Arithmetic, step: Step, states: int, x: Array, w: Array, r: Array, bias: Array | None,
    lengths: Array | None, first: tuple[Array | None, ...], peepholes: Array | None, hidden: int, direction: str,
) -> tuple[Array, ...]:  # fmt: skip
    """All states [steps, directions, batch, hidden], and the last of each kind [directions, batch, hidden]."""
    orders = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}.get(direction, ())
    if lengths is not None or x.ndim != 3 or not len(x) or not len(w) == len(r) == len(orders) or r.shape[2] != hidden:
        raise Unsupported("sequences of several lengths, or weights that do not fit")
    if x.dtype == object:
        raise Unsupported("what a few steps compute has too many terms to be written out")
    zero = np.full((x.shape[1], hidden), arithmetic.constant(0.0, x)[()], x.dtype)
    all_states, last = [], []
    for k, order in enumerate(orders):
        weights = _Weights(arithmetic, w[k], r[k], *(None if each is None else each[k] for each in (bias, peepholes)))
        state: State = tuple(zero if given is None else given[k] for given in (*first, None, None)[:states])
        if any(each.shape != zero.shape for each in state):
            raise Unsupported("an initial state of another shape")
        outputs = []
        for value in x[::order]:
            state = step(arithmetic, value, state, weights)
            outputs.append(state[0])
        all_states.append(np.stack(outputs[::order]))
        last.append(state)
    return np.stack(all_states, axis=1), *(np.stack([each[i] for each in last]) for i in range(states))


def _rnn(
    arithmetic: Arithmetic, x: Array, w: Array, r: Array, bias: Array | None, lengths: Array | None,
    h: Array | None, hidden: int, direction: str, config: str,
) -> tuple[Array, ...]:  # fmt: skip
    if config != "{}":
        raise Unsupported(config)
    return _run(arithmetic, _rnn_step, 1, x, w, r, bias, lengths, (h,), None, hidden, direction)


def _gru(
    arithmetic: Arithmetic, x: Array, w: Array, r: Array, bias: Array | None, lengths: Array | None,
    h: Array | None, hidden: int, direction: str, config: str,
) -> tuple[Array, ...]:  # fmt: skip
    if config not in ("{}", '{"linear_before_reset": 1}'):
        raise Unsupported(config)
    return _run(arithmetic, _gru_step(config != "{}"), 1, x, w, r, bias, lengths, (h,), None, hidden, direction)


def _lstm(
    arithmetic: Arithmetic, x: Array, w: Array, r: Array, bias: Array | None, lengths: Array | None,
    h: Array | None, c: Array | None, peepholes: Array | None, hidden: int, direction: str, config: str,
) -> tuple[Array, ...]:  # fmt: skip
    if config != "{}":
        raise Unsupported(config)
    return _run(arithmetic, _lstm_step, 2, x, w, r, bias, lengths, (h, c), peepholes, hidden, direction)


def _products(operation: Operation) -> float:
    """Each step multiplies an input and a state with the weights of all directions."""
    x, weights = operation.operand(0), operation.operand(1).elements + operation.operand(2).elements
    steps = x.elements // max(1, x.dimensions[-1]) if x.dimensions else x.elements
    return 2.0 * steps * weights


_recurrent = Family("recurrent", mixing_maps, _products)
_SEQUENCE = "X W R B? sequence_lens? initial_h?"
_SETTINGS = "hidden_size:i64 direction:String=forward config:String"

OPERATORS = (
    _recurrent("RNN", f"{_SEQUENCE} | {_SETTINGS}", _rnn, outputs=2),
    _recurrent("GRU", f"{_SEQUENCE} | {_SETTINGS}", _gru, outputs=2),
    _recurrent("LSTM", f"{_SEQUENCE} initial_c? P? | {_SETTINGS}", _lstm, outputs=3),
)
