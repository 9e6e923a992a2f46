"""Seeded random inputs: realistic values for each input, one consistent size per symbolic dimension."""

from __future__ import annotations

import ast
import itertools
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from ...errors import UsageError
from .roles import FREE, STRUCTURAL_ROLES, Purpose, Role, purpose_of
from .structure import Structure
from .values import Feeds, RunError, Value

_SIZES = ((2, 8), (1, 8), (2, 32), (1, 32), (1, 64), (1, 224), (1, 1), (2, 2), (1, 128), (4, 4), (1, 512))
"""Sizes tried for symbolic dimensions: (leading axis, every other axis). Leading 2 first: size 1 hides broadcasting."""

_INTEGER_BOUNDS = (10, 2, 1)
_UNKNOWN_RANKS = (2, 1, 0, 3, 4)
_WORDS = ("alpha", "beta", "Gamma", "delta 4", "", "épsilon")
_SEQUENCE_LENGTH = 2
_LONGEST_EXPRESSION = 200
"""Characters up to which the name of a dimension may be an expression of other dimensions."""
_GENERATED_BYTES = 8
"""Random numbers are doubles before they are cast."""
_LARGEST_BYTES = 1 << 30
"""What all inputs may take together: of each, several versions are kept, and what becomes of it in both models."""


@dataclass(frozen=True)
class InputSpec:
    """An input to be fed. ``dims`` holds sizes, symbols (or expressions of symbols); None when the rank is unknown.

    ``container`` is "tensor", "sequence" (of such tensors), "optional" or "other" (nothing that can be generated).
    """

    name: str
    container: str
    element_type: int
    dims: tuple[int | str, ...] | None
    purpose: Purpose = FREE


