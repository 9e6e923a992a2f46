"""Recipes of the operators of ONNX Runtime's own domain."""

from __future__ import annotations

from .conditions import Type
from .operator_draft import FACTORS, Choice, Misfit, OperatorDraft, random_shape
from .recipe_linear import conv, gemm

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh")
ORDER_OF_CONTRIBUTED: dict[str, tuple[str, ...]] = {
    "FusedMatMul": ("transA", "transB", "A", "B", "alpha"),
    "FusedGemm": ("transA", "transB", "A", "B", "C", "activation", "alpha", "beta"),
    "FusedConv": ("X", "kernel_shape", "group", "W", "B", "dilations", "pads", "strides", "Z", "activation"),
    "MultiHeadAttention": (
        "num_heads", "query", "key", "value", "bias", "key_padding_mask", "attention_bias", "scale",
    ),
}  # fmt: skip


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
    """Of a tensor, another one like it, and values for each position of its last axis."""
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
        return Type(draft.shape, draft.wish.dtype)
    if name in ("beta", "bias") and draft.chance(0.4):
        return None
    return Type(draft.shape[-1:], draft.wish.dtype)


def _matrices(draft: OperatorDraft, name: str) -> Choice:
    random = draft.random
    if name in ("transA", "transB"):
        return random.choice((0, 0, 1))
    if name == "alpha":
        return random.choice((1.0, *FACTORS))
    rank = draft.rank if draft.operands else random.choice((2, 2, 3))
    if rank < 2:
        raise Misfit
    batch = draft.shape[:-2] if draft.operands else random_shape(random, rank - 2)
    rows, columns = (random.choice((1, 2, 3, 4)) for _ in range(2))
    if name == "B" and "A" in draft.operands:
        rows = draft.shape[-2 if draft.attributes["transA"] else -1]
    elif "B" in draft.operands:
        columns = draft.shape[-1 if draft.attributes["transB"] else -2]
    is_transposed = draft.attributes[f"trans{name}"]
    return Type((*batch, columns, rows) if is_transposed else (*batch, rows, columns), draft.wish.dtype)


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
    """What the meaning looks into: query, key and value of rank 3, and a mask."""
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
