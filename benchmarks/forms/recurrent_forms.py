"""Forms of recurrent networks: each kind of cell by sizes of state, steps and batch, and in other variants."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from .kernel_forms import Form
from .model_builder import Builder, Part

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
HIDDEN = (16, 64, 128, 256, 512)
STEPS = (1, 16, 128)
BATCHES = (1, 4, 8, 16)
_BIDIRECTIONAL = {"direction": "bidirectional"}
VARIANTS: dict[str, tuple[str, int, int, int, dict[str, Any]]] = {
    "GRU torch 16 x 128": ("GRU", 16, 1, 128, {"linear_before_reset": 1}),
    "GRU batch 8 16 x 100": ("GRU", 16, 8, 100, {}),
    "LSTM batch 32 16 x 64": ("LSTM", 16, 32, 64, {}),
    "LSTM both ways 32 x 96": ("LSTM", 32, 1, 96, _BIDIRECTIONAL),
    "LSTM both ways 40 x 48": ("LSTM", 40, 1, 48, _BIDIRECTIONAL),
    "LSTM odd 20 x 50": ("LSTM", 20, 3, 50, _BIDIRECTIONAL),
    "RNN relu 64 x 77": ("RNN", 64, 1, 77, {"activations": ["Relu"]}),
}
"""Kind, steps, batch, hidden units and attributes, by name."""


def recurrence(kind: str, hidden: int, **attributes: Any) -> Part:
    """A recurrent network with as many inputs as hidden units; its outputs are all states, and the last ones."""

    def build(b: Builder, x: str) -> tuple[str, ...]:
        directions, rows = 2 if "direction" in attributes else 1, GATES[kind] * hidden
        inputs = b.shapes[x][2]
        weights = (b.weight((directions, rows, inputs)), b.weight((directions, rows, hidden)))
        bias = b.weight((directions, 2 * rows))
        return b.add_many(kind, (x, *weights, bias), 3 if kind == "LSTM" else 2, hidden_size=hidden, **attributes)

    return build


def list_recurrences() -> Iterator[Form]:
    """All forms of recurrent networks."""
    for kind, batch, hidden, steps in product(GATES, BATCHES, HIDDEN, STEPS):
        name = f"{kind} batch {batch} {steps} x {hidden}"
        yield Form(name, (steps, batch, hidden), (recurrence(kind, hidden),))
    for name, (kind, steps, batch, hidden, attributes) in VARIANTS.items():
        yield Form(name, (steps, batch, hidden), (recurrence(kind, hidden, **attributes),))