@dataclass(frozen=True)
class Plan:
    """The free choices behind a set of inputs."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    integer_bound: int = _INTEGER_BOUNDS[0]
    unknown_rank: int = _UNKNOWN_RANKS[0]
    scale: float = 1.0


def input_specs(structure: Structure) -> tuple[InputSpec, ...]:
    """Every input that must be fed, with the purpose its uses give away."""
    return tuple(_spec(structure, value) for value in structure.inputs)


def _spec(structure: Structure, value: onnx.ValueInfoProto) -> InputSpec:
    container, tensor = _container(value.type)
    if tensor is None:
        return InputSpec(value.name, "other", onnx.TensorProto.UNDEFINED, None)
    dims: tuple[int | str, ...] | None = None
    if tensor.HasField("shape"):
        dims = tuple(_dim(axis, dim) for axis, dim in enumerate(tensor.shape.dim))
    return InputSpec(value.name, container, tensor.elem_type, dims, purpose_of(structure, value.name, tensor.elem_type))


def _container(kind: onnx.TypeProto) -> tuple[str, onnx.TypeProto.Tensor | None]:
    if kind.HasField("tensor_type"):
        return "tensor", kind.tensor_type
    if kind.HasField("sequence_type"):
        inner, tensor = _container(kind.sequence_type.elem_type)
        return ("sequence", tensor) if inner == "tensor" else ("other", None)
    if kind.HasField("optional_type"):
        inner, tensor = _container(kind.optional_type.elem_type)
        return ("optional", tensor) if inner == "tensor" else (inner, tensor)
    return "other", None


def _dim(axis: int, dim: onnx.TensorShapeProto.Dimension) -> int | str:
    if dim.HasField("dim_value") and dim.dim_value > 0:
        return dim.dim_value
    return dim.dim_param or f"?{axis}"


def plans(
    specs: Iterable[InputSpec], shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, NDArray[Any]]
) -> Iterator[Plan]:
    """Plans in the order to try them; ``shapes`` and the shapes of ``known`` inputs are binding.

    Raises UsageError when a shape does not fit the rank of its input.
    """
    specs = tuple(specs)
    binding = {**shapes, **{name: tuple(value.shape) for name, value in known.items()}}
    fixed = dict(_bindings(specs, binding))
    leading = _symbols(specs, fixed)
    bounded = any(spec.name not in known and _wants_small_integers(spec) for spec in specs)
    ranked = any(spec.dims is None and spec.name not in binding and spec.container != "other" for spec in specs)
    choices = itertools.product(
        _SIZES if leading else _SIZES[:1],
        _INTEGER_BOUNDS if bounded else _INTEGER_BOUNDS[:1],
        _UNKNOWN_RANKS if ranked else _UNKNOWN_RANKS[:1],
    )
    for (first, other), bound, rank in choices:
        sizes = {symbol: first if leads else other for symbol, leads in leading.items()}
        yield Plan({**sizes, **fixed}, binding, bound, rank)


def enlarged(plan: Plan, specs: Iterable[InputSpec]) -> Plan | None:
    """The plan with every free symbolic size made larger by about a half, or None when no size is free."""
    fixed = dict(_bindings(specs, plan.shapes))
    free = {symbol: size + max(1, size // 2) for symbol, size in plan.sizes.items() if symbol not in fixed}
    return replace(plan, sizes={**plan.sizes, **free}) if free else None


def _bindings(specs: Iterable[InputSpec], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, int]]:
    for spec in specs:
        if spec.name not in shapes or spec.dims is None:
            continue
        shape = shapes[spec.name]
        if len(shape) != len(spec.dims):
            expected = "x".join(map(str, spec.dims))
            raise UsageError(
                f"input {spec.name!r} has {len(spec.dims)} dims ({expected}), not {len(shape)}; fix its shape"
            )
        yield from ((dim, size) for dim, size in zip(spec.dims, shape, strict=True) if isinstance(dim, str))


def _symbols(specs: Iterable[InputSpec], fixed: Mapping[str, int]) -> dict[str, bool]:
    """Free symbols, and whether they stand on a leading axis. Expressions of other symbols are not symbols."""
    found: dict[str, bool] = {}
    for spec in specs:
        for axis, dim in enumerate(spec.dims or ()):
            if isinstance(dim, str) and dim not in fixed:
                found[dim] = found.get(dim, False) or axis == 0
    names = {*found, *fixed}
    return {symbol: leads for symbol, leads in found.items() if not _is_expression(symbol, names)}


def _is_expression(symbol: str, names: set[str]) -> bool:
    used = _names_in(symbol)
    return bool(used) and used != {symbol} and used <= names


def _names_in(expression: str) -> set[str]:
    tree = _parsed(expression)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree is not None else set()


def _parsed(expression: str) -> ast.Expression | None:
    """The expression; None where it is none, or one so long or deep that Python's parser would give up."""
    try:
        return ast.parse(expression, mode="eval") if len(expression) <= _LONGEST_EXPRESSION else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _evaluate(expression: str, sizes: Mapping[str, int]) -> int:
    """A dimension such as ``past + 1`` under the given sizes; 1 for anything but integer arithmetic."""
    tree = _parsed(expression)
    try:
        return 1 if tree is None else _arithmetic(tree.body, sizes)
    except (KeyError, ZeroDivisionError, TypeError):
        return 1


