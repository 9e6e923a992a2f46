"""Element-wise operators compute what ONNX says, in every type and under broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqfuse.ir.operators import OPERATORS, Array, Unsupported, evaluate

from .onnx_answers import assert_as_onnx, random_array

SHAPES = ((2, 3), (), (1, 4), (0, 3))
PAIRS = (((2, 3), (2, 3)), ((2, 3), (3,)), ((), (2, 1)), ((2, 1, 3), (4, 1)), ((0, 3), (1, 3)), ((1,), (0,)))

ATTRIBUTES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "Elu": ((1.0,), (0.5,)),
    "Celu": ((1.0,), (0.5,), (2.0,)),
    "Selu": ((1.6732631921768188, 1.0507010221481323), (0.5, 2.0)),
    "LeakyRelu": ((0.009999999776482582,), (0.25,), (1.5,)),
    "ThresholdedRelu": ((1.0,), (0.0,), (-0.5,)),
    "HardSigmoid": ((0.20000000298023224, 0.5), (0.5, 0.25)),
    "Swish": ((1.0,), (0.5,)),
    "Gelu": (("none",), ("tanh",)),
}
"""Settings of operators that have some, as float32 where they are numbers; the defaults for others."""

DOMAINS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("Log", "Sqrt"), (0.01, 3.0)),
    **dict.fromkeys(("Asin", "Acos", "Atanh"), (-0.99, 0.99)),
    "Acosh": (1.0, 4.0),
}
"""Where an operator gives numbers; the others do between -2 and 2."""

FLOAT_UNARY = [
    name
    for name, operator in OPERATORS.items()
    if operator.category == "elementwise.unary" and name not in ("Not", "BitwiseNot", "Cast")
]


def settings_of(head: str) -> tuple[tuple[Any, ...], ...]:
    return ATTRIBUTES.get(head) or (tuple(a.default for a in OPERATORS[head].attributes),)


def floats(shape: tuple[int, ...], dtype: str, low: float, high: float) -> Array:
    return np.asarray(low + (random_array(shape, "float64") + 2) / 4 * (high - low)).astype(dtype)


FLOAT_CASES = [(head, dtype) for head in FLOAT_UNARY for dtype in ("float32", "float16")]
FLOAT_CASES.remove(("Celu", "float16"))  # ONNX has it in float32 alone


@pytest.mark.parametrize(("head", "dtype"), FLOAT_CASES)
def test_functions_of_floats(head: str, dtype: str) -> None:
    for attributes in settings_of(head):
        for shape in SHAPES:
            assert_as_onnx(head, floats(shape, dtype, *DOMAINS.get(head, (-2.0, 2.0))), *attributes)


@pytest.mark.parametrize("head", sorted(set(FLOAT_UNARY) - {"Celu", "Gelu", "HardSwish", "Mish", "Erf", "Softsign"}))
def test_functions_of_doubles(head: str) -> None:
    for attributes in settings_of(head):
        assert_as_onnx(head, floats((2, 3), "float64", *DOMAINS.get(head, (-2.0, 2.0))), *attributes)


@pytest.mark.representatives(25)
@pytest.mark.parametrize("head", FLOAT_UNARY)
@pytest.mark.parametrize("dtype", ["float64", "longdouble"])
def test_wider_floats_agree_with_float32(head: str, dtype: str) -> None:
    x = floats((3, 4), "float32", *DOMAINS.get(head, (-2.0, 2.0)))
    for attributes in settings_of(head):
        narrow, wide = evaluate(head, (x, *attributes)), evaluate(head, (x.astype(dtype), *attributes))
        assert isinstance(wide, np.ndarray)
        assert wide.dtype == (np.dtype(bool) if head == "IsNaN" else np.dtype(dtype))
        np.testing.assert_allclose(wide.astype(np.float64), narrow, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", ["Abs", "Neg", "Sign", "Relu", "BitwiseNot"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_functions_of_integers(head: str, dtype: str) -> None:
    for shape in SHAPES:
        assert_as_onnx(head, random_array(shape, dtype))


@pytest.mark.parametrize("head", ["Abs", "Sign", "BitwiseNot"])
def test_functions_of_unsigned_integers(head: str) -> None:
    assert_as_onnx(head, random_array((2, 3), "uint8"))


def test_not() -> None:
    assert_as_onnx("Not", random_array((2, 3), "bool"))


@pytest.mark.parametrize("head", ["Floor", "Ceil", "Round", "Sign"])
def test_rounding_of_halves(head: str) -> None:
    assert_as_onnx(head, np.array([-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 0.49999997], np.float32))


@pytest.mark.parametrize("head", ["Sigmoid", "Tanh", "Relu", "Exp", "Erf", "IsNaN", "Softplus", "Elu", "HardSigmoid"])
def test_infinities_and_undefined_numbers(head: str) -> None:
    x = np.array([np.inf, -np.inf, 100.0, -100.0], np.float32)
    if head in ("IsNaN", "Exp"):
        x = np.append(x, np.float32(np.nan))
    assert_as_onnx(head, x, *settings_of(head)[0])


def test_thresholded_relu_cuts_off_infinity_and_undefined_numbers() -> None:
    """ONNX Runtime asks whether x is above alpha, and ONNX's reference whether it is not, which NaN tells apart."""
    assert_as_onnx("ThresholdedRelu", np.array([np.inf, -np.inf, 1.0, 2.0], np.float32), 1.0)
    assert evaluate("ThresholdedRelu", (np.array(np.nan, np.float32), 1.0)) == 0


