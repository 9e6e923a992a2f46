"""Derived signs hold for the numbers that ONNX's reference evaluator computes from operands of known signs, and
results that are derived to be finite are."""

from __future__ import annotations

import zlib
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from eqfuse.ir.operators import STANDARD

from ..ir.onnx_cases import Case, cases, egglog_term, onnx_model

Array = np.ndarray[Any, Any]
NOT_EVALUATED = {"Resize", "Swish", "Softsign", "MaxPool", "AveragePool", "ConvTranspose", "If"}
"""Opaque sizes and branches; what the evaluator lacks, or refuses for scalars; windows that it computes otherwise."""
SIGNS: dict[str, tuple[str, ...]] = {
    "any": (),
    "nonneg": ("nonneg",),
    "nonzero": ("nonzero",),
    "positive": ("nonneg", "nonzero"),
}


def numbers(shape: tuple[int, ...], dtype: str, sign: str, generator: np.random.Generator) -> Array:
    """Random small numbers of a sign, with zeros among those that may be zero."""
    values = generator.uniform(0.25, 3, shape)
    if sign in ("any", "nonzero"):
        values = values * generator.choice((-1, 1), shape)
    if sign in ("any", "nonneg"):
        values = values * generator.integers(0, 2, shape)
    values = np.abs(values) if dtype.startswith("uint") else values
    return np.asarray(np.ceil(values) if "int" in dtype else values).astype(dtype)


def holds(fact: str, values: Array) -> bool:
    """Whether a sign holds for every element that is a number."""
    if fact == "finite":
        return bool(np.isfinite(values).all())
    valid = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    return bool((valid >= 0).all() if fact == "nonneg" else (valid != 0).all())


def evaluate(case: Case, signs: tuple[str, ...], seed: int) -> Array:
    """The first output for random operands."""
    generator = np.random.default_rng(seed)
    feeds = {
        f"x{i}": numbers(shape, case.dtype(i), signs[i], generator)
        for i, shape in enumerate(case.shapes)
        if shape is not None
    }
    if case.op == "Gather":
        feeds["x1"] = np.zeros_like(feeds["x1"])
    with np.errstate(all="ignore"):
        return np.asarray(ReferenceEvaluator(onnx_model(case)).run(None, feeds)[0])


@pytest.mark.representatives(6)
@pytest.mark.parametrize("op", [op for op in STANDARD if op not in NOT_EVALUATED])
def test_derived_signs_hold(op: str, analyses: Any) -> None:
    serial = count()

    @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(cases(op), st.tuples(*[st.sampled_from(sorted(SIGNS))] * len(STANDARD[op].operands)))
    def check(case: Case, signs: tuple[str, ...]) -> None:
        prefix = f"{op}{next(serial)}."
        for i, shape in enumerate(case.shapes):
            if shape is not None:
                variable = analyses.variable(f"{prefix}{i}", shape, case.dtype(i))
                analyses.run(" ".join(f"({fact} {variable})" for fact in (*SIGNS[signs[i]], "finite")))
        term = egglog_term(case, prefix)
        output = f"(Out {term} 0)" if STANDARD[op].sort == "N" else term
        analyses.run(output)
        derived = [fact for fact in ("nonneg", "nonzero", "finite") if analyses.holds(f"({fact} {output})")]
        if derived:
            values = evaluate(case, signs, zlib.crc32(prefix.encode()))
            assert all(holds(fact, values) for fact in derived), (derived, signs)

    check()


DERIVED = [
    ("nonneg", "(Mul {x} {x})"),
    ("nonneg", "(Exp {x})"),
    ("nonzero", "(Exp {x})"),
    ("nonneg", "(ReduceSum (Relu {x}) (vec-of 0) 1)"),
    ("nonzero", "(ReduceSum (Exp {x}) (vec-of 0) 1)"),
    ("nonzero", '(Sqrt (Add (Mul {x} {x}) (Full (vec-empty) 0.5 "float32")))'),
    ("nonneg", "(Transpose (Abs {x}) (vec-of 1 0))"),
    ("nonneg", '(Clip {x} (Full (vec-empty) 0.0 "float32") (Absent))'),
    ("nonneg", "(Concat (Relu {x}) (Sigmoid {x}) 0)"),
    ("nonneg", '(Pow {x} (Full (vec-empty) 2.0 "float32"))'),
    ("finite", '(Softmax (Tanh (Full (vec-of 2 3) 1.0 "float32")) 1)'),
    ("finite", '(Log (Add (Abs {f}) (Full (vec-empty) 0.5 "float32")))'),
    ("finite", '(Div {f} (Sqrt (Add (Mul {f} {f}) (Full (vec-empty) 1e-5 "float32"))))'),
    ("finite", '(Sqrt (Mul (Full (vec-of 2) 3.0 "float32") (Full (vec-of 2) 3.0 "float32")))'),
]
"""Facts and terms; `f` is finite."""
NOT_DERIVED = [
    ("nonneg", "(Add {x} {x})"),
    ("nonzero", "(Relu {x})"),
    ("nonneg", "(Mul {x} (Relu {x}))"),
    ("nonneg", "(Mul {i} {i})"),  # integers wrap around
    ("nonneg", '(Clip {x} (Absent) (Full (vec-empty) 6.0 "float32"))'),
    ("nonneg", '(Resize (Relu {x}) "cubic" "{{}}")'),  # overshoots
    ("finite", "(Exp {f})"),  # 100 is a number of ordinary size, and too large
    ("finite", "(Log (Softmax {f} 1))"),  # a share rounds to zero
    ("finite", "(Reciprocal (Sigmoid {f}))"),
    ("finite", "(ReduceProd {f} (vec-of 0) 1)"),
    ("finite", '(Div {f} (Add (Mul {f} {f}) (Full (vec-empty) 1e-60 "float32")))'),
    ("finite", "(Relu {x})"),  # {x} is computed from who knows what
    ("finite", '(Sqrt (Neg (Full (vec-of 2) 3.0 "float32")))'),
    ("finite", '(Div (Full (vec-of 2) 3.0 "float32") (Full (vec-of 2) 0.0 "float32"))'),
    ("finite", '(ReduceMax (Full (vec-of 0) 3.0 "float32") (vec-of 0) 1)'),
]


def test_derives(analyses: Any) -> None:
    names = {name: analyses.variable(name, (2, 3)) for name in ("x", "f")}
    names["i"] = analyses.variable("i", (2,), "int32")
    written = [(fact, term.format(**names)) for fact, term in (*DERIVED, *NOT_DERIVED)]
    analyses.run("\n".join([f"(finite {names['f']})", *(term for _, term in written)]))
    assert [each for each in written if analyses.holds("({} {})".format(*each))] == written[: len(DERIVED)]
