"""Derived signs hold for the numbers that ONNX's reference evaluator computes from operands of known signs, and
results that are derived to be finite are."""

from __future__ import annotations

import zlib
from itertools import count, product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
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


MAGNITUDES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Few, so that numbers of different operands, or of one, are often equal or opposite."""
MOST_CHOICES = 64
"""Choices of signs for the operands of one call; of three operands these are all."""
DRAWS = 8


def numbers(shape: tuple[int, ...], dtype: str, sign: str, generator: np.random.Generator) -> Array:
    """Random small numbers of a sign, with zeros among those that may be zero."""
    values = generator.choice(MAGNITUDES, shape)
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


def feeds(case: Case, signs: tuple[str, ...], generator: np.random.Generator) -> dict[str, Array]:
    """Random operands of a call."""
    drawn = {
        f"x{i}": numbers(case.shapes[i] or (), case.dtype(i), sign, generator)
        for i, sign in zip(operands_of(case), signs, strict=True)
    }
    if case.op == "Gather":
        drawn["x1"] = np.zeros_like(drawn["x1"])
    return drawn


def operands_of(case: Case) -> list[int]:
    """The places of the operands of a call that are not left out."""
    return [i for i, shape in enumerate(case.shapes) if shape is not None]


def state(case: Case, prefix: str, signs: tuple[str, ...]) -> tuple[str, str]:
    """The call as a term, and the commands that state the types and the signs of its operands."""
    commands = []
    for i, sign in zip(operands_of(case), signs, strict=True):
        name, sizes = f'(Var "{prefix}{i}")', " ".join(map(str, case.shapes[i] or ()))
        shape = f"(vec-of {sizes})" if sizes else "(vec-empty)"
        commands += [f"(set (shape {name}) {shape})", f'(set (dtype {name}) "{case.dtype(i)}")']
        commands += [f"({fact} {name})" for fact in (*SIGNS[sign], "finite")]
    term = egglog_term(case, prefix)
    term = f"(Out {term} 0)" if STANDARD[case.op].sort == "N" else term
    return term, "\n".join([*commands, term])


@pytest.mark.representatives(6)
@pytest.mark.parametrize("op", [op for op in STANDARD if op not in NOT_EVALUATED])
def test_derived_signs_hold(op: str, analyses: Any) -> None:
    """Whatever the signs of the operands: each choice of them for each call."""
    serial = count()

    @settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(cases(op))
    def check(case: Case) -> None:
        choices = list(product(SIGNS, repeat=len(operands_of(case))))
        choices = Random(0).sample(choices, min(len(choices), MOST_CHOICES))
        number = next(serial)
        terms, commands = zip(*(state(case, f"{op}{number}.{i}.", s) for i, s in enumerate(choices)), strict=True)
        analyses.run("\n".join(commands))
        evaluator = ReferenceEvaluator(onnx_model(case))
        for term, signs in zip(terms, choices, strict=True):
            derived = [fact for fact in ("nonneg", "nonzero", "finite") if analyses.holds(f"({fact} {term})")]
            generator = np.random.default_rng(zlib.crc32(f"{case} {signs}".encode()))
            for _ in range(DRAWS if derived else 0):
                with np.errstate(all="ignore"):
                    values = np.asarray(evaluator.run(None, feeds(case, signs, generator))[0])
                assert all(holds(fact, values) for fact in derived), (derived, signs, term)

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
