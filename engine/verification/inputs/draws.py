"""Seeded random values for the inputs of a model."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from ..runs.values import Feeds, RunError, Value
from .plans import InputSpec, Plan, Temper, numpy_type, shape_of
from .roles import STRUCTURAL_ROLES, Role

_WORDS = ("alpha", "beta", "Gamma", "delta 4", "", "épsilon")
_SEQUENCE_LENGTH = 2
"""Elements of an input that is a sequence."""
_GENERATED_BYTES = 8
"""Random numbers are doubles before they are cast."""
_LARGEST_BYTES = 1 << 30
"""The most bytes of all inputs together: several versions of each are in memory, with the results of both models."""

_EDGES = (0.0, 0.0, -0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.5, 6.0)
"""Numbers at which Round, Floor, Relu, Clip and comparisons change over; zeros are the most frequent in practice."""
_EDGE_SHARE = 0.5
"""Share of elements that are such numbers, or ends of an integer type."""
_COMPARED_SHARE = 0.1
"""Share of elements that are constants with which the graph compares the input."""
_REPEATED_SHARE = 0.3
"""Share of elements that are copies of their neighbours."""
_IEEE_FLOATS = ("float16", "float32", "float64")
_LARGEST_EXPONENT = {"float16": 2.0}
_USUAL_EXPONENT = 3.0
"""Large numbers are drawn up to this power of ten: products of a few of them do not overflow."""
_SPECIAL_SHARE = 0.25
"""The share of special values in a small tensor; a large one has each special value once, so that sums over parts of it
stay finite."""


def generate(specs: Iterable[InputSpec], plan: Plan, seed: int) -> Feeds:
    """Values for every input; the same seed gives the same values, for any order of the inputs.

    Raises RunError for an input of a type that cannot be generated, and if the inputs would take too much memory.
    """
    specs = tuple(specs)
    _check_memory(specs, plan)
    return {spec.name: _value(spec, plan, seed) for spec in specs}


def _check_memory(specs: Iterable[InputSpec], plan: Plan) -> None:
    total = 0
    for spec in specs:
        shape = shape_of(spec, plan)
        if any(size < 0 for size in shape):
            raise RunError(f"input {spec.name!r} would have the shape {shape}; fix its shape")
        total += math.prod(shape) * _GENERATED_BYTES
        if total > _LARGEST_BYTES:
            raise RunError(f"input {spec.name!r} of shape {shape} is too large to be generated; fix a smaller shape")


def _value(spec: InputSpec, plan: Plan, seed: int) -> Value:
    is_stress = plan.temper is not Temper.ORDINARY
    temper = [plan.temper.value] if is_stress else []
    generator = np.random.default_rng([seed, zlib.crc32(spec.name.encode()), *temper])
    if spec.container == "sequence":
        return [_array(spec, plan, generator) for _ in range(_SEQUENCE_LENGTH)]
    return _array(spec, plan, generator)


def _array(spec: InputSpec, plan: Plan, generator: np.random.Generator) -> NDArray[Any]:
    kind = numpy_type(spec.element_type)
    if kind is None or spec.container == "other":
        raise RunError(f"input {spec.name!r} is of a type that cannot be drawn")
    shape = shape_of(spec, plan)
    is_stress = plan.temper is not Temper.ORDINARY and not spec.steers
    if spec.element_type == onnx.TensorProto.STRING:
        return generator.choice(np.array(_WORDS, dtype=object), size=shape)
    if spec.purpose.role is Role.MASK or kind.kind == "b":
        return _mask(plan.temper if is_stress else Temper.ORDINARY, shape, generator).astype(kind)
    if kind.kind in "iu":
        integers = _stress_integers if is_stress else _integers
        return np.asarray(integers(spec, plan, kind, shape, generator)).astype(kind)
    if is_stress and kind.kind != "c" and spec.purpose.role is not Role.SCALE:
        with np.errstate(over="ignore"):
            return np.asarray(_stress_floats(spec, plan.temper, kind, shape, generator)).astype(kind)
    return np.asarray(_floats(spec, plan, kind, shape, generator)).astype(kind)


def _mask(temper: Temper, shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[Any]:
    """An ordinary mask is mostly ones, and its first column is set, so that no row of an attention mask is empty.

    A mask of stress inputs that has one element or one sign is all ones or all zeros; in others both are as frequent.
    """
    if temper is Temper.ORDINARY:
        mask = np.asarray(generator.random(shape) < 0.75)
        if len(shape) > 1 and shape[-1] > 1:
            mask[..., 0] = True
        return mask
    if math.prod(shape) == 1 or temper in (Temper.NEGATIVE, Temper.POSITIVE):
        return np.full(shape, temper in (Temper.LARGE, Temper.POSITIVE))
    return np.asarray(generator.random(shape) < 0.5)


def _integers(
    spec: InputSpec, plan: Plan, kind: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[Any]:
    match spec.purpose.role:
        case Role.INDEX:
            return generator.integers(0, max(1, spec.purpose.bound or plan.integer_bound), shape)
        case Role.COUNT:
            return np.ones(shape, dtype=np.int64)
        case Role.AXES:
            return np.arange(int(np.prod(shape))).reshape(shape)
        case Role.NEW_SHAPE:
            values = np.ones(shape, dtype=np.int64)
            values[-1:] = -1
            return values
        case Role.FREE if plan.mode is not None and spec.purpose.compared:
            numbers = spec.purpose.compared
            return np.full(shape, numbers[plan.mode % len(numbers)])
    if kind.itemsize == 1:
        # Quantised data and images use the whole range.
        limits = np.iinfo(np.uint8 if kind.kind == "u" else np.int8)
        low = 1 if spec.purpose.role is Role.POSITIVE else int(limits.min)
        return generator.integers(low, int(limits.max) + 1, shape)
    # From 1 on: a zero that ends up as an integer divisor would kill the process.
    return generator.integers(1, max(2, plan.integer_bound), shape)


def _stress_integers(
    spec: InputSpec, plan: Plan, kind: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[Any]:
    """Indices of either sign with their first and last values; others of either sign, zero and limits among them."""
    if spec.purpose.role is Role.INDEX:
        bound = max(1, spec.purpose.bound or plan.integer_bound)
        drawn = generator.integers(-bound if kind.kind == "i" and plan.temper is not Temper.LARGE else 0, bound, shape)
        return np.asarray(_repeat(drawn, generator))
    if spec.purpose.role is not Role.FREE:
        return _integers(spec, plan, kind, shape, generator)
    if kind.itemsize == 1:
        return _mix_ends(_integers(spec, plan, kind, shape, generator), spec, plan, kind, generator)
    bound = plan.integer_bound * (100 if plan.temper is Temper.LARGE else 1)
    drawn = generator.integers(-bound, bound + 1, shape)
    if plan.temper in (Temper.NEGATIVE, Temper.POSITIVE) or kind.kind == "u":
        drawn = -abs(drawn) if plan.temper is Temper.NEGATIVE and kind.kind == "i" else abs(drawn)
    near = [int(limit) + step for limit in spec.purpose.compared if math.isfinite(limit) for step in (-1, 0, 1)]
    limits = np.iinfo(kind)
    near = [number for number in near if limits.min <= number <= limits.max]
    if near and plan.temper is Temper.EDGES:
        drawn = np.where(generator.random(shape) < 0.5, generator.choice(near, shape), drawn)
    return np.asarray(_repeat(_mix_ends(drawn, spec, plan, kind, generator), generator))


def _mix_ends(
    drawn: NDArray[Any], spec: InputSpec, plan: Plan, kind: np.dtype[Any], generator: np.random.Generator
) -> NDArray[Any]:
    """The numbers; among edges of an input that may wrap around, a share of them replaced by the least and the largest
    of its type and by halves of them, at which sums and products do."""
    if not spec.purpose.wraps or plan.temper is not Temper.EDGES:
        return drawn
    limits = np.iinfo(kind)
    half = limits.max // 2
    numbers = (limits.min, limits.min + 1, limits.max - 1, limits.max, half, half + 1, 1 << limits.bits // 2)
    ends = generator.choice(np.array(numbers, kind), drawn.shape)
    return np.where(generator.random(drawn.shape) < _EDGE_SHARE, ends, drawn.astype(kind))


def _floats(
    spec: InputSpec, plan: Plan, kind: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[Any]:
    match spec.purpose.role:
        case Role.POSITIVE | Role.SCALE:
            return generator.uniform(0.1, 2.0, shape)
        case Role.UNIT_INTERVAL:
            return generator.uniform(0.05, 0.95, shape)
        case Role.ABOVE_ONE:
            return generator.uniform(1.0, 3.0, shape)
    values = plan.scale * generator.standard_normal(shape)
    return values + 1j * generator.standard_normal(shape) if kind.kind == "c" else np.asarray(values)


def _stress_floats(
    spec: InputSpec, temper: Temper, kind: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[Any]:
    """Numbers of any kind, also outside the domain of the model's operators."""
    values = np.asarray(generator.standard_normal(shape))
    match temper:
        case Temper.LARGE:
            exponent = _LARGEST_EXPONENT.get(kind.name, _USUAL_EXPONENT)
            return np.asarray(values * 10.0 ** generator.uniform(0, exponent, shape))
        case Temper.NEGATIVE:
            return np.asarray(-3 * abs(values))
        case Temper.POSITIVE:
            return np.asarray(3 * abs(values))
    values = _mix(values, _EDGES, _EDGE_SHARE, generator)
    if spec.purpose.compared:
        values = _mix(values, spec.purpose.compared, _COMPARED_SHARE, generator)
    values = _repeat(values, generator)
    if temper is Temper.SPECIAL:
        limits = np.finfo(kind if kind.name in _IEEE_FLOATS else np.float32)
        ends = float(limits.max), float(limits.smallest_subnormal)
        special = np.array([math.nan, math.inf, -math.inf, *ends, *(-end for end in ends)])
        places = generator.permutation(values.size)[: math.ceil(_SPECIAL_SHARE * values.size)][: special.size]
        values.reshape(-1)[places] = generator.permutation(special)[: places.size]
    return values


