"""Recipes of recurrent networks: operands of short sequences, every optional one given or absent, and the settings."""

from __future__ import annotations

import json
from typing import Any

from ....ir.operators import OPERATORS, RECURRENT
from ....ir.operators.recurrent import GATES
from .conditions import Type
from .operator_draft import Choice, Misfit, OperatorDraft

_SHAPING = ("direction", "layout")
"""Attributes that give the shapes of the operands."""
ORDER_OF_RECURRENCES = {
    head: (*_SHAPING, *(a.name for a in OPERATORS[head].arguments if a.name not in _SHAPING)) for head in RECURRENT
}
DIRECTIONS = ("forward", "reverse", "bidirectional")
_SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {
    "RNN": (
        {"activations": ["Relu"]},
        {"clip": 0.5},
        {"activations": ["HardSigmoid"], "activation_alpha": [0.3], "activation_beta": [0.4]},
        {"activations": ["LeakyRelu"], "activation_alpha": [0.5]},
    ),
    "GRU": (
        {"linear_before_reset": 1},
        {"linear_before_reset": 1},
        {"activations": ["HardSigmoid", "Relu"]},
        {"clip": 0.5},
        {"activations": ["Sigmoid", "LeakyRelu"], "activation_alpha": [0.2], "linear_before_reset": 1},
    ),
    "LSTM": (
        {"input_forget": 1},
        {"activations": ["Sigmoid", "Relu", "Tanh"]},
        {"clip": 0.5},
        {"activations": ["HardSigmoid", "Tanh", "Softsign"]},
    ),
}
"""Attributes that few models give, for one direction; the encoder leaves out those that have their defaults."""
_USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
"""The activations of a direction without settings."""


def recurrence(draft: OperatorDraft, name: str) -> Choice:
    """An operand or attribute of a recurrent network. Each shape follows from the operands chosen before it."""
    if name == "direction":
        return draft.random.choice(DIRECTIONS)
    if name == "layout":
        return draft.random.choice((0, 0, 1))
    if name == "X":
        steps, batch, inputs = (draft.random.choice(sizes) for sizes in ((1, 2, 2, 3), (1, 2), (1, 2, 3)))
        return Type((batch, steps, inputs) if draft.attributes["layout"] else (steps, batch, inputs), draft.wish.dtype)
    if name == "config":
        return _settings(draft)
    hidden = _hidden_size(draft)
    if name == "hidden_size":
        return hidden
    shape, is_optional = _operand_shape(draft, name, hidden), name not in ("W", "R")
    if is_optional and draft.chance(0.5):
        return None
    return Type(shape, "int32" if name == "sequence_lens" else draft.operands["X"].dtype)


def _directions(draft: OperatorDraft) -> int:
    return 2 if draft.attributes["direction"] == "bidirectional" else 1


def _hidden_size(draft: OperatorDraft) -> int:
    given = draft.attributes.get("hidden_size")
    for operand in ("R", "initial_h", "initial_c"):
        if operand in draft.operands:
            given = draft.operands[operand].shape[-1]
    if given is None and "W" in draft.operands:
        given = draft.operands["W"].shape[1] // GATES[draft.head]
    return given if isinstance(given, int) else draft.random.choice((1, 2, 2, 3))


def _operand_shape(draft: OperatorDraft, name: str, hidden: int) -> tuple[int, ...]:
    if draft.rank != 3:
        raise Misfit
    batch, directions, rows = (
        draft.shape[not draft.attributes["layout"]],
        _directions(draft),
        GATES[draft.head] * hidden,
    )
    state = (batch, directions, hidden) if draft.attributes["layout"] else (directions, batch, hidden)
    shapes = {
        "W": (directions, rows, draft.shape[2]), "R": (directions, rows, hidden), "B": (directions, 2 * rows),
        "sequence_lens": (batch,), "initial_h": state, "initial_c": state, "P": (directions, 3 * hidden),
    }  # fmt: skip
    return shapes[name]


def _settings(draft: OperatorDraft) -> str:
    """As the encoder writes it: sorted keys."""
    if draft.chance(0.5):
        return "{}"
    chosen = draft.random.choice(_SETTINGS[draft.head])
    directions = _directions(draft)
    if directions == 2 and chosen.keys() == {"activations"} and draft.chance(0.5):
        return json.dumps({"activations": [*chosen["activations"], *_USUAL[draft.head]]})
    spread = {name: value * directions if isinstance(value, list) else value for name, value in chosen.items()}
    return json.dumps(spread, sort_keys=True)
