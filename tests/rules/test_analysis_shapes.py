"""Derived shapes and dtypes are those of ONNX's own inference, on random calls of every operator."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from eqfuse.ir.operators import STANDARD

from ..ir.onnx_cases import Case, cases, egglog_term, onnx_types

NOT_INFERRED = {"Resize", "GroupNormalization", "If"}
"""Sizes of Resize and branches of If are opaque to rules; ONNX infers nothing about a GroupNormalization."""


@pytest.mark.representatives(6)
@pytest.mark.parametrize("op", [op for op in STANDARD if op not in NOT_INFERRED])
def test_derives_what_onnx_infers(op: str, analyses: Any) -> None:
    numbers = count()

    @settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(cases(op))
    def check(case: Case) -> None:
        prefix = f"{op}{next(numbers)}."
        for i, shape in enumerate(case.shapes):
            if shape is not None:
                analyses.variable(f"{prefix}{i}", shape, case.dtype(i))
        term = egglog_term(case, prefix)
        for i, expected in enumerate(onnx_types(case)):
            output = f"(Out {term} {i})" if STANDARD[op].sort == "N" else term
            assert analyses.type_of(output) == expected, output

    check()


SYMBOLIC = {
    "(Add {a} {b})": (-2, 3),  # a symbolic dimension against 1 and against itself
    "(Add {a} {c})": None,  # against a size: unknown
    "(MatMul {a} (Transpose {a} (vec-of 1 0)))": (-2, -2),
    "(Reshape {a} (vec-of 3 -2))": (3, -2),
    "(Reshape {a} (vec-of 3 -1))": None,
    "(Flatten {a} 1)": (-2, 3),
    "(Flatten {a} 0)": None,
    "(Concat {a} {a} 1)": (-2, 6),
    "(Concat {a} {a} 0)": None,
    "(Concat {a} {c} 1)": None,
    "(ReduceSum {a} (vec-of 1) 0)": (-2,),
    "(Slice {a} (vec-of 1) (vec-of 3) (vec-of 1) (vec-of 1))": (-2, 2),
    "(Slice {a} (vec-of 0) (vec-of 1) (vec-of 0) (vec-of 1))": None,
    "(Tile {a} (vec-of 1 2))": (-2, 6),
    '(Pad {a} (vec-of 0 1 0 1) (Absent) "constant")': (-2, 5),
    "(Gather {a} {one} 0)": (1, 1, 3),
    "(Unsqueeze {a} (vec-of 1))": (-2, 1, 3),
}


def test_symbolic_dimensions(analyses: Any) -> None:
    shapes = {"a": (-2, 3), "b": (1, 3), "c": (4, 3), "one": (1, 1)}
    terms = {name: analyses.variable(name, s) for name, s in shapes.items()}
    derived = {term: analyses.type_of(term.format(**terms)) for term in SYMBOLIC}
    assert derived == {term: None if shape is None else (shape, "float32") for term, shape in SYMBOLIC.items()}


def test_symbolic_window_that_keeps_its_dimension(analyses: Any) -> None:
    x, w = analyses.variable("x", (1, 3, -2, 8)), analyses.variable("w", (5, 3, 3, 3))
    ones = "(vec-of 1 1)"
    convolution = f"(Conv {x} {w} (Absent) (vec-of 3 3) (vec-of 1 1 1 1) {ones} {ones} 1)"
    assert analyses.type_of(convolution) == ((1, 5, -2, 8), "float32")


def test_window_larger_than_its_input(analyses: Any) -> None:
    case = Case("AveragePool", ((1, 3, 7, 7),), {
        "kernel_shape": (20, 20), "pads": (0, 0, 0, 0), "strides": (20, 20), "dilations": (1, 1),
        "ceil_mode": 1, "count_include_pad": 0,
    })  # fmt: skip
    analyses.variable("p0", (1, 3, 7, 7))
    assert [analyses.type_of(egglog_term(case, "p"))] == onnx_types(case) == [((1, 3, 1, 1), "float32")]


def test_group_normalization_keeps_the_type(analyses: Any) -> None:
    x, scale = analyses.variable("x", (2, 4, 3)), analyses.variable("s", (4,))
    assert analyses.type_of(f"(GroupNormalization {x} {scale} {scale} 1e-5 2 1)") == ((2, 4, 3), "float32")


@pytest.mark.parametrize(
    "term",
    [
        "(ReduceSum {x} (vec-of 5) 1)",
        "(ReduceSum {x} (vec-of 1 0) 0)",
        "(Transpose {x} (vec-of 0 7))",
        "(Slice {x} (vec-of 0) (vec-of 1) (vec-of 9) (vec-of 1))",
        "(Concat {x} {x} 5)",
        "(Gather {x} {x} 4)",
        "(Unsqueeze {x} (vec-of 9))",
        "(Out (Split {x} (vec-of 1 1) 3) 0)",
        "(Out (Split {x} (vec-of 1 1) 0) 7)",
    ],
)
def test_axes_out_of_range_derive_nothing(term: str, analyses: Any) -> None:
    x = analyses.variable("x", (2, 3))
    assert analyses.type_of(term.format(x=x)) is None