def _arithmetic(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Name(id=name):
            return sizes[name]
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(left=left, op=operator, right=right):
            first, second = _arithmetic(left, sizes), _arithmetic(right, sizes)
            match operator:
                case ast.Add():
                    return first + second
                case ast.Sub():
                    return first - second
                case ast.Mult():
                    return first * second
                case ast.Div() | ast.FloorDiv():
                    return first // second
    raise TypeError("not integer arithmetic")


def _wants_small_integers(spec: InputSpec) -> bool:
    kind = _numpy_type(spec.element_type)
    unbounded = spec.purpose.role is Role.FREE or (spec.purpose.role is Role.INDEX and spec.purpose.bound is None)
    return kind is not None and kind.kind in "iu" and unbounded


def generate(specs: Iterable[InputSpec], plan: Plan, seed: int, known: Mapping[str, NDArray[Any]]) -> Feeds:
    """Values for every input; the same seed gives the same values, whatever the order of the inputs.

    Raises RunError for an input of a type that cannot be generated and is not among the ``known``, and where the inputs
    would take more memory than any model is worth.
    """
    specs = tuple(specs)
    _check_memory([spec for spec in specs if spec.name not in known], plan)
    return {spec.name: known[spec.name] if spec.name in known else _value(spec, plan, seed) for spec in specs}


def _check_memory(specs: Iterable[InputSpec], plan: Plan) -> None:
    total = 0
    for spec in specs:
        shape = _shape(spec, plan)
        if any(size < 0 for size in shape):
            raise RunError(f"input {spec.name!r} would have the shape {shape}; fix its shape")
        total += math.prod(shape) * _GENERATED_BYTES
        if total > _LARGEST_BYTES:
            raise RunError(f"input {spec.name!r} of shape {shape} is too large to be generated; fix a smaller shape")


def _value(spec: InputSpec, plan: Plan, seed: int) -> Value:
    generator = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    if spec.container == "sequence":
        return [_array(spec, plan, generator) for _ in range(_SEQUENCE_LENGTH)]
    return _array(spec, plan, generator)


def _array(spec: InputSpec, plan: Plan, generator: np.random.Generator) -> NDArray[Any]:
    kind = _numpy_type(spec.element_type)
    if kind is None or spec.container == "other":
        raise RunError(f"input {spec.name!r} is of a type that cannot be generated; give its value as a user input")
    shape = _shape(spec, plan)
    if spec.element_type == onnx.TensorProto.STRING:
        return generator.choice(np.array(_WORDS, dtype=object), size=shape)
    if spec.purpose.role is Role.MASK or kind.kind == "b":
        return _mask(shape, generator).astype(kind)
    if kind.kind in "iu":
        return np.asarray(_integers(spec, plan, kind, shape, generator)).astype(kind)
    return np.asarray(_floats(spec, plan, kind, shape, generator)).astype(kind)


def _shape(spec: InputSpec, plan: Plan) -> tuple[int, ...]:
    if spec.name in plan.shapes:
        return tuple(plan.shapes[spec.name])
    if spec.dims is None:
        return tuple(_SIZES[0][min(axis, 1)] for axis in range(plan.unknown_rank))
    return tuple(
        dim if isinstance(dim, int) else plan.sizes[dim] if dim in plan.sizes else _evaluate(dim, plan.sizes)
        for dim in spec.dims
    )


def _mask(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[Any]:
    """Mostly ones; a first element that is always set keeps every row of an attention mask alive."""
    mask = np.asarray(generator.random(shape) < 0.75)
    if len(shape) > 1 and shape[-1] > 1:
        mask[..., 0] = True
    return mask


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
    if kind.itemsize == 1:
        # Quantised data and images use the whole range.
        limits = np.iinfo(np.uint8 if kind.kind == "u" else np.int8)
        low = 1 if spec.purpose.role is Role.POSITIVE else int(limits.min)
        return generator.integers(low, int(limits.max) + 1, shape)
    # From 1 on: a zero that ends up as an integer divisor would kill the process.
    return generator.integers(1, max(2, plan.integer_bound), shape)


def _floats(
    spec: InputSpec, plan: Plan, kind: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[Any]:
    match spec.purpose.role:
        case Role.POSITIVE:
            return generator.uniform(0.1, 2.0, shape)
        case Role.UNIT_INTERVAL:
            return generator.uniform(0.05, 0.95, shape)
        case Role.ABOVE_ONE:
            return generator.uniform(1.0, 3.0, shape)
    values = plan.scale * generator.standard_normal(shape)
    return values + 1j * generator.standard_normal(shape) if kind.kind == "c" else np.asarray(values)


def vary(
    known: Mapping[str, NDArray[Any]], specs: Iterable[InputSpec], seed: int, order: bool
) -> dict[str, NDArray[Any]]:
    """Other values in the range of the given ones: floats shrink elementwise; with ``order``, the rest is permuted."""
    purposes = {spec.name: spec.purpose.role for spec in specs}
    varied = {}
    for name, value in known.items():
        generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if np.issubdtype(value.dtype, np.inexact):
            varied[name] = np.asarray(value * generator.uniform(0.5, 1.0, value.shape)).astype(value.dtype)
        elif order and purposes.get(name) not in STRUCTURAL_ROLES:
            varied[name] = generator.permutation(value.reshape(-1)).reshape(value.shape)
        else:
            varied[name] = value
    return varied


def _numpy_type(element_type: int) -> np.dtype[Any] | None:
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))
    except (KeyError, TypeError):
        return None
