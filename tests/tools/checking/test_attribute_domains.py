"""Samples have every kind of value of each attribute of each operator, and each optional operand is given or absent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import pytest

from eqfuse.ir.operators import OPERATORS, RECURRENT
from eqfuse.ir.operators.resize import CROP, POLICIES, ROUNDINGS, TRANSFORMATIONS
from eqfuse.ir.operators.schema import Attribute, OperatorSchema
from eqfuse.rules.sexpr import read
from eqfuse.tools.checking.sampling.recipe_linear import ACTIVATIONS, DIRECTIONS
from eqfuse.tools.checking.sampling.recipes import STASH_TYPES
from eqfuse.tools.checking.sampling.samples import draw_sample, left_sides
from eqfuse.tools.checking.sampling.terms import Leaf, Term
from eqfuse.tools.checking.sampling.types import TYPES

SAMPLES = 400
Holds = Callable[[Any], bool]

FLAGS = (
    "keepdims", "exclusive", "reverse", "select_last_index", "ceil_mode", "count_include_pad", "storage_order",
    "transA", "transB", "layout", "fmod",
)  # fmt: skip
WORDS: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(FLAGS, (0, 1)),
    "approximate": ("none", "tanh"),
    "to": TYPES,
    "activation": ACTIVATIONS,
    "stash_type": STASH_TYPES,
    "blocksize": (1, 2, 3),
}
"""By attribute all values that it can have, or all that its operator tells apart."""
WORDS_OF_OPERATORS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    **{(head, "direction"): DIRECTIONS for head in RECURRENT},
    ("Pad", "mode"): ("constant", "edge", "reflect", "wrap"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
}
NUMBERS: Mapping[str, Holds] = {
    "negative": lambda v: v < 0,
    "zero": lambda v: v == 0,
    "nearly zero": lambda v: 0 < v < 0.05,
    "below one": lambda v: 0.05 <= v < 1,
    "one": lambda v: v == 1,
    "above one": lambda v: v > 1,
}
"""Kinds of numbers, of which a float attribute has all but for an epsilon, which is positive."""
EPSILONS: Mapping[str, Holds] = {name: NUMBERS[name] for name in ("nearly zero", "below one")}
INTEGERS: Mapping[str, Mapping[str, Holds]] = {
    "kernel_shape": {
        "1": lambda v: 1 in v,
        "2": lambda v: 2 in v,
        "3": lambda v: 3 in v,
        "unequal": lambda v: v[0] != v[-1],
    },
    "strides": {
        "1": lambda v: 1 in v,
        "2": lambda v: 2 in v,
        "3": lambda v: 3 in v,
        "unequal": lambda v: v[0] != v[-1],
    },
    "dilations": {
        "1": lambda v: 1 in v,
        "2": lambda v: 2 in v,
        "3": lambda v: 3 in v,
        "unequal": lambda v: v[0] != v[-1],
    },
    "pads": {"none": lambda v: not any(v), "some": any, "uneven": lambda v: v[: len(v) // 2] != v[len(v) // 2 :]},
    "output_padding": {"none": lambda v: not any(v), "some": any},
    "group": {"one": lambda v: v == 1, "several": lambda v: v > 1},
    "num_groups": {"one": lambda v: v == 1, "several": lambda v: v > 1},
    "num_heads": {"one": lambda v: v == 1, "several": lambda v: v > 1},
    "hidden_size": {"one": lambda v: v == 1, "several": lambda v: v > 1},
    "axis": {"first": lambda v: v in (0, (0,)), "others": lambda v: v not in (0, (0,))},
    "axes": {"one": lambda v: len(v) == 1, "several": lambda v: len(v) > 1, "first": lambda v: 0 in v},
    "perm": {"moves": lambda v: list(v) != sorted(v), "keeps": lambda v: list(v) == sorted(v)},
    "shape": {"several": lambda v: len(v) > 1, "ones": lambda v: 1 in v, "nothing": lambda v: 0 in v},
    "repeats": {"once": lambda v: 1 in v, "several": lambda v: max(v, default=0) > 1, "never": lambda v: 0 in v},
    "starts": {"first": lambda v: 0 in v, "later": lambda v: max(v, default=0) > 0},
    "ends": {"early": lambda v: 1 in v, "later": lambda v: max(v, default=0) > 1},
    "steps": {"1": lambda v: 1 in v, "2": lambda v: 2 in v, "3": lambda v: 3 in v},
    "split": {
        "equal": lambda v: len(set(v)) == 1 < len(v),
        "unequal": lambda v: len(set(v)) > 1,
        "nothing": lambda v: 0 in v,
    },
}
"""By attribute the kinds of integers that it has."""
UNREAD = {("MultiHeadAttention", "bias"), ("MultiHeadAttention", "key_padding_mask"), ("QuantizeLinear", "y_scale")}
"""Operands that the operator's meaning does not look into, which are always absent; and the scale, which only compiled
kernels, not ONNX, may lack."""


@cache
def drawn_terms(head: str) -> tuple[Term, ...]:
    """Terms of one operator, as samples have them."""
    arguments = OPERATORS[head].arguments
    random = Random(0)
    pattern = f"({head} {' '.join(f'v{i}' for i, _ in enumerate(arguments))})"
    pattern = f"(Out {pattern} i)" if OPERATORS[head].sort == "N" else pattern
    (left,) = left_sides(read(pattern).forms, random, 1)
    samples = (draw_sample(left, random, "float32" if i % 2 == 0 else "") for i in range(SAMPLES))
    terms = (term for s in samples if s for term in s.terms.values())
    return tuple(term for term in terms if isinstance(term, Term) and term.head == head)


def kinds_of(operator: OperatorSchema, attribute: Attribute) -> Mapping[str, Holds]:
    """The kinds of values that an attribute has to have, each with what tells them."""
    if attribute.kind == "f64":
        kinds = EPSILONS if attribute.name == "epsilon" else NUMBERS
        return kinds if attribute.default is None else {**kinds, "ONNX's default": lambda v: v == attribute.default}
    words = WORDS_OF_OPERATORS.get((operator.name, attribute.name), WORDS.get(attribute.name))
    if words is not None:
        return {str(word): lambda v, word=word: v == word for word in words}  # type: ignore[misc]
    return INTEGERS[attribute.name]


@pytest.mark.representatives(5)
@pytest.mark.parametrize("head", [name for name, operator in OPERATORS.items() if operator.arguments])
def test_every_attribute_takes_every_kind_of_value(head: str) -> None:
    """As far as the operator's meaning allows: a scale of attention is any number, the pads of a Pad may cut."""
    operator = OPERATORS[head]
    terms = drawn_terms(head)
    assert terms
    missing = []
    for place, argument in enumerate(operator.arguments):
        values = [term.arguments[place] for term in terms]
        if isinstance(argument, Attribute) and argument.name != "config":
            kinds = kinds_of(operator, argument)
            missing += [f"{argument.name}: {kind}" for kind, holds in kinds.items() if not any(map(holds, values))]
        elif not isinstance(argument, Attribute) and argument.optional and (head, argument.name) not in UNREAD:
            absent = {value == Leaf("Absent") for value in values}
            missing += [
                f"{argument.name}: {'absent' if each else 'given'}" for each in (False, True) if each not in absent
            ]
    assert missing == []


