"""Which terms are constant, and which constants are one number."""

from __future__ import annotations

from typing import Any

HALF = '(Full (vec-empty) 0.5 "float32")'
FOUR = '(Full (vec-of 2 3) 4.0 "float32")'
WHOLE = '(Full (vec-empty) 7.0 "int32")'


CONSTANT = (
    '(Weight "w")',
    '(Relu (Weight "w"))',
    '(Add (Weight "w") (Weight "v"))',
    '(Where (Weight "w") (Weight "v") (Weight "u"))',
    '(Clip (Weight "w") (Absent) (Weight "v"))',
    '(Conv (Weight "x") (Weight "w") (Absent) (vec-of 1) (vec-of 0 0) (vec-of 1) (vec-of 1) 1)',
    '(Out (Split (Weight "w") (vec-of 1 1) 0) 1)',
    '(Out (Op "key" (Cons (Weight "w") (Nil))) 0)',
    '(BatchNormalization (Weight "x") (Weight "s") (Weight "b") (Weight "m") (Weight "v") 1e-5)',
    '(Transpose (ReduceSum (Weight "w") (vec-of 0) 1) (vec-of 1 0))',
)
VARIABLE = (
    '(Var "x")',
    '(Add (Weight "w") (Var "x"))',
    '(MatMul (Var "x") (Weight "w"))',
    '(Out (Op "key" (Cons (Weight "w") (Cons (Var "x") (Nil)))) 0)',
    '(Out (Split (Var "x") (vec-of 1 1) 0) 1)',
    '(BatchNormalization (Var "x") (Weight "s") (Weight "b") (Weight "m") (Weight "v") 1e-5)',
)


def test_constant(analyses: Any) -> None:
    terms = (*CONSTANT, *VARIABLE)
    analyses.run("\n".join(terms))
    assert tuple(term for term in terms if analyses.holds(f"(const {term})")) == CONSTANT


VALUES = {
    HALF: 0.5,
    f"(Add {HALF} {FOUR})": 4.5,
    f"(Sub {HALF} {FOUR})": -3.5,
    f"(Mul {HALF} {FOUR})": 2.0,
    f"(Div {HALF} {FOUR})": 0.125,
    f"(Neg {HALF})": -0.5,
    f"(Reciprocal {FOUR})": 0.25,
    f"(Sqrt {FOUR})": 2.0,
    f"(Reshape {FOUR} (vec-of 6))": 4.0,
    f"(Expand {HALF} (vec-of 3 2))": 0.5,
    f"(Concat {FOUR} {FOUR} 0)": 4.0,
    '(Weight "w")': None,
    f'(Div {HALF} (Full (vec-empty) 0.0 "float32"))': None,
    f"(Sqrt (Neg {HALF}))": None,
    f"(Div {WHOLE} {WHOLE})": None,  # integers cut
    f'(Concat {FOUR} (Full (vec-of 2 3) 5.0 "float32") 0)': None,
}


def test_uniform_value(analyses: Any) -> None:
    analyses.run("\n".join(VALUES))
    assert {term for term in VALUES if analyses.holds(f"(= v (value {term}))")} == {
        term for term, value in VALUES.items() if value is not None
    }
    assert all(value is None or analyses.holds(f"(= (value {term}) {value!r})") for term, value in VALUES.items())


def test_full_has_its_type(analyses: Any) -> None:
    assert analyses.type_of('(Full (vec-of 2 3) 1.0 "float16")') == ((2, 3), "float16")
