"""What holds of the meaning of every operator alike."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from eqfuse.ir.operators import NUMBERS, RECURRENT, STANDARD, Arithmetic, Array, Operand, Unsupported, evaluate, full
from eqfuse.ir.operators.quantization import CONVERSIONS, INTEGER_PRODUCTS

from ..onnx_cases import Case, cases
from .onnx_answers import random_array
from .opaque_numbers import OpaqueArithmetic, hidden, shown

WITHOUT_SYMBOLS = {
    **dict.fromkeys(("ArgMax", "ArgMin"), "numbers decide which position it is"),
    "Hardmax": "which element is the largest decides where the one is",
    **dict.fromkeys(("BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "Mod"), "integers only"),
    "Resize": "tested by itself",
    **dict.fromkeys(RECURRENT, "too many terms"),
    **dict.fromkeys((*CONVERSIONS, *INTEGER_PRODUCTS), "the types of integers decide"),
}


@pytest.mark.parametrize("head", STANDARD)
def test_a_meaning_takes_the_arguments_of_its_constructor(head: str) -> None:
    parameters = inspect.signature(STANDARD[head].evaluate or evaluate).parameters.values()
    assert parameters
    if all(p.kind != p.VAR_POSITIONAL for p in parameters):
        assert len(parameters) == 1 + len(STANDARD[head].arguments)


@pytest.mark.parametrize(("head", "other"), [("Expand", (2,)), ("Min", np.ones(2, np.float32))])
def test_a_required_operand_is_named_if_it_is_absent(head: str, other: Array | tuple[int, ...]) -> None:
    """numpy would make an array of None, or complain of it in words of its own."""
    with pytest.raises(Unsupported, match=rf"{head}: operand \w+ is absent"):
        evaluate(head, [None, other])


def arguments(case: Case) -> list[Any]:
    operands = iter(_operand(case, i) for i in range(len(case.shapes)))
    signature = STANDARD[case.op].arguments
    return [next(operands) if isinstance(a, Operand) else case.literals[a.name] for a in signature]


def _operand(case: Case, position: int) -> Array | None:
    shape, dtype = case.shapes[position], case.dtype(position)
    if shape is None:
        return None
    if dtype == "int64":
        return np.zeros(shape, np.int64)
    if dtype in ("int8", "uint8") and case.op in CONVERSIONS | INTEGER_PRODUCTS:
        return random_array(shape, dtype, position)
    x = random_array(shape, dtype if dtype == "bool" else "float64", position)
    return x if dtype == "bool" else np.asarray(np.abs(x) / 4 + 0.25)


@pytest.mark.representatives(31)
@pytest.mark.parametrize("head", sorted(STANDARD.keys() - WITHOUT_SYMBOLS.keys()))
def test_computes_by_its_arithmetic_alone(head: str) -> None:
    @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(cases(head))
    def check(case: Case) -> None:
        plain = arguments(case)
        assume(all(a.size for a in plain if isinstance(a, np.ndarray)))  # no element tells its type
        opaque = [hidden(a) if isinstance(a, np.ndarray) and a.dtype.kind in "fb" else a for a in plain]
        compare(outcome(head, plain, NUMBERS), outcome(head, opaque, OpaqueArithmetic()))

    check()


def outcome(head: str, given: list[Any], arithmetic: Arithmetic) -> tuple[Array, ...] | None:
    try:
        value = evaluate(head, given, arithmetic)
    except Unsupported:
        return None
    return value if isinstance(value, tuple) else (value,)


def compare(plain: tuple[Array, ...] | None, opaque: tuple[Array, ...] | None) -> None:
    assert (plain is None) == (opaque is None)
    for wanted, found in zip(plain or (), opaque or (), strict=True):
        tolerance = 1e-3 if wanted.dtype == np.float16 else 1e-9
        np.testing.assert_allclose(shown(found, wanted.dtype), wanted, rtol=tolerance, atol=tolerance)


def test_resize_computes_by_its_arithmetic_alone() -> None:
    x = random_array((1, 1, 2, 3), "float64")
    for mode in ("nearest", "linear"):
        given = (mode, '{"scales": [1.0, 1.0, 2.0, 1.5]}')
        compare(outcome("Resize", [x, *given], NUMBERS), outcome("Resize", [hidden(x), *given], OpaqueArithmetic()))


@pytest.mark.parametrize("head", sorted(STANDARD))
def test_the_operands_are_not_changed(head: str) -> None:
    @settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(cases(head))
    def check(case: Case) -> None:
        used, untouched = arguments(case), arguments(case)
        outcome(head, used, NUMBERS)
        for after, before in zip(used, untouched, strict=True):
            np.testing.assert_array_equal(after, before)

    if head != "Resize":
        check()


FLOAT_HEADS = ["Add", "Exp", "Gelu", "LeakyRelu", "MatMul", "ReduceSum", "ReduceMean", "Softmax", "Conv", "MaxPool"]


@pytest.mark.representatives(16)
@pytest.mark.parametrize(
    "head", [*FLOAT_HEADS, "LayerNormalization", "AveragePool", "CumSum", "Clip", "BatchNormalization"]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "longdouble"])
def test_other_floats_stay_what_they_are(head: str, dtype: str) -> None:
    wanted = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)

    @settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(cases(head))
    def check(case: Case) -> None:
        narrow = [a.astype(wanted) if isinstance(a, np.ndarray) else a for a in arguments(case)]
        wide = [a.astype(np.float64) if isinstance(a, np.ndarray) else a for a in narrow]
        found, expected = outcome(head, narrow, NUMBERS), outcome(head, wide, NUMBERS)
        assert (found is None) == (expected is None)
        for result, exact in zip(found or (), expected or (), strict=True):
            assert result.dtype == wanted
            tolerance = {"float16": 5e-3, "bfloat16": 5e-2, "longdouble": 1e-9}[dtype]
            np.testing.assert_allclose(result.astype(np.float64), exact, rtol=tolerance, atol=tolerance)

    check()


def test_extended_precision_is_kept() -> None:
    x = np.array([1, 2, 3], np.longdouble) / 3
    result = evaluate("Softmax", (x, 0))
    assert isinstance(result, np.ndarray)
    assert abs(result.sum() - 1) < 2 * np.finfo(np.longdouble).eps


def test_an_unknown_operator_is_unsupported() -> None:
    with pytest.raises(Unsupported):
        evaluate("Op", ())


@pytest.mark.parametrize(
    ("shape", "number", "dtype"),
    [
        ((2, 3), 0.5, "float32"),
        ((), -1.0, "int64"),
        ((0,), 255.0, "uint8"),
        ((2,), 1.0, "bool"),
        ((1,), np.inf, "float16"),
    ],
)
def test_full(shape: tuple[int, ...], number: float, dtype: str) -> None:
    result = full(shape, number, dtype)
    assert (result.shape, result.dtype) == (shape, np.dtype(dtype))
    assert (result == number).all()


def test_full_of_bfloat16() -> None:
    assert full((2,), 0.5, "bfloat16").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (0.5, "int32"),
        (-1.0, "uint8"),
        (256.0, "uint8"),
        (np.nan, "int64"),
        (np.inf, "int64"),
        (2.0, "bool"),
        (1.0, "string"),
    ],
)
def test_full_of_a_number_that_the_type_cannot_hold_is_unsupported(number: float, dtype: str) -> None:
    with pytest.raises(Unsupported):
        full((2,), number, dtype)
