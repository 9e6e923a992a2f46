"""Recipes of products of matrices, convolutions, the windows of both convolutions and poolings, the operators of ONNX
Runtime's own domain, which join some of these, and recurrent networks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ....ir.operators import OPERATORS, POOLS, RECURRENT
from ....ir.operators.recurrent import GATES
from .conditions import Type, Value
from .operator_draft import FACTORS, LONG, Choice, Misfit, OperatorDraft, image, narrowed, random_shape

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh")
ORDER_OF_CONTRIBUTED: dict[str, tuple[str, ...]] = {
    "FusedMatMul": ("transA", "transB", "A", "B", "alpha"),
    "FusedGemm": ("transA", "transB", "A", "B", "C", "activation", "alpha", "beta"),
    "FusedConv": ("X", "kernel_shape", "group", "W", "B", "dilations", "pads", "strides", "Z", "activation"),
    "MultiHeadAttention": (
        "num_heads", "query", "key", "value", "bias", "key_padding_mask", "attention_bias", "scale",
    ),
}  # fmt: skip


def matmul(draft: OperatorDraft, name: str) -> Choice:
    random, wish = draft.random, draft.wish
    if not draft.operands:
        rank = max(2, len(wish.shape)) if draft.chance(0.8) else 1
        shape = wish.shape if len(wish.shape) == rank else random_shape(random, rank)
        is_long = max(wish.shape, default=0) >= LONG
        shape = (*shape[:-1], max(wish.shape) if is_long and draft.chance(0.5) else random.choice((1, 2, 3, 4)))
        return Type(shape, wish.dtype)
    other = next(iter(draft.operands.values()))
    if not other.shape:
        raise Misfit
    is_wished = wish.shape and other.shape[-1] < LONG and draft.chance(0.7)  # few columns have long sums
    width = wish.shape[-1] if is_wished else random.choice((1, 2, 3, 4))
    batch = _batch_beside(draft, other.shape[:-2])
    if name == "B" and draft.chance(0.12):
        return Type(other.shape[-1:], other.dtype)
    if name == "B":
        return Type((*batch, other.shape[-1], width), other.dtype)
    if len(other.shape) < 2 or draft.chance(0.12):
        return Type(other.shape[-2:-1] or other.shape, other.dtype)
    rows = random.choice((1, 2, 3, 4))
    return Type((*(batch or random_shape(random, random.choice((0, 1)))), rows, other.shape[-2]), other.dtype)


def _batch_beside(draft: OperatorDraft, batch: tuple[int, ...]) -> tuple[int, ...]:
    """The batch of a product's other operand: mostly none or an equal one, but either may repeat along an axis of the
    other, and one may have an axis more."""
    if draft.is_narrow:
        return narrowed(batch)
    kind = draft.random.random()
    if kind < 0.5:
        return ()
    if kind < 0.72:
        return batch
    if kind < 0.86:
        return tuple(draft.random.choice((1, size, 2 if size == 1 else size)) for size in batch)
    return batch[1:] if kind < 0.93 else (draft.random.choice((1, 2, 3)), *batch)


def gemm(draft: OperatorDraft, name: str) -> Choice:
    random, (m, k, n) = draft.random, (draft.random.choice((1, 2, 3)) for _ in range(3))
    if name in ("transA", "transB"):
        return random.choice((0, 0, 1))
    if name in ("alpha", "beta"):
        return random.choice((1.0, 1.0, *FACTORS))
    if name == "A" and "B" in draft.operands:
        k = _matrix(draft, "B")[0]
    if name == "A":
        return Type((k, m) if draft.attributes["transA"] else (m, k), draft.wish.dtype)
    rows, depth = _matrix(draft, "A")
    if name == "B":
        return Type((n, depth) if draft.attributes["transB"] else (depth, n), draft.operands["A"].dtype)
    columns = _matrix(draft, "B")[1]
    if draft.chance(0.2):
        return None
    return Type(random.choice(((columns,), (columns,), (1, columns), (rows, columns), (rows, 1), ())), draft.wish.dtype)


def _matrix(draft: OperatorDraft, name: str) -> tuple[int, int]:
    shape = draft.operands[name].shape
    if len(shape) != 2:
        raise Misfit
    return (shape[1], shape[0]) if draft.attributes[f"trans{name}"] else (shape[0], shape[1])


def image_before(draft: OperatorDraft) -> tuple[int, ...]:
    """The image from which a window makes one of the wished size, if the window is known; else ()."""
    windows = [draft.attributes.get(name) for name in ("kernel_shape", "pads", "strides", "dilations")]
    spatial = len(draft.wish.shape) - 2
    if draft.head == "ConvTranspose" or spatial < 1 or not all(isinstance(v, tuple) for v in windows):
        return ()
    kernel, pads, strides, dilations = windows
    sizes = [
        (n - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 - pads[i] - pads[spatial + i]  # type: ignore[index,operator]
        for i, n in enumerate(draft.wish.shape[2:])
    ]
    unseen = [draft.random.choice((0, s - 1)) for s in strides]  # type: ignore[union-attr,operator]
    sizes = [max(1, n) + more for n, more in zip(sizes, unseen, strict=True)]
    channels = draft.wish.shape[1] if draft.head in POOLS else draft.random.choice((1, 2, 3))
    return (draft.wish.shape[0], channels, *sizes)


def window(draft: OperatorDraft, name: str) -> Value:
    random = draft.random
    spatial = draft.rank - 2
    if spatial < 1:
        raise Misfit
    if name == "kernel_shape":
        if "W" in draft.operands:
            return draft.operands["W"].shape[2:]
        if draft.chance(0.5):
            return (random.choice((1, 1, 2, 3)),) * spatial
        return tuple(random.choice((1, 2, 3)) for _ in range(spatial))
    if name == "pads":
        kernel = draft.integers("kernel_shape")
        half = tuple(k // 2 for k in kernel)
        same = half + half
        most = [k if draft.head in POOLS else 3 for k in kernel]  # ONNX Runtime wants a pool's below its kernel
        some = tuple(random.choice((0, 1, 2)[: most[i % spatial]]) for i in range(2 * spatial))
        return random.choice(((0,) * (2 * spatial), (0,) * (2 * spatial), same, some))
    if name in ("strides", "dilations"):
        usual = (1,) * spatial
        # a rule that forgets one of kernel, stride and dilation is seen only where all are above 1
        moves = any(v != usual for n in ("strides", "dilations") if (v := draft.attributes.get(n)))
        return usual if draft.chance(0.3 if moves else 0.6) else tuple(random.choice((1, 2, 3)) for _ in range(spatial))
    return (0,) * spatial if draft.chance(0.7) else tuple(random.choice((0, 1)) for _ in range(spatial))


def conv(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    if name == "X":
        given = draft.operands.get("W")
        shape = image_before(draft) or image(draft)
        return Type((shape[0], given.shape[1], *shape[2:]) if given else shape, draft.wish.dtype)
    channels = draft.operands["X"].shape[1] if len(draft.operands["X"].shape) > 1 else 0
    transposed = draft.head == "ConvTranspose"
    if name == "group":
        divisors = [g for g in range(1, channels + 1) if channels % g == 0]
        return random.choice((1, 1, *(divisors or [1])))
    group = draft.attributes.get("group", 1)
    if not isinstance(group, int) or group < 1:
        raise Misfit
    if name == "W":
        outputs = group * random.choice((1, 2, 2, 3))
        wished = draft.wish.shape[1] if len(draft.wish.shape) == draft.rank else 0
        if wished and wished % group == 0 and not transposed and draft.chance(0.5):
            outputs = wished
        pair = (channels, outputs // group) if transposed else (outputs, channels // group)
        return Type((*pair, *draft.integers("kernel_shape")), draft.operands["X"].dtype)
    if name == "B":
        weight = draft.operands["W"].shape
        outputs = weight[1] * group if transposed else weight[0]
        return None if draft.chance(0.15) else Type((outputs,), draft.operands["X"].dtype)
    return window(draft, name)


# --- operators of ONNX Runtime's own domain


def contributed(draft: OperatorDraft, name: str) -> Choice:
    """An operand or attribute of an operator of the domain."""
    if name == "activation":
        return draft.random.choice(ACTIVATIONS)
    if draft.head == "FusedMatMul":
        return _matrices(draft, name)
    if draft.head == "FusedGemm":
        return gemm(draft, name)
    if draft.head == "FusedConv":
        return _added_to_convolution(draft) if name == "Z" else conv(draft, name)
    if draft.head == "MultiHeadAttention":
        return _attention(draft, name)
    return _with_bias(draft, name)


def _with_bias(draft: OperatorDraft, name: str) -> Choice:
    """An operand of an operator that adds: a tensor, another one like it, or values for each position of its last
    axis."""
    random = draft.random
    if name == "alpha":
        return random.choice((1.702, 1.702, *FACTORS))
    if name == "epsilon":
        return random.choice((1e-12, 1e-5, 1e-3, 0.1))
    if not draft.operands:
        is_skip = draft.head.startswith("Skip")
        rank = random.choice((2, 3, 3)) if is_skip else random.choice((1, 2, 3, 4))
        return Type(draft.wish.shape if len(draft.wish.shape) == rank else random_shape(random, rank), draft.wish.dtype)
    if name == "skip":
        alike = draft.rank != 3 or draft.chance(0.6)
        return Type(draft.shape if alike else random.choice(((1, *draft.shape[1:]), draft.shape[1:])), draft.wish.dtype)
    if name in ("beta", "bias") and draft.chance(0.4):
        return None
    return Type(draft.shape[-1:], draft.wish.dtype)


def _matrices(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    if name in ("transA", "transB"):
        return random.choice((0, 0, 1))
    if name == "alpha":
        return random.choice((1.0, *FACTORS))
    as_read = replace(draft, operands={n: _transposed_as_asked(draft, n, t) for n, t in draft.operands.items()})
    choice = matmul(as_read, name)
    return _transposed_as_asked(draft, name, choice) if isinstance(choice, Type) else choice


def _transposed_as_asked(draft: OperatorDraft, name: str, operand: Type) -> Type:
    if not draft.attributes[f"trans{name}"]:
        return operand
    if len(operand.shape) < 2:
        raise Misfit
    *batch, rows, columns = operand.shape
    return Type((*batch, columns, rows), operand.dtype)


def _added_to_convolution(draft: OperatorDraft) -> Choice:
    if draft.chance(0.3):
        return None
    kernel, pads, strides, dilations = (draft.integers(n) for n in ("kernel_shape", "pads", "strides", "dilations"))
    sizes = draft.shape[2:]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    counts = [(n + pads[i] + pads[i + len(sizes)] - reach[i]) // strides[i] + 1 for i, n in enumerate(sizes)]
    if min(counts) < 1:
        raise Misfit
    return Type((draft.shape[0], draft.operands["W"].shape[0], *counts), draft.wish.dtype)


def _attention(draft: OperatorDraft, name: str) -> Choice:
    """An operand or attribute of MultiHeadAttention as far as its meaning reads them: query, key and value of rank 3, a
    bias and a mask."""
    random, heads = draft.random, draft.attributes.get("num_heads", 1)
    if name == "num_heads":
        return random.choice((1, 2, 3))
    if name == "scale":
        return random.choice((0.0, 0.0, *FACTORS))
    if name in ("bias", "key_padding_mask") or not isinstance(heads, int):
        return None
    if name == "query":
        return Type((random.choice((1, 2)), random.choice((1, 2, 3)), heads * random.choice((1, 2))), draft.wish.dtype)
    batch, rows, width = draft.operands["query"].shape
    if name == "key":
        return Type((batch, random.choice((1, 2, 3)), width), draft.wish.dtype)
    columns = draft.operands["key"].shape[1]
    if name == "value":
        return Type((batch, columns, heads * random.choice((1, 2))), draft.wish.dtype)
    if draft.chance(0.3):
        return None
    return Type((random.choice((1, batch)), random.choice((1, heads)), rows, columns), draft.wish.dtype)


# --- recurrent networks


_SHAPING = ("direction", "layout")
"""Attributes that give the shapes of the operands."""
ORDER_OF_RECURRENCES = {
    head: (*_SHAPING, *(a.name for a in OPERATORS[head].arguments if a.name not in _SHAPING)) for head in RECURRENT
}
DIRECTIONS = ("forward", "reverse", "bidirectional")
_RECURRENT_SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {
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
"""Attributes other than the defaults, for one direction: the encoder writes only these."""
_USUAL_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
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
        return _recurrent_settings(draft)
    hidden = _hidden_size(draft)
    if name == "hidden_size":
        return hidden
    shape, is_optional = _recurrent_shape(draft, name, hidden), name not in ("W", "R")
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


def _recurrent_shape(draft: OperatorDraft, name: str, hidden: int) -> tuple[int, ...]:
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


def _recurrent_settings(draft: OperatorDraft) -> str:
    """The attribute `config` as the encoder writes it, with sorted keys."""
    if draft.chance(0.5):
        return "{}"
    chosen = draft.random.choice(_RECURRENT_SETTINGS[draft.head])
    directions = _directions(draft)
    if directions == 2 and chosen.keys() == {"activations"} and draft.chance(0.5):
        return json.dumps({"activations": [*chosen["activations"], *_USUAL_ACTIVATIONS[draft.head]]})
    spread = {name: value * directions if isinstance(value, list) else value for name, value in chosen.items()}
    return json.dumps(spread, sort_keys=True)