def _mix(values: NDArray[Any], others: Iterable[float], share: float, generator: np.random.Generator) -> NDArray[Any]:
    """The values, a share of them replaced by random ones of the others."""
    chosen = generator.choice(np.array(tuple(others), dtype=np.float64), values.shape)
    return np.where(generator.random(values.shape) < share, chosen, values)


def _repeat(values: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
    """The values, a share of them replaced by their neighbour or its opposite, so that some sums cancel."""
    copied = generator.random(values.shape)
    opposite = values if values.dtype.kind == "i" else -np.roll(values, 1)
    chosen = np.where(copied < _REPEATED_SHARE / 2, opposite, values)
    return np.asarray(np.where(copied > 1 - _REPEATED_SHARE / 2, np.roll(values, 1), chosen))


def vary(
    sample: Mapping[str, NDArray[Any]], specs: Iterable[InputSpec], seed: int, order: bool
) -> dict[str, NDArray[Any]]:
    """Similar values to a sample: floats shrink elementwise; with ``order``, other types are permuted."""
    purposes = {spec.name: spec.purpose.role for spec in specs}
    varied = {}
    for name, value in sample.items():
        generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if np.issubdtype(value.dtype, np.inexact):
            varied[name] = np.asarray(value * generator.uniform(0.5, 1.0, value.shape)).astype(value.dtype)
        elif order and purposes.get(name) not in STRUCTURAL_ROLES:
            varied[name] = generator.permutation(value.reshape(-1)).reshape(value.shape)
        else:
            varied[name] = value
    return varied
