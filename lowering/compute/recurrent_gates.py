"""The gates of a recurrent cell as expressions: from the sums of a unit's gates to its new states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ...ir.operators.recurrent import Activation, RecurrentCell
from . import elementary
from .elementary import between, bound, dtype_of

Expr = Any


@dataclass(frozen=True)
class Gates:
    """The gates of a cell, with the activations of its direction. `keep` names a value, so that it is computed once."""

    cell: RecurrentCell
    activations: tuple[Activation, ...]
    keep: Callable[[Expr], Expr]

    def activate(self, position: int, total: Expr) -> Expr:
        """An activation of the sum of a gate, which the clip bounds first."""
        clip = self.cell.clip
        return _apply(self.activations[position], total if clip is None else between(total, -clip, clip))

    def update_state(self, update: Expr, total: Expr, old: Expr) -> Expr:
        """The state of a GRU: (1 - update) g(total) + update old."""
        new = self.keep(self.activate(1, total))
        return bound(update, lambda part: new - part * new + part * old)

    def lstm(self, sums: Sequence[Expr], old: Expr, peepholes: Callable[[int], Expr] | None) -> tuple[Expr, Expr]:
        """The hidden state and the cell of an LSTM. `peepholes` are the weights that gates give the cell."""

        def gate(number: int, place: int, cell: Expr) -> Expr:
            total = sums[number] if peepholes is None else sums[number] + peepholes(place) * cell
            return self.activate(0, total)

        enter = self.keep(gate(0, 0, old))
        forget = tirx.const(1.0, dtype_of(enter)) - enter if self.cell.input_forget else gate(2, 2, old)
        new = self.keep(forget * old + enter * self.activate(1, sums[3]))
        return gate(1, 1, new) * _apply(self.activations[2], new), new


def _apply(function: Activation, x: Expr) -> Expr:
    return bound(x, lambda value: _ACTIVATIONS[function.name](value, *function.factors))


_ACTIVATIONS: Mapping[str, Callable[..., Expr]] = {
    "affine": lambda x, alpha, beta: x * _like(x, alpha) + _like(x, beta),
    "elu": elementary.elu,
    "hardsigmoid": elementary.hard_sigmoid,
    "leakyrelu": elementary.leaky,
    "relu": lambda x: elementary.leaky(x, 0.0),
    "scaledtanh": lambda x, alpha, beta: _like(x, alpha) * elementary.tanh(x * _like(x, beta)),
    "sigmoid": elementary.sigmoid,
    "softplus": elementary.softplus,
    "softsign": elementary.softsign,
    "tanh": elementary.tanh,
    "thresholdedrelu": elementary.thresholded,
}


def _like(x: Expr, value: float) -> Expr:
    return tirx.const(value, dtype_of(x))
