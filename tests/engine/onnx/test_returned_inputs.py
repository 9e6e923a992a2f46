"""Inputs that are outputs, too, and are declared in two ways."""

from __future__ import annotations

import itertools

import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.engine.onnx.model import read

from ..models import model, value

SHAPES: dict[str, list[int | str | None] | None] = {
    "no shape": None, "names": ["N", "M"], "a size": ["N", 3], "sizes": [2, 3], "one name": ["K", "K"],
    "unnamed": [None, None], "minus one": [-1, 3],
}  # fmt: skip
PAIRS = list(itertools.product(SHAPES, SHAPES))


def returns_its_input(given: str, declared: str) -> onnx.ModelProto:
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Neg", ["n"], ["y"])]
    return model(nodes, [value("x", SHAPES[given])], [value("x", SHAPES[declared]), "y"])


@pytest.mark.representatives(3)
@pytest.mark.parametrize(("given", "declared"), PAIRS, ids=map(" and ".join, PAIRS))
def test_they_are_drawn_as_both_declarations_say(given: str, declared: str) -> None:
    result = eqfuse.optimize_with_result(returns_its_input(given, declared))
    assert result.verification is not None
    assert result.verification.status == "passed"


@pytest.mark.parametrize(
    ("given", "declared", "shape"),
    [
        ("no shape", "no shape", None),
        ("no shape", "sizes", [2, 3]),
        ("sizes", "no shape", [2, 3]),
        ("names", "a size", ["N", 3]),
        ("names", "one name", ["N", "M"]),
        ("unnamed", "one name", ["K", "K"]),
        ("one name", "sizes", [2, 3]),
        ("minus one", "no shape", [None, 3]),
        ("minus one", "names", ["N", 3]),
    ],
)
def test_sizes_come_before_names_and_the_input_before_the_output(
    given: str, declared: str, shape: list[int | str | None] | None
) -> None:
    (found,) = read(returns_its_input(given, declared)).graph.inputs
    sizes = None if found.shape is None else [getattr(size, "value", size) for size in found.shape]
    assert sizes == shape