@pytest.mark.parametrize("head", ["Add", "Sub", "Mul", "Div", "Min", "Max"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_binary(head: str, dtype: str) -> None:
    for a, b in PAIRS:
        y = random_array(b, dtype, 1)
        if head == "Div":
            y = np.where(y == 0, np.ones_like(y), y)
        assert_as_onnx(head, random_array(a, dtype), y)


@pytest.mark.parametrize("head", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_comparisons(head: str, dtype: str) -> None:
    for a, b in PAIRS:
        x, y = (np.asarray(np.rint(random_array(shape, dtype)), dtype) for shape in (a, b))
        assert_as_onnx(head, x, y)


@pytest.mark.parametrize("head", ["And", "Or", "Xor", "Equal"])
def test_truth_values(head: str) -> None:
    for a, b in PAIRS:
        assert_as_onnx(head, random_array(a, "bool"), random_array(b, "bool", 1))


@pytest.mark.parametrize("head", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_bits(head: str, dtype: str) -> None:
    for a, b in PAIRS:
        assert_as_onnx(head, random_array(a, dtype), random_array(b, dtype, 1))


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", ["uint8", "uint64"])
def test_shifts(direction: str, dtype: str) -> None:
    x = np.array([0, 1, 129, 255], dtype)
    assert_as_onnx("BitShift", x, np.array([0, 1, 7, 3], dtype), direction)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_either_sign(dtype: str, fmod: int) -> None:
    x, y = (a.astype(dtype) for a in np.meshgrid([-7, -6, 0, 5, 6], [-3, -1, 2, 3]))
    assert_as_onnx("Mod", x, y, fmod)


def test_remainders_of_floats() -> None:
    assert_as_onnx("Mod", np.array([5.5, -5.5, 5.5, -6.0], np.float32), np.array([2, 2, -2, 3], np.float32), 1)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_divided_towards_zero(dtype: str) -> None:
    x, y = (a.astype(dtype) for a in np.meshgrid([-7, -6, 0, 5, 6], [-3, -1, 2, 3]))
    assert_as_onnx("Div", x, y)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("head", ["Add", "Sub", "Mul"])
def test_integers_wrap(head: str, dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.max, limits.min, limits.max], dtype)
    assert_as_onnx(head, x, np.array([1, 1, limits.max], dtype))


@pytest.mark.parametrize(
    ("base", "exponent"),
    [("float32", "float32"), ("float32", "int64"), ("int32", "int32"), ("int64", "int32"), ("int32", "float32")],
)
def test_powers_have_the_type_of_the_base(base: str, exponent: str) -> None:
    assert_as_onnx("Pow", np.array([1, 2, 3, 0], base), np.array([[0], [1], [3]], exponent))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("slope", [(), (3,), (2, 1), (2, 3)])
def test_prelu(dtype: str, slope: tuple[int, ...]) -> None:
    assert_as_onnx("PRelu", random_array((2, 3), dtype), random_array(slope, dtype, 1))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint8"])
def test_where(dtype: str) -> None:
    for condition, a, b in (((2, 3),) * 3, ((2, 1), (3,), ()), ((), (2, 3), (1, 3)), ((0, 1), (1, 2), (2,))):
        assert_as_onnx("Where", random_array(condition, "bool"), random_array(a, dtype), random_array(b, dtype, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("bounds", [(None, None), (1, None), (None, 1), (1, 3), (3, 1)])
def test_clip(dtype: str, bounds: tuple[int | None, int | None]) -> None:
    low, high = (None if b is None else np.array(b, dtype) for b in bounds)
    assert_as_onnx("Clip", random_array((3, 4), dtype), low, high)


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("target", ["float32", "float64", "float16", "int32", "int64", "uint8", "bool"])
def test_cast(source: str, target: str) -> None:
    x = np.array([0, 1, 2, 100] if source in ("uint8", "bool") or target == "uint8" else [-3, -1, 0, 2], source)
    if source.startswith("float"):
        x = x + np.array(0.75, source)
    assert_as_onnx("Cast", x, target)


def test_cast_rounds_to_the_narrow_type() -> None:
    assert_as_onnx("Cast", np.array([1e6, 1 / 3, -65504, 1e-8], np.float32), "float16")


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        ("Exp", (np.ones(2, np.int32),)),
        ("LeakyRelu", (np.ones(2, np.int32), 0.5)),
        ("Floor", (np.ones(2, np.int32),)),
        ("Neg", (np.ones(2, np.uint8),)),
        ("Add", (np.ones(2, bool), np.ones(2, bool))),
        ("Add", (np.ones(2, np.float32), np.ones(2, np.float64))),
        ("Add", (np.ones(2), np.ones(3))),
        ("And", (np.ones(2), np.ones(2))),
        ("Where", (np.ones(2), np.ones(2), np.ones(2))),
        ("Div", (np.ones(2, np.int32), np.array([1, 0], np.int32))),
        ("Mod", (np.ones(2, np.int32), np.array([1, 0], np.int32), 0)),
        ("Mod", (np.ones(2), np.ones(2), 0)),
        ("BitShift", (np.ones(2, np.int32), np.ones(2, np.int32), "LEFT")),
        ("BitShift", (np.ones(2, np.uint8), np.full(2, 8, np.uint8), "LEFT")),
        ("PRelu", (np.ones(2), np.ones((3, 2)))),
        ("Clip", (np.ones(2), np.ones(2), None)),
        ("Cast", (np.array([np.nan]), "uint32")),
        ("Cast", (np.array([5e9], np.float32), "uint32")),
        ("Cast", (np.ones(2), "string")),
        ("Cast", (np.ones(2), "object")),
    ],
    ids=str,
)
def test_what_onnx_does_not_define_is_unsupported(head: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Unsupported):
        evaluate(head, arguments)


@pytest.mark.parametrize(("value", "dtype"), [(2147483647.5, "int32"), (-0.5, "uint8"), (255.5, "uint8")])
def test_the_ends_of_a_type_can_be_cast(value: float, dtype: str) -> None:
    assert evaluate("Cast", (np.array([value]), dtype)) == np.array([int(value)], dtype)


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint64", "bool"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floats_that_no_integer_is_are_what_onnx_runtime_makes_of_them(source: str, target: str) -> None:
    sizes = np.array([0.5, 1, 200, 256, 300, 4e4, 3e9, 5e9, 9.3e18, 1.9e19, np.inf, np.nan])
    assert_as_onnx("Cast", np.concatenate([sizes, -sizes]).astype(source), target)


@pytest.mark.parametrize("base", ["int32", "int64"])
@pytest.mark.parametrize("shape", [(), (1,), (8, 1), (1, 9), (8, 9)])
def test_powers_of_integers(base: str, shape: tuple[int, ...]) -> None:
    """Squares and cubes of whole rows wrap around, all others are floats that are cut."""
    numbers = np.array([0, 1, -1, 2, -3, 7, 46341, np.iinfo(base).max, np.iinfo(base).min], base)
    exponents = np.random.default_rng(0).choice(np.array([-2, 0, 1, 2, 3, 4, 31, 62], base), shape)
    assert_as_onnx("Pow", np.tile(numbers, (8, 1)), exponents)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1)])
def test_a_power_of_one_half_is_no_root(shape: tuple[int, ...]) -> None:
    """Of minus infinity and of the negative zero, however the exponent broadcasts."""
    base = np.array([-np.inf, -0.0, 4.0], np.float32)
    power = evaluate("Pow", [base, np.full(shape, 0.5, np.float32)])
    np.testing.assert_array_equal(power, np.broadcast_to(np.float32([np.inf, 0.0, 2.0]), np.shape(power)))
    assert not np.signbit(power).any()


@pytest.mark.filterwarnings("error")
def test_no_warning_is_shown() -> None:
    x = np.array([0.0, -1.0, 1e30, np.inf], np.float32)
    for head in ("Log", "Sqrt", "Reciprocal", "Exp", "Acos", "Mish"):
        evaluate(head, (x,))
    for head in ("Add", "Sub", "Mul", "Div", "Pow"):
        evaluate(head, (x, -x))
    evaluate("Cast", (x, "float16"))
    evaluate("LeakyRelu", (x, 1e60))