@pytest.mark.parametrize("head", sorted(RECURRENT))
def test_every_setting_of_a_recurrent_network(head: str) -> None:
    """Those that few models give, and none."""
    settings = [json.loads(str(term.arguments[-1])) for term in drawn_terms(head)]
    wanted = {"activations", "clip", *{"GRU": ("linear_before_reset",), "LSTM": ("input_forget",)}.get(head, ())}
    assert wanted <= {name for each in settings for name in each}
    assert {} in settings


def test_every_setting_of_a_resize() -> None:
    """Every transformation, rounding and policy; ONNX's defaults are left out, as the encoder does."""
    settings = [json.loads(str(term.arguments[2])) for term in drawn_terms("Resize")]
    assert {each.get("coordinate_transformation_mode", "half_pixel") for each in settings} == set(TRANSFORMATIONS)
    assert {each.get("nearest_mode", "round_prefer_floor") for each in settings} == set(ROUNDINGS)
    assert {each.get("keep_aspect_ratio_policy", "stretch") for each in settings} == set(POLICIES)
    assert all(("roi" in each) == (each.get("coordinate_transformation_mode") == CROP) for each in settings)
    assert {"scales", "sizes", "axes", "cubic_coeff_a", "exclude_outside", "extrapolation_value"} <= {
        name for each in settings for name in each
    }
    assert "half_pixel" not in {each.get("coordinate_transformation_mode") for each in settings}
